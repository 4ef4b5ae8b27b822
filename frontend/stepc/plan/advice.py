# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which stage, encoding of states, master and place fit a machine: a ladder of plans, of which the
first that fits asks least of who trains.

States in memory come before those in the memory of a device's host, and these before states on
disk; float32 before bfloat16 before codes; then stages as DeepSpeed's ladder has them, 0, 1, 2 and
3, which is ``fully_shard``; then a whole master before the bits that a parameter lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .. import errors
from .._codes import Codes
from . import disk
from .failure import PlanError
from .kept import MASTERS, Kept
from .machines import Machine
from .models import Model
from .package import Source, open_source
from .planning import Plan, Request, make
from .timeline import MEMORY as KERNELS

LAYOUTS = {"ddp": 0, "zero1": 1, "zero2": 2, "fsdp2": 3}  # and stages
STATES = (None, "bf16", "q8")
MEMORY, HOST, DISK = "memory", "host", "disk"
BUS = "bus"


@dataclass(frozen=True)
class Budget:
    """Of one rank: bytes of ``memory`` that parameters, gradients and states may take, and bytes a
    second of it, of its link, of its disk, and of the bus to the host's memory, each way."""

    memory: float
    memory_bandwidth: float
    link_bandwidth: float
    disk_bandwidth: float
    bus_bandwidth: float


# A server's share of 64 GiB, whose memory was measured with two cores, 100 Gbit/s and one NVMe
# disk; an H100 with 400 Gbit/s (example-machine.json), the same disk, and PCIe 5 with 16 lanes.
DEFAULTS = {
    "cpu": Budget(64 * 2**30, 50e9, 12.5e9, 3e9, 50e9),
    "cuda": Budget(80e9, 3.35e12, 50e9, 3e9, 50e9),
}


@dataclass
class Rung:
    """A way to train. Bytes of a rank: ``total`` is the sum of parameters, gradients, states in
    memory, windows and what else a plan counts; ``elsewhere``, of states on disk or in the memory
    of a device's host, is not in it. ``seconds`` of a step: of kernels by memory's bandwidth, of
    what is sent by the link's, of states elsewhere both ways; windows are read and written while
    kernels run, and nothing else at once. ``bound``: the longest. ``refused``: why there is no such
    step, "" where there is; then bytes are 0."""

    layout: str
    state: str | None
    master: str | None
    place: str
    parameters: int = 0
    gradients: int = 0
    states: int = 0
    windows: int = 0
    other: int = 0
    total: int = 0
    elsewhere: int = 0
    fits: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    bound: str = ""
    refused: str = ""
    constructor: str = ""


@dataclass
class Advice:
    """``first``: the first rung that fits, or None."""

    definition: str
    model: Model
    machine: Machine
    device: str
    budget: Budget
    rungs: list[Rung]

    @property
    def first(self) -> Rung | None:
        return next((rung for rung in self.rungs if rung.fits), None)


def advise(source: Source, model: Model, machine: Machine, request: Request, budget: Budget,
           device: str = "cpu", layouts: tuple[str, ...] = ()) -> Advice:  # fmt: skip
    """``request``: its ``state`` and ``master``, and ``layouts``, are those of all rungs where they
    are given. PlanError or StepcError where no plan can be made."""
    for layout in layouts:
        if layout not in LAYOUTS:
            raise PlanError(f"layout is '{layout}', --advise knows: {', '.join(LAYOUTS)}")
    machine = _timed(machine, budget)
    own = layouts or (tuple(LAYOUTS) if machine.ranks > 1 else ("ddp",))
    states = (request.state,) if request.state else STATES
    kinds = itertools.product(states, own, _masters(model, request.master))
    found: dict[str, list[Rung]] = {place: [] for place in _places(device)}
    name, failed = "", []
    for state, layout, master in kinds:
        asked = replace(request, layout=layout, state=state, master=master)
        try:
            plan = make(source, model, machine, asked)
        except (PlanError, errors.StepcError) as error:
            failed.append(error)
            for place, rungs in found.items():
                rungs.append(Rung(layout, state, master, place, refused=str(error)))
            continue
        name = plan.package.name
        for rung in _rungs(plan, budget, device, source):
            found[rung.place].append(rung)
    if not name:
        raise failed[0]
    rungs = list(itertools.chain.from_iterable(found.values()))
    return Advice(name, model, machine, device, budget, rungs)


def _places(device: str) -> tuple[str, ...]:
    return (MEMORY, HOST, DISK) if device == "cuda" else (MEMORY, DISK)


def _timed(machine: Machine, budget: Budget) -> Machine:
    """With the budget's figures where the machine's own are not known."""
    return replace(
        machine,
        inside=machine.inside or budget.link_bandwidth,
        between=machine.between or budget.link_bandwidth,
        memory=machine.memory or budget.memory_bandwidth,
    )


def _masters(model: Model, given: str | None) -> tuple[str | None, ...]:
    """Of 16 bits beside a parameter of f16 no f32 can be made."""
    dtypes = {tensor.dtype for tensor in model.tensors}
    if given or not dtypes & {"bf16", "f16"}:
        return (given,)
    return ("f32",) if "f16" in dtypes else tuple(MASTERS)


# --- One plan -----------------------------------------------------------------


def _rungs(plan: Plan, budget: Budget, device: str, source: Source) -> Iterator[Rung]:
    """With states in memory, and elsewhere. Windows for a device are in its host's memory."""
    request, memory, stored = plan.request, plan.memory, disk.of_plan(plan)
    lanes = {True: 0.0, False: 0.0}
    for event in plan.events():
        lanes[event.lane == KERNELS] += event.seconds
    for place in _places(device):
        rung = Rung(request.layout, request.state, request.master, place)
        rung.elsewhere = 0 if place == MEMORY else stored.states
        rung.windows = stored.windows if place == DISK and device == "cpu" else 0
        rung.parameters, rung.gradients = memory["parameters"], memory["gradients"]
        states = sum(memory["states"].values())
        rung.states = states - rung.elsewhere
        rung.other = memory["total"] - rung.parameters - rung.gradients - states
        rung.other += plan.largest_unit
        rung.total = memory["total"] + plan.largest_unit - rung.elsewhere + rung.windows
        rung.seconds = {MEMORY: lanes[True], "link": lanes[False]}
        if place == DISK:
            rung.seconds[DISK] = stored.moved / budget.disk_bandwidth
        if place == HOST:  # half of it each way
            rung.seconds[BUS] = stored.moved / 2 / budget.bus_bandwidth
        rung.bound = max(rung.seconds, key=rung.seconds.get)
        own = max(rung.seconds[MEMORY], rung.seconds.get(DISK, 0.0), rung.seconds.get(BUS, 0.0))
        rung.seconds["step"] = own + rung.seconds["link"]
        rung.refused = _refusal(place, stored)
        rung.fits = not rung.refused and rung.total <= budget.memory
        rung.constructor = constructor(plan.package.name, source, rung, request.gradients)
        yield rung


def _refusal(place: str, stored: disk.OnDisk) -> str:
    if place == MEMORY:
        return ""
    return "" if stored.states else "no state is large enough to lie elsewhere"


# --- The line -----------------------------------------------------------------

# Of the zoo's definitions; others are stepc.torch.Optimizer's. So are those of stepc.torch.lomo,
# whose classes have their authors' arguments alone: no master, no state_dtype, no place.
CLASSES = {
    "adadelta": "Adadelta", "adafactor": "hf.Adafactor", "adagrad": "Adagrad",
    "adam": "Adam", "adamax": "Adamax", "adamw": "AdamW",
    "apollo": "APOLLOAdamW", "asgd": "ASGD", "came": "came.CAME", "cpu_adam": "colossal.CPUAdam",
    "deepspeed_lamb": "colossal.Lamb", "dion": "Dion", "fused_adam": "colossal.FusedAdam",
    "fused_lamb": "apex.FusedLAMB", "galore_adafactor": "GaLoreAdafactor",
    "galore_adamw": "GaLoreAdamW", "gram_muon": "GramMuon", "jordan_muon": "muon.Muon",
    "lars": "LARS", "lion": "Lion", "moonlight_muon": "moonlight.Muon",
    "muon": "Muon", "nadam": "NAdam", "normuon": "NorMuon", "radam": "RAdam",
    "rmsprop": "RMSprop", "rprop": "Rprop", "sgd": "SGD", "shampoo": "Shampoo", "sm3": "SM3",
    "soap": "SOAP", "sophia": "SophiaG", "torch_adafactor": "Adafactor",
}  # fmt: skip
_DTYPES = {
    "f32": "torch.float32",
    "bf16": "torch.bfloat16",
    "f16": "torch.float16",
    "q8": '"q8"',
    "f8_e4m3": '"f8_e4m3"',
    "q4": '"q4"',
}
_PARAMETERS = {"moonlight_muon": "muon_params=model.parameters()"}  # in its class
_ZERO = {1: 'zero=stepc.torch.Zero(1, gradients="{}")', 2: "zero=stepc.torch.Zero(2)"}


def constructor(name: str, source: Source, rung: Rung, gradients: str) -> str:
    """What is written in a program, one line; of fragments, options and hyper-parameters nothing.
    ``gradients``: of zero1."""
    stage = LAYOUTS[rung.layout]
    is_ours = name in CLASSES and source == replace(open_source(name), fragments=source.fragments)
    words = ["model.parameters()", f'"{source.name}"']
    if is_ours:
        words = [_PARAMETERS.get(name, "model.parameters()")]
    if stage in _ZERO:
        words.append(_ZERO[stage].format(gradients))
    if rung.state:
        words.append(f"state_dtype={_state_dtype(rung.state)}")
    if rung.master:
        words.append(f'master="{rung.master}"')
    if rung.place == DISK:
        words.append('place=stepc.torch.Place("disk", path="/mnt/nvme")')
    if rung.place == HOST:
        words.append('place=stepc.torch.Place("host")')
    made = f"stepc.torch.{CLASSES[name] if is_ours else 'Optimizer'}({', '.join(words)})"
    return f"torch.distributed.fsdp.fully_shard(model); {made}" if stage == 3 else made


def _state_dtype(state: str) -> str:
    named = {
        name: f"stepc.torch.{kind}" if isinstance(kind, Codes) else _DTYPES.get(kind, kind)
        for name, kind in Kept.parse(state, None).states
    }
    inside = ", ".join(f'"{name}": {kind}' for name, kind in named.items())
    return named.get("", "{" + inside + "}")
