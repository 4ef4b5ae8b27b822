# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole steps on simulated ranks, from each rank's gradient to all ranks' parameters, beside the
step of one process whose gradient is the sum."""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_int64, c_void_p, pointer
from dataclasses import dataclass, field

import numpy as np
from definitions import Definition
from driver import Operand, compile_package
from oracle import store, widen
from stepc import _library, _runtime, _structures, errors
from stepc._mesh import EntryStruct, Layout, Mesh, SimulatedWorld
from steps import Group


@dataclass
class Entry:
    """How a tensor lies outside of the step. ``kind``: "flat", "rows" and "owned" over
    ``whole``, "" where nothing is cut; ``partial``: axes over which ranks have addends;
    ``wire``: in which type, None: the gradient's."""

    kind: str
    whole: tuple = ()
    partial: tuple = ()
    wire: str | None = None
    divisor: float = 1.0
    before: bool = False

    def request(self, rank):
        axes = "+".join(self.whole)
        words = {"flat": [f"layout.flat={axes}", f"layout.whole={axes}"],
                 "rows": [f"layout.{-rank}={axes}", f"layout.whole={axes}", f"rank={rank}"],
                 "owned": [f"layout.owned={axes}"], "": []}[self.kind]  # fmt: skip
        words += [f"layout.partial={'+'.join(self.partial)}"] * bool(self.partial)
        words += [f"layout.wire={self.wire}"] * bool(self.partial and self.wire)
        return ",".join(words)

    def layout(self, mesh, shape):
        """The structure of the step's layout, None where the tensor is whole in it."""
        if self.kind == "flat":
            return Layout(shape, flat=self.whole, begin=-1).struct(mesh)
        if self.kind == "rows":
            return Layout(shape, dims=((0, self.whole),), start=(0,) * len(shape)).struct(mesh)
        return None

    def struct(self, mesh):
        entry = EntryStruct(ctypes.sizeof(EntryStruct))
        entry.wholeAxes, entry.partialAxes = mesh.bits(self.whole), mesh.bits(self.partial)
        entry.divisor, entry.divideBefore = self.divisor, self.before
        entry.owned = self.kind == "owned"
        if self.wire is not None and self.partial:
            entry.wireType = _structures.DATA_TYPES[self.wire]
        return entry


@dataclass
class Tensor:
    """``grads`` of each step: a gradient of each rank, or None where nobody has one."""

    shape: tuple
    param: np.ndarray
    storages: tuple  # of the parameter and the gradient
    entry: Entry
    grads: list = field(default_factory=list)

    @property
    def landed(self):
        """The type in which the kernel has the gradient."""
        if not self.entry.partial:
            return self.storages[1]
        return "f64" if self.storages[1] == "f64" else "f32"


@dataclass
class Model:
    """``order`` of each step: None for stepcStep, or of each rank the order in which gradients
    come."""

    definition: Definition
    hypers: dict
    options: dict
    mesh: Mesh
    tensors: list
    buckets: tuple
    orders: list
    kept: str = ""  # how bf16 is kept: "master=f32", "rounding=stochastic"
    ahead: list | None = None  # of each step, whether a backward pass brings what crosses before it

    @property
    def world(self):
        return int(np.prod(self.mesh.sizes, dtype=int))

    def spec(self, tensor, grad):
        items = [f"param={tensor.storages[0]}", f"grad={grad}"] + [self.kept] * bool(self.kept)
        return ",".join([*items, *(f"option.{k}={str(v).lower()}" for k, v in self.options.items()
                                   if isinstance(v, bool))])  # fmt: skip

    def variants(self):
        for tensor in self.tensors:
            yield self.spec(tensor, tensor.landed)
            request = tensor.entry.request(len(tensor.shape))
            yield ",".join(filter(None, [self.spec(tensor, tensor.storages[1]), request]))

    def describe(self):
        lines = [
            f"{self.definition.path} {self.definition.flags} {self.definition.fragments}",
            f"{self.mesh} buckets {self.buckets} {self.kept}",
            f"{self.hypers} {self.options}",
        ]
        lines += [f"{t.shape} {t.storages} {t.entry}" for t in self.tensors]
        return "\n  ".join(lines)


# --- What one process computes --------------------------------------------------


def round_to(values, storage):
    """Numbers of f32 or f64 as that storage has them, in the type they had."""
    with np.errstate(over="ignore", invalid="ignore"):
        if storage == "f16":
            return values.astype(np.float16).astype(values.dtype)
        if storage == "bf16":
            return widen(store(to_odd(values), "bf16")).astype(values.dtype)
        return values.astype({"f32": np.float32, "f64": np.float64}[storage]).astype(values.dtype)


def to_odd(values):
    """As f32, what is between two of them as the odd one: to be rounded once more without harm."""
    near = values.astype(np.float32)
    beyond = np.isfinite(near) & (np.abs(near.astype(np.float64)) > np.abs(values))
    below = np.where(beyond, np.nextafter(near, np.float32(0)), near)
    inexact = np.isfinite(below) & (below.astype(np.float64) != values)
    return (below.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)


def add_up(addends, wire, divisor, before, after):
    """The sum in the order of the ranks, of addends rounded to the wire."""
    kind = addends[0].dtype.type
    with np.errstate(all="ignore"):
        if before:
            addends = [addend / kind(divisor) for addend in addends]
        total = round_to(addends[0], wire)
        for addend in addends[1:]:
            total = total + round_to(addend, wire)
        return total / kind(divisor) if after else total


def group_of(mesh, rank, axes):
    """The ranks that differ from this one in these axes alone, in order."""
    own = mesh.coordinates(rank)
    fixed = [k for k, name in enumerate(mesh.names) if name not in axes]
    return [r for r in range(int(np.prod(mesh.sizes, dtype=int)))
            if all(mesh.coordinates(r)[k] == own[k] for k in fixed)]  # fmt: skip


def landed(model, tensor, grads):
    """The gradient that the step is of: the sum over the axes that are cut, then over others."""
    entry, mesh = tensor.entry, model.mesh
    if not entry.partial:
        return grads[0]
    wide = np.float64 if tensor.landed == "f64" else np.float32
    values = [widen(g).astype(wide) if g.dtype == np.uint16 else g.astype(wide) for g in grads]
    wire = entry.wire or tensor.storages[1]
    rounds = [
        axes
        for axes in (
            tuple(a for a in entry.partial if a in entry.whole),
            tuple(a for a in entry.partial if a not in entry.whole),
        )
        if axes
    ]
    for number, axes in enumerate(rounds):
        first, last = number == 0, number == len(rounds) - 1
        divides = entry.divisor != 1
        values = [
            add_up([values[r] for r in group_of(mesh, rank, axes)], wire, entry.divisor,
                   divides and entry.before and first, divides and not entry.before and last)
            for rank in range(model.world)
        ]  # fmt: skip
    return values[0]


class Run:
    """A plan of one rank, or, without a communicator, of the one process."""

    def __init__(self, model, package, communicator=None, rank=0):
        self.model, self.rank, self.is_alone = model, rank, communicator is None
        self.plan = self.make_plan(package)
        hypers = package.manifest["hypers"]
        values = tuple(model.hypers.get(h["name"], h["default"]) for h in hypers)
        self.plan.add_group(dict(model.options), values)
        if communicator is not None:
            self.plan.set_mesh(model.mesh.struct(rank), communicator)
            self.plan.set_buckets(*model.buckets)
        self.params = []
        self.grads = [None] * len(model.tensors)
        self.keep = []
        self.ids = self.bind()

    def make_plan(self, package):
        return _runtime.Plan(package, threads=1 + self.rank % 2)

    def make_operand(self, values, storage):
        """An operand and its DLTensor."""
        made = Operand(values)
        tensor, borrowed = made.dltensor()
        self.keep.append(borrowed)
        return made, tensor

    def bind(self):
        bindings = (_structures.Binding * len(self.model.tensors))()
        for number, (binding, tensor) in enumerate(zip(bindings, self.model.tensors, strict=True)):
            own, param = self.make_operand(tensor.param.copy(), tensor.storages[0])
            self.params.append(own)
            self.keep.append(param)
            binding.name = f"t{number}".encode()
            binding.param = ctypes.cast(pointer(param), c_void_p)
            grad = tensor.landed if self.is_alone else tensor.storages[1]
            binding.gradDtype = _structures.DATA_TYPES[grad]
            binding.number = number + 1
            if not self.is_alone:
                layout = tensor.entry.layout(self.model.mesh, tensor.shape)
                entry = tensor.entry.struct(self.model.mesh)
                self.keep.append((layout, entry))
                binding.layout = None if layout is None else ctypes.addressof(layout)
                binding.entry = ctypes.addressof(entry)
        return self.plan.bind(bindings)

    def set_grads(self, step):
        """Returns the numbers of tensors that have one."""
        named = []
        for number, tensor in enumerate(self.model.tensors):
            own = tensor.grads[step]
            if own is not None:
                own = landed(self.model, tensor, own) if self.is_alone else own[self.rank]
                storage = tensor.landed if self.is_alone else tensor.storages[1]
                self.grads[number], made = self.make_operand(np.array(own), storage)
                named.append(number)
            else:
                made = None
            self.plan.set_grad(self.ids[number], made)
        return named

    def step(self, step):
        named = self.set_grads(step)
        order = self.model.orders[step]
        if self.is_alone or order is None:
            self.plan.step()
            return
        ready = [number for number in order[self.rank] if number in named]
        if self.model.ahead and self.model.ahead[step]:
            brought = [number for number in ready if self.model.tensors[number].entry.partial]
            self.plan.pass_begin()
            self.tell(brought, step)
            self.plan.pass_end()
            for number in brought:
                self.plan.set_grad(self.ids[number], None)
            ready = [number for number in ready if number not in brought]
        self.plan.step_begin()
        self.tell(ready, step)
        self.plan.step_end()
        self.plan.forget_grads()

    def tell(self, ready, step):
        while ready:
            some = ready[: 1 + (step + self.rank) % 3]
            self.plan.grad_ready([self.ids[number] for number in some])
            for number in some:  # Freed: what is there then is nobody's gradient.
                self.spoil(number)
            ready = ready[len(some) :]

    def spoil(self, number):
        """Only what crosses is copied, or used, when it comes."""
        mesh, entry = self.model.mesh, self.model.tensors[number].entry
        if len(group_of(mesh, self.rank, entry.partial)) > 1:
            view = self.grads[number].view
            view[...] = 0x7FC0 if view.dtype == np.uint16 else np.nan

    def states(self):
        """Of each tensor by name, the rank's part; none where another rank owns it."""
        found = []
        group = Group(self.model.hypers, self.model.options)
        for tensor, number in zip(self.model.tensors, self.ids, strict=True):
            names = self.model.definition.states(tensor.shape, group)
            try:
                found.append({name: self.state(number, name) for name in names})
            except errors.StatusError:
                assert tensor.entry.kind == "owned"
                found.append({})
        return found

    def state(self, number, name):
        out = _structures.DLTensor()
        lib = self.plan._lib
        lib.stepcPlanGetState.restype = ctypes.c_int32
        status = lib.stepcPlanGetState(
            self.plan._handle, c_int64(number), name.encode(), ctypes.byref(out)
        )
        _library.check(lib, status)
        shape = tuple(out.shape[i] for i in range(out.ndim))
        kind = {(2, 32): np.float32, (2, 64): np.float64}[out.dtype.code, out.dtype.bits]
        size = int(np.prod(shape, dtype=int))
        if not size:
            return np.zeros(shape, kind)
        return self.read(out.data, np.zeros(shape, kind))

    def read(self, address, like):
        kept = (ctypes.c_char * like.nbytes).from_address(address)
        return np.frombuffer(kept, like.dtype).reshape(like.shape).copy()


# --- Comparison -------------------------------------------------------------------


def bits(array):
    """To compare: any NaN is any other."""
    array = widen(array) if array.dtype == np.uint16 else array
    return np.where(np.isnan(array), np.nan, array).tobytes()


def part_of(tensor, rule, name, whole, begin, end):
    """What of a state of the whole tensor belongs to these elements."""
    dims = next(state["dims"] for state in rule["states"] if state["name"] == name)
    if dims == rule["dims"]:
        return whole.reshape(-1)[begin:end]
    # What the rule calls dim 0: leading dims are one name.
    first = rule["dims"][max(len(rule["dims"]) - len(tensor.shape), 0)]
    if tensor.entry.kind != "rows" or first not in dims or not whole.size:
        return whole.reshape(-1)
    row = max(int(np.prod(tensor.shape[1:], dtype=int)), 1)
    return whole[begin // row : -(-end // row)].reshape(-1)


def compare(model, run, alone):
    """What differs first between a rank and the one process; "" for nothing."""
    whole = alone.states()
    for number in range(len(model.tensors)):
        if bits(run.params[number].view) != bits(alone.params[number].view):
            return f"rank {run.rank}: parameter {number} differs"
        if run.plan.count(run.ids[number]) != alone.plan.count(alone.ids[number]):
            return f"rank {run.rank}: tensor {number} has another count"
    for number, (tensor, own) in enumerate(zip(model.tensors, run.states(), strict=True)):
        begin, end = run.plan.part(run.ids[number])
        rule, _ = model.definition.rule(tensor.shape, Group(model.hypers, model.options))
        for name, state in own.items():
            expected = part_of(tensor, rule, name, whole[number][name], begin, end)
            if bits(state) != bits(expected):
                return f"rank {run.rank}: state '{name}' of tensor {number} differs"
    return ""


def run_alone(model, package):
    alone = Run(model, package)
    for step in range(len(model.orders)):
        alone.step(step)
    return alone


def run_model(model, package, deadline_ms=60_000):
    """What differs; raises what a rank raised."""
    world = SimulatedWorld(model.mesh, deadline_ms)
    runs, raised = [None] * model.world, []

    def work(rank):
        try:
            runs[rank] = Run(model, package, world.communicator(rank), rank)
            for step in range(len(model.orders)):
                runs[rank].step(step)
        except Exception as error:  # said by the test's own thread
            raised.append((rank, error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(model.world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank, error in sorted(raised, key=lambda one: isinstance(one[1], errors.StatusError)):
        raise AssertionError(f"rank {rank}: {error}\n{model.describe()}") from error
    alone = run_alone(model, package)
    return next(filter(None, (compare(model, run, alone) for run in runs)), "")


class Packages:
    """A package of each definition, with the variants of all models that are prepared: but for
    those that keep bf16 in another way, which a binding without states does not tell apart."""

    def __init__(self, folder):
        self.folder, self.loaded = folder, {}

    @staticmethod
    def key(model):
        return model.definition.key(), str(model.options), model.kept

    def prepare(self, models):
        wanted = {}
        for model in models:
            _, variants = wanted.setdefault(self.key(model), (model.definition, set()))
            variants.update(model.variants())
        for number, (key, (definition, variants)) in enumerate(wanted.items()):
            data = self.compile(definition, variants, f"package{number}")
            self.loaded[key] = _runtime.Package.from_bytes(data)

    def compile(self, definition, variants, name):
        return compile_package(
            definition.path, self.folder, name,
            [*definition.arguments(), *(f"--variant={spec}" for spec in sorted(variants))],
        )  # fmt: skip

    def get(self, model):
        return self.loaded[self.key(model)]
