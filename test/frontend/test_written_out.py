# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every class, and every definition of the zoo, beside its original written out in numpy:
decays of 0 and of 1, NaN, infinities, gradients whose squares overflow, denormals, zeros.

Definitions and their interpreter share the text, so only what is written elsewhere can tell
that a formula makes NaN of a number. Elements that are numbers in the original are numbers
here, and the same but for rounding; infinities and NaN are where they are there.
"""

import inspect
import math
import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
import stepc.torch
import torch
import written_out as own
import written_out_peers as peers
from common import ZOO
from stepc.torch import apex, bitsandbytes, came, colossal, deepspeed, hf, lomo, moonlight, muon

BETAS = ("betas",)
SHAPES = [(5,), (3, 4), (2, 3, 4), (2, 2)]  # the last one is of zeros


@dataclass
class Entry:
    """``make(params, **kwargs)``, the original, arguments for both, which of them are
    decays: numbers, or tuples of them; and those that the original refuses."""

    make: object
    original: object
    kwargs: dict = field(default_factory=dict)
    decays: tuple = BETAS
    refused: dict = field(default_factory=dict)  # of an argument, the number
    norm: bool = False  # of all gradients
    shapes: list = field(default_factory=lambda: SHAPES)
    slack: float = 1.0  # times the limit of what is apart by rounding


def zoo(name):
    """The class that takes a definition, with one of the zoo."""
    return lambda params, **kwargs: stepc.torch.Optimizer(params, ZOO / f"{name}.mlir", **kwargs)


def of_model(cls):
    """A class that takes a module; it steps outside of a backward pass, too."""
    return lambda params, **kwargs: cls(torch.nn.ParameterList(params), **kwargs)


class Alone:
    """An optimizer for each parameter, for what is of the whole model to be of one."""

    def __init__(self, make, params, kwargs):
        self.optimizers = [make([param], **kwargs) for param in params]
        self.defaults = self.optimizers[0].defaults
        self.state = {p: o.state[p] for p, o in zip(params, self.optimizers, strict=True)}

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def alone(name):
    return lambda params, **kwargs: Alone(zoo(name), params, kwargs)


t = stepc.torch
FIXED = {"lr": 0.1, "relative_step": False}
L2 = {"weight_decay": 0.1}
VECTORS = [(5,), (2,), (7,), (3,), (33,)]
ONE = {"betas": 1.0}  # Their bias corrections divide by 1 - 1.
ENTRIES = {
    "SGD": Entry(t.SGD, own.sgd, {"lr": 0.1, "momentum": 0.9}, ("momentum", "dampening")),
    "SGD nesterov": Entry(
        t.SGD, own.sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, **L2}, ("momentum",),
        {"momentum": 0.0},
    ),
    "ASGD": Entry(t.ASGD, own.asgd, {"t0": 1.0, "lambd": 0.1}, ("alpha", "lambd")),
    "Adadelta": Entry(t.Adadelta, own.adadelta, {}, ("rho",)),
    "Adagrad": Entry(t.Adagrad, own.adagrad, {"lr_decay": 0.1}, ("lr_decay",)),
    "Adam": Entry(t.Adam, own.adam, L2, refused=ONE),
    "Adam amsgrad": Entry(t.Adam, own.adam, {"amsgrad": True}, refused=ONE),
    "AdamW": Entry(t.AdamW, own.adamw, refused=ONE),
    "Adamax": Entry(t.Adamax, own.adamax, refused=ONE),
    "NAdam": Entry(t.NAdam, own.nadam, {}, ("betas", "momentum_decay"), ONE),
    "RAdam": Entry(t.RAdam, own.radam, refused=ONE),
    "RMSprop": Entry(t.RMSprop, own.rmsprop, {"momentum": 0.9}, ("alpha", "momentum")),
    "RMSprop centered": Entry(t.RMSprop, own.rmsprop, {"centered": True, **L2}, ("alpha",)),
    "Rprop": Entry(t.Rprop, own.rprop, {}, ()),
    "Adafactor": Entry(
        t.Adafactor, own.torch_adafactor, {}, ("beta2_decay",), {"beta2_decay": 1.0}
    ),
    "APOLLOAdamW": Entry(t.APOLLOAdamW, own.galore_adamw, {"lr": 0.01, **L2}, refused=ONE),
    "GaLoreAdamW": Entry(t.GaLoreAdamW, own.galore_adamw, {"lr": 0.01, **L2}, refused=ONE),
    "GaLoreAdamW uncorrected": Entry(
        t.GaLoreAdamW, own.galore_adamw, {"correct_bias": False}, refused=ONE
    ),
    "GaLoreAdafactor": Entry(t.GaLoreAdafactor, peers.hf_adafactor, L2, ()),
    "SOAP": Entry(t.SOAP, own.soap, {"lr": 0.01, **L2}, shapes=VECTORS, refused=ONE),
    "Shampoo": Entry(
        t.Shampoo, own.shampoo, {"grafting_type": "adam", **L2}, (), shapes=VECTORS
    ),
    "Shampoo sums": Entry(
        t.Shampoo, own.shampoo, {"grafting_type": "adagrad", "momentum": 0.9}, ("momentum",),
        {"momentum": 1.0}, shapes=VECTORS,
    ),
    "Lion": Entry(t.Lion, own.lion, {"lr": 0.01, **L2}, refused=ONE),
    "SophiaG": Entry(t.SophiaG, own.sophia, {"lr": 0.01, **L2}, refused=ONE),
    "SM3": Entry(
        t.SM3, own.sm3, {"lr": 0.1, "momentum": 0.9}, ("momentum",), {"momentum": 1.0}
    ),
    "SM3 beta": Entry(t.SM3, own.sm3, {"lr": 0.1, "beta": 0.9, "eps": 1e-8}, ("beta",)),
    "LARS": Entry(t.LARS, own.lars, {"lr": 0.1, **L2}, ("momentum",)),
    "LARS nesterov": Entry(t.LARS, own.lars, {"lr": 0.1, "nesterov": True}, ("momentum",)),
    "hf.Adafactor": Entry(hf.Adafactor, peers.hf_adafactor, L2, ()),
    "hf.Adafactor momentum": Entry(
        hf.Adafactor, peers.hf_adafactor, {**FIXED, "beta1": 0.9}, ("beta1",)
    ),
    "came.CAME": Entry(came.CAME, peers.came, {"lr": 0.01, **L2}),
    "colossal.Adafactor": Entry(colossal.Adafactor, peers.hf_adafactor, {}, ()),
    "colossal.CAME": Entry(colossal.CAME, peers.came, {"lr": 0.01}),
    "colossal.CPUAdam": Entry(colossal.CPUAdam, peers.cpu_adam, {"adamw_mode": False, **L2}),
    "colossal.HybridAdam": Entry(colossal.HybridAdam, peers.cpu_adam, L2),
    "colossal.DistGaloreAwamW": Entry(
        colossal.DistGaloreAwamW, own.galore_adamw, {"nbits": 32, **L2}, refused=ONE
    ),
    "colossal.FusedAdam": Entry(colossal.FusedAdam, peers.fused_adam, L2),
    "colossal.FusedLAMB": Entry(
        colossal.FusedLAMB, peers.apex_lamb, {"lr": 0.1, "use_nvlamb": True}, norm=True
    ),
    "colossal.Lamb": Entry(colossal.Lamb, peers.colossal_lamb, L2, refused=ONE),
    "colossal.Lamb adam": Entry(
        colossal.Lamb, peers.colossal_lamb, {"adam": True, "bias_correction": True}, refused=ONE
    ),
    "colossal.DistributedLamb": Entry(
        colossal.DistributedLamb, peers.colossal_lamb, {"bias_correction": True, **L2}, refused=ONE
    ),
    "deepspeed.DeepSpeedCPUAdam": Entry(deepspeed.DeepSpeedCPUAdam, peers.cpu_adam, L2),
    "deepspeed.DeepSpeedCPUAdam uncorrected": Entry(
        deepspeed.DeepSpeedCPUAdam, peers.cpu_adam, {"bias_correction": False}
    ),
    "deepspeed.FusedAdam": Entry(
        deepspeed.FusedAdam, peers.fused_adam, {"adam_w_mode": False, **L2}
    ),
    "deepspeed.FusedLamb": Entry(deepspeed.FusedLamb, peers.deepspeed_lamb, {"lr": 0.1, **L2}),
    "deepspeed.FusedLamb inside": Entry(
        deepspeed.FusedLamb, peers.deepspeed_lamb, {"lr": 0.1, "eps_inside_sqrt": True}
    ),
    "bitsandbytes.Adam": Entry(bitsandbytes.Adam, peers.bnb_adam, L2, refused=ONE),
    "bitsandbytes.Lion": Entry(
        bitsandbytes.Lion, peers.bnb_lion, {"lr": 0.01, **L2}, refused=ONE
    ),
    "bitsandbytes.SGD": Entry(
        bitsandbytes.SGD, peers.bnb_momentum, {"lr": 0.1, "momentum": 0.9, **L2}, ()
    ),
    "bitsandbytes.RMSprop": Entry(bitsandbytes.RMSprop, peers.bnb_rmsprop, L2, ()),
    "bitsandbytes.Adagrad": Entry(bitsandbytes.Adagrad, peers.bnb_adagrad, L2, ()),
    "apex.FusedLAMB": Entry(apex.FusedLAMB, peers.apex_lamb, {"lr": 0.1}, norm=True),
    "apex.FusedLAMB coupled": Entry(
        apex.FusedLAMB, peers.apex_lamb,
        {"lr": 0.1, "adam_w_mode": False, "grad_averaging": False}, norm=True,
    ),
    "lomo.Lomo": Entry(of_model(lomo.Lomo), peers.lomo, {"lr": 0.1, **L2}, ()),
    "lomo.AdaLomo": Entry(of_model(lomo.AdaLomo), peers.adalomo, {"loss_scale": None, **L2}, ()),
    "lamb": Entry(zoo("lamb"), peers.lamb, {"lr": 0.1, **L2}, ("beta1", "beta2")),
    "dadapt_adam": Entry(alone("dadapt_adam"), peers.dadapt_adam, {"lr": 1.0}, ("beta1",)),
    "dadapt_sgd": Entry(alone("dadapt_sgd"), peers.dadapt_sgd, {"lr": 1.0}, ("momentum",)),
}  # fmt: skip
MATRICES = [(3, 4), (4, 3), (3, 3), (1, 5), (2, 2)]
ENTRIES["NorMuon"] = Entry(
    t.NorMuon, own.normuon, {"lr": 0.1}, ("momentum", "beta2"), {"momentum": 1.0, "beta2": 1.0},
    shapes=MATRICES,
)  # fmt: skip


def in_a_group(cls):
    """A class that takes groups."""
    return lambda params, **kwargs: cls([{"params": params, **kwargs}])


def of_moonshot(params, use_muon=True, **kwargs):
    own = "muon_params" if use_muon else "adamw_params"
    return moonlight.Muon(**{own: params}, **kwargs)


OF_DION = {"lr": 0.1, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8}
OF_MUON = {"lr": 0.1, "weight_decay": 0.1, "momentum": 0.95, "use_muon": True}
OF_ADAM = {"lr": 0.1, "weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-10, "use_muon": False}
NO_MOMENTUM = {"momentum": 1.0}
ENTRIES |= {
    "Dion": Entry(
        in_a_group(t.Dion), own.dion, {"algorithm": "adamw", **OF_DION}, ("beta1", "beta2")
    ),
    "Dion lion": Entry(
        in_a_group(t.Dion), own.dion, {"algorithm": "lion", **OF_DION}, ("beta1", "beta2")
    ),
    **{
        f"muon.{cls.__name__}": Entry(
            cls, peers.jordan, {"lr": 0.1}, ("momentum",), NO_MOMENTUM, shapes=MATRICES
        )
        for cls in (muon.Muon, muon.SingleDeviceMuon)
    },
    "muon.MuonWithAuxAdam": Entry(
        in_a_group(muon.MuonWithAuxAdam), peers.jordan, OF_MUON, ("momentum",), NO_MOMENTUM,
        shapes=MATRICES,
    ),
    "muon.SingleDeviceMuonWithAuxAdam": Entry(
        in_a_group(muon.SingleDeviceMuonWithAuxAdam), peers.jordan, OF_ADAM, refused=ONE
    ),
    "moonlight.Muon": Entry(
        of_moonshot, peers.moonlight, {"lr": 0.1}, ("momentum",), NO_MOMENTUM, shapes=MATRICES
    ),
    "moonlight.Muon adamw": Entry(
        of_moonshot, peers.moonlight, {"lr": 0.1, "use_muon": False, "adamw_eps": 1e-3},
        ("adamw_betas",), {"adamw_betas": 1.0},
    ),
}  # fmt: skip
if hasattr(t, "Muon"):  # of torch 2.9 and later
    OTHER = {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw", "nesterov": False}
    ENTRIES |= {
        # Of eigenvalues that are multiplied by up to a^2 a step, in five.
        "GramMuon": Entry(
            t.GramMuon, own.muon, {"lr": 0.1}, ("momentum",), shapes=MATRICES, slack=20.0
        ),
        "Muon": Entry(t.Muon, own.muon, {"lr": 0.1}, ("momentum",), shapes=MATRICES),
        "Muon matched": Entry(t.Muon, own.muon, OTHER, ("momentum",), shapes=MATRICES),
    }

STEPS = 4
DTYPES = {torch.float64: np.float64, torch.float32: np.float32}
HUGE = {torch.float64: 1e200, torch.float32: 1e30}
TINY = {torch.float64: 1e-310, torch.float32: 1e-42}


def one(value):
    """In the second step, of one element."""

    def change(grad, step, dtype):
        if step == 1:
            grad.flat[1] = value * (HUGE[dtype] if math.isfinite(value) else 1.0)

    return change


def times(factors):
    """All elements of a step, by its factor."""

    def change(grad, step, dtype):
        grad *= factors(dtype)[step]

    return change


def rows_of_zeros(grad, step, dtype):
    if grad.ndim > 1:
        grad[..., 0, :] = 0
    else:
        grad[0] = 0


KINDS = {
    "usual": times(lambda dtype: [1.0] * STEPS),
    "one NaN": one(math.nan),
    "one Inf": one(math.inf),
    "one -Inf": one(-math.inf),
    "one huge": one(1.0),
    "all huge": times(lambda dtype: [1.0, HUGE[dtype], 1.0, 1.0]),
    "huge first": times(lambda dtype: [HUGE[dtype], 1.0, 1.0, 1.0]),
    "falling": times(lambda dtype: [1e8, 1e-3, 1e-3, 1e-3]),
    "denormal": times(lambda dtype: [TINY[dtype]] * STEPS),
    "zero": times(lambda dtype: [0.0] * STEPS),
    "zero first": times(lambda dtype: [0.0, 0.0, 1.0, 1.0]),
    "zero rows": rows_of_zeros,
}


def variants(entry, defaults):
    """Arguments: as they are, with each decay 0 and 1, and with all 0."""
    yield {}
    places = []
    for name in entry.decays:
        value = {**defaults, **entry.kwargs}[name]
        places += [(name, k) for k in range(len(value))] if isinstance(value, tuple) else [
            (name, None)]  # fmt: skip

    def replaced(chosen, number):
        changed = {}
        for name, k in chosen:
            value = changed.get(name, {**defaults, **entry.kwargs}[name])
            changed[name] = number if k is None else (*value[:k], number, *value[k + 1 :])
        return changed

    for place in places:
        yield replaced([place], 0.0)
        yield replaced([place], 1.0)
    if len(places) > 1:
        yield replaced(places, 0.0)


def make_params(entry, dtype):
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(shape) for shape in entry.shapes]
    values[-1] *= 0
    return [torch.nn.Parameter(torch.tensor(v, dtype=dtype)) for v in values]


def gradients(entry, kind, dtype, step):
    rng = np.random.default_rng([zlib.crc32(kind.encode()), step])
    grads = [rng.standard_normal(shape) for shape in entry.shapes]
    for grad in grads:
        KINDS[kind](grad, step, dtype)
    return [grad.astype(DTYPES[dtype]) for grad in grads]


def run(entry, kind, dtype, changed):
    """Ours and the original's: parameters and states of each step."""
    kwargs = {**entry.kwargs, **changed}
    params = make_params(entry, dtype)
    optimizer = entry.make(params, **kwargs)
    h = {**optimizer.defaults, **kwargs}
    values, states = [p.detach().numpy().copy() for p in params], [{} for _ in params]
    for step in range(STEPS):
        grads = gradients(entry, kind, dtype, step)
        for param, grad in zip(params, grads, strict=True):
            param.grad = torch.tensor(grad)
        optimizer.step()
        if entry.norm:
            h["norm"] = math.sqrt(sum(own.norm(grad) ** 2 for grad in grads))
        for k, grad in enumerate(grads):
            values[k] = entry.original(values[k], grad, states[k], step + 1, h)
            assert values[k].dtype == grad.dtype
        yield params, optimizer, values, states


def difference(ours, theirs, limit):
    """What is wrong, or ""."""
    for name, test in (("NaN", np.isnan), ("Inf", np.isposinf), ("-Inf", np.isneginf)):
        if not np.array_equal(test(ours), test(theirs)):
            return f"{name} elsewhere: {ours.ravel()[:6]} for {theirs.ravel()[:6]}"
    numbers = np.isfinite(theirs)
    sizes = np.abs(theirs[numbers]) if numbers.any() else np.ones(1)
    # Where values cancel, small ones have the error of large ones.
    apart = np.abs(ours - theirs)[numbers] / np.maximum(sizes, max(sizes.mean(), 0.01))
    if apart.size and apart.max() > limit:
        return f"apart by {apart.max()}: {ours.ravel()[:6]} for {theirs.ravel()[:6]}"
    return ""


def states_of(optimizer, param):
    """As flat arrays of float64."""
    own = optimizer.state[param]
    return {n: s.detach().double().numpy().reshape(-1) for n, s in own.items() if n != "step"}


def compare(entry, kind, dtype, changed):
    """The first difference, or "". States of a parameter that is NaN throughout may be any."""
    limit = entry.slack * (1e-11 if dtype is torch.float64 else 5e-5)
    for step, (params, optimizer, values, states) in enumerate(run(entry, kind, dtype, changed)):
        for k, (param, value) in enumerate(zip(params, values, strict=True)):
            found = difference(param.detach().numpy(), value, limit)
            mine = {} if np.isnan(value).all() else states_of(optimizer, param)
            for name in [n for n in mine if n in states[k] and not found]:
                other = np.asarray(states[k][name], np.float64).reshape(-1)
                found = difference(mine[name], other, limit)
                found = found and f"{name}: {found}"
            if found:
                return f"step {step}, shape {entry.shapes[k]}: {found}"
    return ""


# Where ours is not the original on purpose: there it is finite.
DEPARTURES = {
    # It divides by the norm of the first gradient; here nothing moves until one is not 0.
    "dadapt_sgd": {"zero", "zero first", "denormal"},
}


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("name", ENTRIES)
@np.errstate(all="ignore")
def test_as_the_original(name):
    entry, wrong = ENTRIES[name], []
    defaults = entry.make(make_params(entry, torch.float64), **entry.kwargs).defaults
    for changed in variants(entry, defaults):
        refused = [n for n, number in entry.refused.items()
                   if number in np.atleast_1d(changed.get(n, ()))]  # fmt: skip
        if refused:
            with pytest.raises(ValueError, match="(?i)beta|momentum"):
                entry.make(make_params(entry, torch.float64), **{**entry.kwargs, **changed})
            continue
        for kind in KINDS:
            for dtype in DTYPES:
                found = compare(entry, kind, dtype, changed)
                if kind in DEPARTURES.get(name, ()):
                    *_, (params, _, _, _) = run(entry, kind, dtype, changed)
                    assert found and all(bool(p.isfinite().all()) for p in params), kind
                elif found:
                    wrong.append(f"{kind}, {dtype}, {changed}: {found}")
    assert not wrong, f"{len(wrong)} cases\n" + "\n".join(wrong[:20])


def classes():
    """The optimizers of stepc.torch, by the names that they have there."""
    libraries = (apex, bitsandbytes, came, colossal, deepspeed, hf, lomo, moonlight, muon)
    for prefix, module in [("", stepc.torch), *((f"{m.__name__.rpartition('.')[2]}.", m)
                           for m in libraries)]:  # fmt: skip
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer):
                yield f"{prefix}{name}", value


def test_every_class_and_definition_has_an_entry():
    known, definitions = {name.split()[0] for name in ENTRIES}, set()
    for name, cls in classes():
        if cls is not stepc.torch.Optimizer:
            # Those of bitsandbytes that say how many bits a state has derive from one.
            kinds = [c for c in cls.__mro__ if ".bitsandbytes." in c.__module__]
            same = (other for other, own in classes() if own is cls)  # under two names
            names = {name, *same, *(f"bitsandbytes.{c.__name__}" for c in kinds)}
            assert known & names, name
            definitions.add(cls._zoo_name)
    assert {path.stem for path in ZOO.glob("*.mlir")} - definitions <= known
    modules = {n for n in stepc.torch.__all__ if inspect.ismodule(getattr(stepc.torch, n))}
    assert modules == {
        "apex", "bitsandbytes", "came", "checkpoint", "colossal", "deepspeed", "hf", "lomo",
        "moonlight", "muon", "schedules",
    }  # fmt: skip
