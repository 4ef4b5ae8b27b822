# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A case of whole steps, on ranks that each have a part of its tensors."""

from __future__ import annotations

import copy
import ctypes
import threading
from collections.abc import Callable
from ctypes import c_void_p, pointer
from dataclasses import dataclass, field

import numpy as np
from driver import Operand
from stepc import errors
from stepc._mesh import Mesh, SimulatedWorld
from stepc._structures import Binding
from steps import Case, Launch, is_grad, set_fresh


@dataclass
class Sharded:
    """A case, the mesh it lies on and where each tensor lies: Dims or Flat.

    ``late`` of a tensor's number: the step before which it is bound, in which it has its
    first gradient. ``hypers`` of a step: those of each group from it on. ``places`` says
    where in its memory a rank has an operand: (rank, number, name, shape) -> as Operand.
    """

    case: Case
    mesh: Mesh
    placements: list
    late: dict = field(default_factory=dict)
    hypers: dict = field(default_factory=dict)
    places: Callable | None = None

    @property
    def world(self):
        return int(np.prod(self.mesh.sizes, dtype=int))

    def variants(self):
        """What ``--variant`` asks for: each tensor whole, and as it lies here."""
        wanted = set(self.case.variants())
        for tensor, placement in zip(self.case.tensors, self.placements, strict=True):
            plain = self.case.definition.variant(tensor, self.case.groups[tensor.group])
            request = placement.layout(self.mesh, 0, tensor.shape).request()
            wanted.add(f"{plain},{request}" if request else plain)
        return wanted

    def describe(self):
        placed = [repr(p)[:200] for p in self.placements]
        return f"{self.case.describe()}\n  {self.mesh}\n  " + "\n  ".join(placed)


class Events(Launch):
    """A launch in which groups' hyper-parameters change between steps."""

    def begin(self, step):
        for group, hypers in enumerate(self.sharded.hypers.get(step, ())):
            self.plan.set_hypers(
                group, tuple(hypers.get(h["name"], h["default"]) for h in self.manifest["hypers"])
            )


class WholeLaunch(Events):
    """The unsharded run."""

    def __init__(self, sharded, package):
        self.sharded = sharded
        super().__init__(sharded.case, package)


class RankCase:
    """The part of a case that one rank has, for :class:`LocalLaunch`."""

    def __init__(self, sharded, rank):
        self.__dict__ |= copy.copy(sharded.case).__dict__
        self.numbers = [
            number
            for number, placement in enumerate(sharded.placements)
            if placement.is_on(sharded.mesh, rank)
        ]
        self.tensors = [sharded.case.tensors[number] for number in self.numbers]
        # Threads of threads: a few are enough to have several.
        self.threads = sharded.case.threads if sharded.world <= 2 else 1


class LocalLaunch(Events):
    """One rank's plan. Operands are the rank's parts."""

    def __init__(self, sharded, rank, package, communicator):
        self.sharded, self.rank, self.communicator = sharded, rank, communicator
        super().__init__(RankCase(sharded, rank), package)

    def whole_dims(self, tensor, name):
        return whole_dims(self.case, tensor, name)

    def make_operands(self, tensor):
        whole = super().make_operands(tensor)
        index = next(i for i, other in enumerate(self.case.tensors) if other is tensor)
        number = self.case.numbers[index]
        placement, mesh = self.sharded.placements[number], self.sharded.mesh
        made = {}
        for name, operand in whole.items():
            ones = self.whole_dims(tensor, name)
            array = np.array(operand.view, order="C")
            if ones is not None:
                array = placement.cut(mesh, self.rank, tensor.shape, array, ones)
            places = self.sharded.places
            made[name] = Operand(
                array, **(places(self.rank, number, name, array.shape) if places else {})
            )
        return made

    def bind(self):
        self.plan.set_mesh(self.sharded.mesh.struct(self.rank), self.communicator)
        self.ids = [None] * len(self.case.tensors)
        self.bind_at(0)
        return self.ids

    def begin(self, step):
        super().begin(step)
        if step:
            self.bind_at(step)

    def bind_at(self, step):
        """The tensors that are bound before a step."""
        late, numbers = self.sharded.late, self.case.numbers
        chosen = [i for i, number in enumerate(numbers) if late.get(number, 0) == step]
        keep, bindings = [], (Binding * len(chosen))()
        for binding, index in zip(bindings, chosen, strict=True):
            self.describe(binding, index, keep)
        for index, identity in zip(chosen, self.plan.bind(bindings), strict=True):
            self.ids[index] = identity

    def describe(self, binding, index, keep):
        """Fills in one; ``keep`` holds what it points to."""
        tensor, row, mesh = self.case.tensors[index], self.operands[index], self.sharded.mesh
        made = {name: operand.dltensor() for name, operand in row.items()}
        pointers = {name: pointer(dl) for name, (dl, _) in made.items()}
        states = [n for n in row if n != "param" and not is_grad(n)]
        array = (c_void_p * max(len(states), 1))(
            *(ctypes.cast(pointers[name], c_void_p) for name in states)
        )
        placement = self.sharded.placements[self.case.numbers[index]]
        struct = placement.layout(mesh, self.rank, tensor.shape).struct(mesh)
        keep.append((made, pointers, array, struct))
        binding.group = tensor.group
        binding.param = ctypes.cast(pointers["param"], c_void_p)
        binding.grad = ctypes.cast(pointers["grad"], c_void_p)
        binding.states = ctypes.cast(array, c_void_p) if states else None
        binding.numStates = len(states)
        binding.count = tensor.count - 1
        keep.append(set_fresh(binding, tensor, states))
        binding.layout = ctypes.addressof(struct)
        binding.number = self.case.numbers[index] + 1

    def run(self):
        """Under the numbers that tensors have in the whole case."""
        named = {}
        for name, value in super().run().items():
            index, slash, rest = name.partition("/")
            known = slash and index[0] == "t" and index[1:].isdigit()
            named[f"t{self.case.numbers[int(index[1:])]}/{rest}" if known else name] = value
        return named


def whole_dims(case, tensor, name):
    """Dims of a state that are not the parameter's in that place: 1 in its rule, or another;
    None for a state of one element."""
    rule, _ = case.definition.rule(tensor.shape, case.groups[tensor.group])
    dims = next((s["dims"] for s in rule["states"] if s["name"] == name), rule["dims"])
    ones = {d - len(dims) for d, dim in enumerate(dims)
            if dim == "1" or dim != rule["dims"][d - len(dims)]}  # fmt: skip
    if rule["dims"] != dims and len(dims) <= 1 and not (dims and dims[0] == "*"):
        return None
    return {d for d in range(len(tensor.shape)) if d - len(tensor.shape) in ones}


def run_ranks(sharded, package, deadline_ms=60_000, launch=LocalLaunch):
    """The results of each rank, their counters and launches; raises what a rank raised."""
    world = SimulatedWorld(sharded.mesh, deadline_ms)
    results, raised = [None] * sharded.world, [None] * sharded.world

    def run(rank):
        try:
            own = launch(sharded, rank, package, world.communicator(rank))
            results[rank] = (own.run(), own.plan.info(), own)
        except (errors.StepcError, AssertionError) as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(sharded.world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank, error in enumerate(raised):
        if error is not None and not isinstance(error, errors.CommunicationError):
            raise AssertionError(f"rank {rank}: {error}") from error
    for rank, error in enumerate(raised):
        if error is not None:
            raise AssertionError(f"rank {rank}: {error}") from error
    return results


def gather(sharded, results):
    """The tensors of all ranks put together, under the names of the unsharded run.

    What several ranks have must have the same bits.
    """
    whole = {}
    for index, (tensor, placement) in enumerate(
        zip(sharded.case.tensors, sharded.placements, strict=True)
    ):
        ranks = [r for r in range(sharded.world) if placement.is_on(sharded.mesh, r)]
        group = sharded.case.groups[tensor.group]
        shapes = {"param": tensor.shape, **sharded.case.definition.states(tensor.shape, group)}
        for name, shape in shapes.items():
            key = f"t{index}/{name}"
            if key in results[ranks[0]][0]:
                parts = {rank: results[rank][0][key] for rank in ranks}
                whole[key] = gather_parts(sharded, index, name, shape, parts)
    for name, value in results[0][0].items():
        if ":" in name:
            for rank, result in enumerate(results):
                same = np.array_equal(result[0][name], value, equal_nan=True)
                assert same, f"{name} of rank {rank} is {result[0][name]}, of rank 0 {value}"
            whole[name] = value
    return whole


def gather_parts(sharded, index, name, shape, parts):
    """One array of one tensor; ``parts`` are the ranks'."""
    tensor, placement = sharded.case.tensors[index], sharded.placements[index]
    ones, key = whole_dims(sharded.case, tensor, name), f"t{index}/{name}"
    first = next(iter(parts.values()))
    if ones is None:
        for part in parts.values():
            assert part.tobytes() == first.tobytes(), f"{key} differs between ranks"
        return first
    array = np.zeros(shape, first.dtype)
    for rank, part in parts.items():
        placement.paste(sharded.mesh, rank, tensor.shape, array, part, ones)
    # What others wrote over a rank's part was the same.
    for rank, part in parts.items():
        again = placement.cut(sharded.mesh, rank, tensor.shape, array, ones)
        assert again.tobytes() == part.tobytes(), f"{key} differs between ranks"
    return array
