"""Who takes part: optimizers by name, and the families that are measured together.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

LR = 1e-3
MAX_NORM = 1.0


# --- Ours ---------------------------------------------------------------------


def ours(name, **options):
    """`stepc.torch.NAME`; a dot leads into a module of it. More options may come later."""

    def make(params, **more):
        import stepc.torch

        made = stepc.torch
        for part in name.split("."):
            made = getattr(made, part)
        return made(params, lr=LR, **options, **more)

    return make


def ours_adalomo(params):
    """It takes a module; its `step` is used, not its backward pass."""
    return ours("lomo.AdaLomo")(torch.nn.ParameterList(params))


def ours_stochastic(params):
    """Beside f32 parameters there is nothing to round so, and it is refused."""
    narrow = any(param.dtype is torch.bfloat16 for param in params)
    return ours("AdamW", **({"rounding": "stochastic"} if narrow else {}))(params)


def ours_clip(params, **more):
    import stepc.torch

    features = {
        "clip": stepc.torch.ClipByNorm(MAX_NORM),
        "loss_scale": stepc.torch.DynamicLossScale(),
    }
    return stepc.torch.AdamW(params, lr=LR, **features, **more)


# --- Peers --------------------------------------------------------------------


def torch_adamw(**options):
    return lambda params: torch.optim.AdamW(params, lr=LR, **options)


def deepspeed(params):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(params, lr=LR, weight_decay=1e-2, adamw_mode=True)


def hf_adafactor(params):
    from transformers.optimization import Adafactor

    return Adafactor(params, lr=LR, relative_step=False, scale_parameter=True)


def torch_adafactor(**options):
    return lambda params: torch.optim.Adafactor(params, lr=LR, **options)


def came_pytorch(params):
    from came_pytorch import CAME

    return CAME(params, lr=LR)


def po_lamb(params):
    from pytorch_optimizer import Lamb

    return Lamb(params, lr=LR)


def po_lion(**options):
    def make(params):
        from pytorch_optimizer import Lion

        return Lion(params, lr=LR, **options)

    return make


def bitsandbytes_8bit(params):
    from bitsandbytes.optim import AdamW8bit

    return AdamW8bit(params, lr=LR)


def torchao_8bit(params):
    from torchao.optim import AdamW8bit

    return AdamW8bit(params, lr=LR)


class ClippedFused:
    """torch's clipping, then its fused AdamW; with `scaled` torch's GradScaler too."""

    def __init__(self, params, scaled=False):
        self.params = params
        self.optimizer = torch.optim.AdamW(params, lr=LR, fused=True)
        self.zero_grad = self.optimizer.zero_grad
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        self.scaler.scale(torch.ones(()))  # makes its tensors

    def step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.params, MAX_NORM)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def scaled_clipped_fused(params):
    return ClippedFused(params, scaled=True)


# --- The tables ---------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One contestant: what tables call it and how its optimizer is made.

    Without `make` it has no tensors of its own (see contestants.py). `fixed`:
    gradients stay the same tensors. `needs`: the package of a peer. `matrices`: it
    steps matrices alone.
    """

    label: str
    kind: str  # "limit", "ours" or "peer"
    make: Callable | None = None
    fixed: bool = False
    needs: str = "torch"
    matrices: bool = False


ENTRIES = {
    "stream": Entry("in-place stream (the limit)", "limit"),
    "stream-plain": Entry("in-place stream, no prefetch", "limit"),
    "stream-one-state": Entry("in-place stream of one state", "limit"),
    "stream-f32": Entry("in-place stream of f32", "limit"),
    "read-gradient": Entry("read of the gradient's bytes", "limit"),
    "kernel": Entry("stepc, the kernel alone", "ours"),
    "stepc": Entry("stepc.torch.AdamW", "ours", ours("AdamW")),
    "stepc-static": Entry(
        "stepc.torch.AdamW, static_grads", "ours", ours("AdamW", static_grads=True), fixed=True
    ),
    "fused": Entry("torch AdamW fused", "peer", torch_adamw(fused=True)),
    "foreach": Entry("torch AdamW foreach", "peer", torch_adamw(foreach=True)),
    "for-loop": Entry("torch AdamW for-loop", "peer", torch_adamw(foreach=False)),
    "deepspeed": Entry("DeepSpeedCPUAdam", "peer", deepspeed, needs="deepspeed"),
    "stepc-hf-adafactor": Entry(
        "stepc.torch.hf.Adafactor", "ours", ours("hf.Adafactor", relative_step=False)
    ),
    "stepc-torch-adafactor": Entry("stepc.torch.Adafactor", "ours", ours("Adafactor")),
    "stepc-hf-exclusive": Entry(
        "stepc hf.Adafactor, exclusive",
        "ours",
        ours("hf.Adafactor", relative_step=False, exclusive_writes=True),
    ),
    "stepc-hf-reproducible": Entry(
        "stepc hf.Adafactor, reproducible",
        "ours",
        ours("hf.Adafactor", relative_step=False, reproducible=True),
    ),
    "stepc-torch-exclusive": Entry(
        "stepc Adafactor, exclusive",
        "ours",
        ours("Adafactor", exclusive_writes=True),
    ),
    "stepc-adalomo": Entry("stepc.torch.lomo.AdaLomo", "ours", ours_adalomo),
    "hf-adafactor": Entry("transformers Adafactor", "peer", hf_adafactor, needs="transformers"),
    "torch-adafactor": Entry("torch Adafactor for-loop", "peer", torch_adafactor(foreach=False)),
    "torch-adafactor-foreach": Entry(
        "torch Adafactor foreach", "peer", torch_adafactor(foreach=True)
    ),
    "stepc-came": Entry("stepc.torch.came.CAME", "ours", ours("came.CAME")),
    "came-pytorch": Entry("came-pytorch CAME", "peer", came_pytorch, needs="came_pytorch"),
    "stepc-lamb": Entry("stepc.torch.deepspeed.FusedLamb", "ours", ours("deepspeed.FusedLamb")),
    "po-lamb": Entry("pytorch_optimizer Lamb", "peer", po_lamb, needs="pytorch_optimizer"),
    "stepc-clip": Entry("stepc AdamW, clip, loss scale", "ours", ours_clip),
    "stepc-master": Entry("stepc AdamW, f32 masters", "ours", ours("AdamW", master="f32")),
    "stepc-remainder": Entry("stepc AdamW, remainders", "ours", ours("AdamW", master="remainder")),
    "stepc-stochastic": Entry("stepc AdamW, stochastic rounding", "ours", ours_stochastic),
    "stepc-narrow": Entry(
        "stepc AdamW, remainders, bf16 states",
        "ours",
        ours("AdamW", master="remainder", state_dtype=torch.bfloat16),
    ),
    "stepc-states-bf16": Entry(
        "stepc AdamW, bf16 states", "ours", ours("AdamW", state_dtype=torch.bfloat16)
    ),
    "stepc-states-q8": Entry(
        "stepc AdamW, states of 8 bits", "ours", ours("AdamW", state_dtype="q8")
    ),
    "bnb-8bit": Entry("bitsandbytes AdamW8bit", "peer", bitsandbytes_8bit, needs="bitsandbytes"),
    "torchao-8bit": Entry("torchao AdamW8bit", "peer", torchao_8bit, needs="torchao"),
    "stepc-muon": Entry("stepc.torch.Muon", "ours", ours("Muon"), matrices=True),
    "stepc-muon-bf16": Entry(
        "stepc.torch.Muon, factors of bf16",
        "ours",
        ours("Muon", factors=torch.bfloat16),
        matrices=True,
    ),
    "stepc-gram-muon": Entry("stepc.torch.GramMuon", "ours", ours("GramMuon"), matrices=True),
    "stepc-gram-muon-bf16": Entry(
        "stepc.torch.GramMuon, factors of bf16",
        "ours",
        ours("GramMuon", factors=torch.bfloat16),
        matrices=True,
    ),
    "muon": Entry(
        "torch Muon", "peer", lambda params: torch.optim.Muon(params, lr=LR), matrices=True
    ),
    "stepc-lion": Entry("stepc.torch.Lion", "ours", ours("Lion")),
    "po-lion-for-loop": Entry(
        "pytorch_optimizer Lion for-loop", "peer", po_lion(foreach=False), needs="pytorch_optimizer"
    ),
    "po-lion-foreach": Entry(
        "pytorch_optimizer Lion foreach", "peer", po_lion(foreach=True), needs="pytorch_optimizer"
    ),
    "clip-fused": Entry("torch clip, AdamW fused", "peer", ClippedFused),
    "scaler-clip-fused": Entry("torch GradScaler, clip, fused", "peer", scaled_clipped_fused),
}

# Ours again, told that gradients stay the same tensors.
STATIC = (
    "stepc-hf-adafactor", "stepc-torch-adafactor", "stepc-came", "stepc-lamb", "stepc-clip",
)  # fmt: skip
for _name in STATIC:
    _label, _make = ENTRIES[_name].label, partial(ENTRIES[_name].make, static_grads=True)
    ENTRIES[_name + "-static"] = Entry(f"{_label}, static_grads", "ours", _make, fixed=True)


@dataclass(frozen=True)
class InTorch:
    """One of torch.optim's others: options beside `lr`, whether torch has it fused, and how many
    states have the parameter's dims. Its family has the class's name in small letters."""

    options: dict
    fused: bool
    states: int


TORCH = {
    "ASGD": InTorch({}, False, 1),
    "Adadelta": InTorch({}, False, 2),
    "Adagrad": InTorch({}, True, 1),
    "Adam": InTorch({}, True, 2),
    "Adamax": InTorch({}, False, 2),
    "NAdam": InTorch({}, False, 2),
    "RAdam": InTorch({}, False, 2),
    "RMSprop": InTorch({"momentum": 0.9}, False, 2),
    "Rprop": InTorch({}, False, 2),
    "SGD": InTorch({"momentum": 0.9}, True, 1),
}

# The Adams of other libraries, by class. With decoupled decay, as they have it by default, each is
# torch's AdamW.
PEER_ADAMS = (
    "colossal.HybridAdam",
    "colossal.CPUAdam",
    "colossal.FusedAdam",
    "deepspeed.DeepSpeedCPUAdam",
    "deepspeed.FusedAdam",
)


def torch_optim(name, **options):
    return lambda params: getattr(torch.optim, name)(params, lr=LR, **options)


def own_entry(name):
    """The entry of `stepc.torch.NAME`, of those of the zoo that are stepped element by element."""
    return "stepc" if name == "AdamW" else "stepc-" + name.lower().replace(".", "-")


def _torch_ways(name, settings):
    """Entries of torch's ways to step, and of ours, by name."""
    ways = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}}
    if settings.fused:
        ways["fused"] = {"fused": True}
    made = {own_entry(name): Entry(f"stepc.torch.{name}", "ours", ours(name, **settings.options))}
    for way, flags in ways.items():
        make = torch_optim(name, **settings.options, **flags)
        made[f"{name.lower()}-{way}"] = Entry(f"torch {name} {way}", "peer", make)
    return made


TORCH_ENTRIES = {name: _torch_ways(name, settings) for name, settings in TORCH.items()}
for _entries in TORCH_ENTRIES.values():
    ENTRIES.update(_entries)
for _name in PEER_ADAMS:
    ENTRIES[own_entry(_name)] = Entry(f"stepc {_name}", "ours", ours(_name, weight_decay=1e-2))


@dataclass(frozen=True)
class Family:
    """Contestants that are measured in the same rounds, beside the in-place stream
    and our AdamW; and the shapes and allocator modes where none are asked for."""

    label: str
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    limits: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ("gpt2", "vit", "tiny")
    modes: tuple[str, ...] = ("default",)

    def contestants(self, shape, dtype, peers):
        """Names for a case, of the peers those in `peers`."""
        limits = [name for name in self.limits if name != "stream-f32" or dtype == "bf16"]
        taking_part = [name for name in self.peers if name in peers]
        own = list(self.ours)
        if shape == "tiny":  # where finding gradients costs more than stepping
            own += [name + "-static" for name in self.ours if name in STATIC]
        return list(dict.fromkeys(["stream", *limits, "stepc", *own, *taking_part]))


FAMILIES = {
    "adamw": Family(
        "AdamW",
        ("kernel", "stepc", "stepc-static"),
        ("fused", "foreach", "for-loop", "deepspeed"),
        limits=("stream-plain", "stream-f32"),
        modes=("default", "heap-kept", "huge-pages"),
    ),
    "adafactor": Family(
        "Adafactor",
        (
            "stepc-hf-adafactor",
            "stepc-torch-adafactor",
            "stepc-hf-exclusive",
            "stepc-torch-exclusive",
            "stepc-hf-reproducible",
        ),
        ("hf-adafactor", "torch-adafactor", "torch-adafactor-foreach"),
    ),
    "came": Family(
        "CAME",
        ("stepc-came",),
        ("came-pytorch",),
        shapes=("gpt2", "tiny"),
        modes=("default", "heap-kept"),
    ),
    "lamb": Family("LAMB", ("stepc-lamb",), ("po-lamb",), shapes=("gpt2", "bert", "tiny")),
    # lomo_optim needs a GPU; the rule is nearly that of Adafactor without momentum.
    "adalomo": Family(
        "AdaLomo", ("stepc-adalomo",), ("hf-adafactor", "torch-adafactor"), shapes=("gpt2", "tiny")
    ),
    "clip": Family(
        "AdamW with clipping and loss scale",
        ("stepc-clip",),
        ("clip-fused", "scaler-clip-fused"),
        limits=("read-gradient",),
    ),
    # Of matrices alone; torch multiplies in bfloat16, we in float32.
    "muon": Family(
        "Muon",
        ("stepc-muon", "stepc-muon-bf16", "stepc-gram-muon", "stepc-gram-muon-bf16"),
        ("muon",),
        limits=("stream-one-state",),
        shapes=("gpt2-hidden",),
    ),
    "lion": Family(
        "Lion",
        ("stepc-lion",),
        ("po-lion-for-loop", "po-lion-foreach"),
        limits=("stream-one-state",),
        shapes=("gpt2", "tiny"),
    ),
    "peer-adams": Family(
        "Adams of other libraries",
        tuple(own_entry(name) for name in PEER_ADAMS),
        ("fused", "foreach", "for-loop", "deepspeed"),
        shapes=("gpt2", "tiny"),
    ),
    # Moments in fewer bits than parameters.
    "states": Family(
        "AdamW with states of 16 and of 8 bits",
        ("stepc-states-bf16", "stepc-states-q8"),
        ("fused", "bnb-8bit", "torchao-8bit"),
        shapes=("gpt2",),
    ),
    # Beside f32 parameters, which have nothing to keep, they are our AdamW.
    "masters": Family(
        "AdamW with the f32 behind bf16 parameters",
        ("stepc-master", "stepc-remainder", "stepc-narrow", "stepc-stochastic"),
        ("fused",),
        shapes=("gpt2",),
    ),
}
for _name, _entries in TORCH_ENTRIES.items():
    _own, *_peers = _entries
    FAMILIES[_name.lower()] = Family(
        _name,
        (_own,),
        tuple(_peers),
        limits=("stream-one-state",) if TORCH[_name].states == 1 else (),
        shapes=("gpt2", "tiny"),
    )
# The table of docs/measurements.md: classes of ours, and the families that they are measured in.
ZOO = {name: name.lower() for name in sorted({*TORCH, "AdamW", "Lion"})}
ZOO |= dict.fromkeys(PEER_ADAMS, "peer-adams")
PEERS = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.peers))
LABELS = {name: entry.label for name, entry in ENTRIES.items()}
OURS = tuple(name for name, entry in ENTRIES.items() if entry.kind == "ours")
