# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exchanges of ranks that share memory, and of ranks that could and do not."""

import contextlib
import os
from unittest import mock

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import _shared_memory, errors
from stepc._mesh import SUM_F64, ReduceCall
from stepc._shared_memory import SharedGroup
from stepc.torch.ranks import shared_memory as _shared
from stepc.torch.ranks.meshes import TorchMesh
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import TorchDispatchMode


class Spoken(TorchDispatchMode):
    """How many collectives of torch.distributed are called."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += func.namespace == "c10d"
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def exchanged():
    """What goes through shared memory."""
    found, own = [], {name: getattr(SharedGroup, name) for name in ("reduce", "start")}

    def noting(name):
        def call(self, what):
            found.append(name)
            return own[name](self, what)

        return call

    with mock.patch.multiple(SharedGroup, **{name: noting(name) for name in own}):
        yield found


def steps(group=None, **settings):
    """Parameters after steps of AdamW with zero."""
    torch.manual_seed(0)
    shapes = (9, 6), (5,), (300, 300)
    named = [(f"w{i}", torch.nn.Parameter(torch.randn(s))) for i, s in enumerate(shapes)]
    opt = st.AdamW(named, process_group=group, **settings)
    for step in range(3):
        torch.manual_seed(100 * dist.get_rank() * ("local" in settings.values()) + step)
        for _, param in named:
            param.grad = torch.randn(param.shape)
        opt.step()
    return opt, named


def apart(make):
    """What ``make`` gives over Gloo alone, in groups of their own."""
    with mock.patch.dict(os.environ, {"STEPC_SHARED_MEMORY": "0"}):
        return make(dist.new_group(list(range(dist.get_world_size()))))


@case
def a_step_speaks_to_nobody_else():
    for gradients in ("reduced", "local"):
        opt, named = steps(zero=1, gradients=gradients)
        for _, param in named:
            param.grad = torch.ones_like(param)
        with Spoken() as spoken, exchanged() as found:
            opt.step()
        assert spoken.calls == 0, gradients
        assert "start" in found, gradients


@case
def the_bits_are_those_of_gloo():
    """Transfers move bytes, and gradients are added by the runtime."""
    for gradients in ("reduced", "local"):
        _, named = steps(zero=1, gradients=gradients)
        with exchanged() as found:
            _, others = apart(lambda g: steps(g, zero=1, gradients=gradients))  # noqa: B023
        assert found == []
        for (name, param), (_, other) in zip(named, others, strict=True):
            same_bits(param, other, f"{gradients}: {name}")


@case
def one_rank_decides_for_all():
    """One that is told not to, cannot make the memory, or does not find it."""
    world = dist.get_world_size()
    told = {"STEPC_SHARED_MEMORY": "0"} if dist.get_rank() == 2 else {}
    with mock.patch.dict(os.environ, told):
        group = dist.new_group(list(range(world)))
        steps(group, zero=1, gradients="reduced")
        assert _shared.shared_group(group) is None

    def fails(*_):
        raise errors.StepcError("no memory")

    for rank in (0, 3):
        group = dist.new_group(list(range(world)))
        there = dist.get_rank() == rank
        with mock.patch.object(_shared, "SharedGroup", fails if there else SharedGroup):
            steps(group, zero=1, gradients="reduced")
            assert _shared.shared_group(group) is None


@case
def groups_of_meshes_have_their_own():
    """Norms over both axes, statistics over each."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)

    def made():
        return DTensor.from_local(torch.randn(3, 2), mesh, [Shard(0), Shard(1)])

    param = torch.nn.Parameter(made())
    opt = st.came.CAME([param], lr=1e-3)
    param.grad = made()
    opt.step()
    param.grad = made()
    with Spoken() as spoken, exchanged() as found:
        opt.step()
    assert spoken.calls == 0
    assert found.count("reduce") >= 2


def order_of(calls, by_torch=()):
    """In which order sums over the first axis (1) and the second (2) of a mesh are begun, where
    they are asked for so; ``by_torch``: over these axes none is through shared memory."""
    mesh = TorchMesh([init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))])
    groups = {mesh._group(axes): axes for axes in (1, 2)}
    values = {axes: torch.ones(3, dtype=torch.float64) for axes in calls}
    begun, all_reduce, shared_of = [], mesh._all_reduce, mesh._shared

    def by_gloo(call, group):
        begun.append(call.axes)
        return all_reduce(call, group)

    def reduce(self, own):
        begun.extend(call.axes for call in own)
        return plain(self, own)

    plain = SharedGroup.reduce
    with (
        mock.patch.object(mesh, "_all_reduce", by_gloo),
        mock.patch.object(
            mesh, "_shared", lambda g: None if groups[g] in by_torch else shared_of(g)
        ),
        mock.patch.object(SharedGroup, "reduce", reduce),
    ):
        mesh._reduce([
            ReduceCall(axes, SUM_F64, 0, values[axes].data_ptr(), 3) for axes in calls
        ])  # fmt: skip
    assert all(value.tolist() == [2.0] * 3 for value in values.values()), values
    return begun


@case
def sums_through_shared_memory_come_last_and_in_order():
    """They are waited for: nobody's other sums are to wait for them, nor they for each other."""
    assert order_of([1, 2]) == order_of([2, 1]) == [1, 2]
    assert order_of([1, 2], by_torch=[2]) == order_of([2, 1], by_torch=[2]) == [2, 1]
    # Ranks that would wait for each other in a ring.
    assert order_of([1, 2] if dist.get_rank() in (1, 2) else [2, 1]) == [1, 2]


@case
def a_group_that_is_made_anew_gets_new_memory():
    group = dist.new_group(list(range(dist.get_world_size())))
    first = _shared.shared_group(group)
    assert first is not None
    assert _shared.shared_group(group) is first
    # As after destroy_process_group, where a new group may have the name of an old one.
    _shared._made[group.group_name] = object(), first
    again = _shared.shared_group(group)
    assert again not in (None, first)
    words = torch.tensor([dist.get_rank()], dtype=torch.int64)
    _shared.all_reduce(words, dist.ReduceOp.MAX, group)
    assert words.tolist() == [dist.get_world_size() - 1]


@case
def a_single_rank_and_other_backends_have_none():
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    assert _shared.shared_group(alone) is None
    other = mock.Mock()
    other._get_backend.return_value.name.return_value = "mpi"
    assert not _shared._goes_over_gloo(other)


@case
def errors_have_the_words_of_the_runtime():
    try:
        _shared_memory.SharedGroup([0, 1], 1, "/proc/self/fd/0 0")
        raise AssertionError("it was opened")
    except errors.StepcError as error:
        assert "is not that of the group" in str(error), error


if __name__ == "__main__":
    main()
