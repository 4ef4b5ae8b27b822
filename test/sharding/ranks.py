# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A case of whole steps, on ranks that each have a part of its tensors."""

from __future__ import annotations

import copy
import ctypes
import threading
from ctypes import c_void_p, pointer
from dataclasses import dataclass

import numpy as np
from driver import Operand, Plan
from oracle import store
from placement import Dims
from stepc import errors
from stepc._mesh import Mesh, SimulatedWorld
from stepc._runtime import Binding
from steps import Case, Launch


@dataclass
class Sharded:
    """A case, the mesh it lies on and where each tensor lies: Dims or Flat."""

    case: Case
    mesh: Mesh
    placements: list

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


class RankCase:
    """The part of a case that one rank has, for :class:`LocalLaunch`."""

    def __init__(self, sharded, rank):
        self.__dict__ |= copy.copy(sharded.case).__dict__
        self.sharded, self.rank = sharded, rank
        self.threads = 1


class LocalLaunch(Launch):
    """One rank's plan. Operands are the rank's parts."""

    def __init__(self, sharded, rank, package, communicator):
        self.sharded, self.rank, self.communicator = sharded, rank, communicator
        super().__init__(RankCase(sharded, rank), package)

    def whole_dims(self, tensor, name):
        """Dims of a state that are 1 in its rule, whatever the parameter's extent."""
        rule, _ = self.case.definition.rule(tensor.shape, self.case.groups[tensor.group])
        dims = next((s["dims"] for s in rule["states"] if s["name"] == name), rule["dims"])
        ones = {d - len(dims) for d, dim in enumerate(dims) if dim == "1"}
        if rule["dims"] != dims and len(dims) <= 1 and not (dims and dims[0] == "*"):
            return None  # a state of one element
        return {d for d in range(len(tensor.shape)) if d - len(tensor.shape) in ones}

    def placement_of(self, tensor):
        return self.sharded.placements[self.sharded.case.tensors.index(tensor)]

    def make_operands(self, tensor):
        whole = super().make_operands(tensor)
        placement = self.placement_of(tensor)
        made = {}
        for name, operand in whole.items():
            ones = self.whole_dims(tensor, name)
            array = np.array(operand.view, order="C")
            if ones is not None:
                mesh = self.sharded.mesh
                array = placement.cut(mesh, self.rank, tensor.shape, array, ones)
            made[name] = Operand(array)
        return made

    def bind(self):
        sharded, keep = self.sharded, []
        self.plan.set_mesh(sharded.mesh.struct(self.rank), self.communicator)
        bindings = (Binding * len(self.case.tensors))()
        for binding, tensor, row in zip(bindings, self.case.tensors, self.operands, strict=True):
            made = {name: operand.dltensor() for name, operand in row.items()}
            pointers = {name: pointer(dl) for name, (dl, _) in made.items()}
            states = [n for n in row if n != "param" and not n.startswith("grad")]
            array = (c_void_p * max(len(states), 1))(
                *(ctypes.cast(pointers[name], c_void_p) for name in states)
            )
            layout = self.placement_of(tensor).layout(sharded.mesh, self.rank, tensor.shape)
            struct = layout.struct(sharded.mesh)
            keep.append((made, pointers, array, struct))
            binding.group = tensor.group
            binding.param = ctypes.cast(pointers["param"], c_void_p)
            binding.grad = ctypes.cast(pointers["grad"], c_void_p)
            binding.states = ctypes.cast(array, c_void_p) if states else None
            binding.numStates = len(states)
            binding.count, binding.fresh = tensor.count - 1, int(tensor.fresh)
            binding.layout = ctypes.addressof(struct)
        return self.plan.bind(bindings)


def run_ranks(sharded, package):
    """The results of each rank, and their counters; raises what a rank raised."""
    world = SimulatedWorld(sharded.mesh)
    results, raised = [None] * sharded.world, [None] * sharded.world

    def run(rank):
        try:
            launch = LocalLaunch(sharded, rank, package, world.communicator(rank))
            results[rank] = (launch.run(), launch.plan.info(), launch)
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
        launch = results[0][2]
        group = sharded.case.groups[tensor.group]
        shapes = {"param": tensor.shape, **sharded.case.definition.states(tensor.shape, group)}
        for name, shape in shapes.items():
            key = f"t{index}/{name}"
            if key not in results[0][0]:
                continue
            ones = launch.whole_dims(tensor, name)
            parts = [result[0][key] for result in results]
            if ones is None:
                for part in parts[1:]:
                    assert part.tobytes() == parts[0].tobytes(), f"{key} differs between ranks"
                whole[key] = parts[0]
                continue
            array = np.zeros(shape, parts[0].dtype)
            for _ in range(2):  # the second time: nothing that others wrote has changed
                before = array.copy()
                for rank, part in enumerate(parts):
                    placement.paste(sharded.mesh, rank, tensor.shape, array, part, ones)
            assert before.tobytes() == array.tobytes(), f"{key} differs between ranks"
            for rank, part in enumerate(parts):
                again = placement.cut(sharded.mesh, rank, tensor.shape, array, ones)
                assert again.tobytes() == part.tobytes(), f"{key} differs between ranks"
            whole[key] = array
    for name, value in results[0][0].items():
        if ":" in name:
            for rank, result in enumerate(results):
                same = np.array_equal(result[0][name], value, equal_nan=True)
                assert same, f"{name} of rank {rank} is {result[0][name]}, of rank 0 {value}"
            whole[name] = value
    return whole


def whole_everywhere(case, axes=("dp",), sizes=(2,)):
    """Every tensor replicated."""
    return Sharded(case, Mesh(tuple(axes), tuple(sizes)), [Dims({}) for _ in case.tensors])


__all__ = ["Plan", "Sharded", "gather", "run_ranks", "store", "whole_everywhere"]
