# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounds of a world over NCCL's double, on devices of the driver's double."""

import ctypes
import math
from ctypes import c_void_p

import numpy as np
import pytest
from nccl_double import (
    MAX_I64,
    SUM_F64,
    World,
    destroy,
    get_unique_id,
    groups_of,
    make_worlds,
    run_ranks,
)

COUNTS = [0, 1, 2, 5, 1000]
NOT_READY = 600


def values(rank, count, reduction):
    rng = np.random.default_rng([rank, count, reduction])
    if reduction == MAX_I64:
        return rng.integers(-(2**62), 2**62, count)
    return rng.standard_normal(count) * 10.0 ** rng.integers(-5, 5, count)


def require_reduced(found, ranks, count, reduction):
    parts = [values(rank, count, reduction) for rank in ranks]
    if reduction == MAX_I64:
        assert np.array_equal(found, np.max(parts, axis=0))
    elif len(ranks) <= 2:
        # There is one order.
        assert np.array_equal(found, np.sum(parts, axis=0))
    else:
        exact = [math.fsum(column) for column in zip(*parts, strict=True)]
        bound = len(ranks) * 2.0**-53 * np.sum(np.abs(parts), axis=0)
        assert np.all(np.abs(found - exact) <= bound)


def run_round(world, sizes):
    """All groups and reductions in one round; the results by (axes, reduction, count)."""
    keys = [
        (axes, reduction, count)
        for axes in groups_of(sizes, world.rank)
        for reduction in (SUM_F64, MAX_I64)
        for count in COUNTS
    ]
    arrays = {key: values(world.rank, key[2], key[1]) for key in keys}
    addresses = {key: world.put(array) for key, array in arrays.items() if key[2]}
    calls = [(axes, kind, addresses.get((axes, kind, n)), n) for axes, kind, n in keys]
    assert world.enqueue(calls) == ""
    assert world.wait() == ""
    return {key: world.get(address, arrays[key]) for key, address in addresses.items()}


@pytest.mark.parametrize("sizes", [(2,), (3,), (4,), (2, 2), (2, 1, 2), (1, 3)])
@pytest.mark.parametrize("seed", [1, 2])
def test_reductions(doubles, sizes, seed):
    doubles.reset(seed=seed)
    worlds = make_worlds(doubles, sizes)
    assert [world.rank for world in worlds] == list(range(len(worlds)))
    results = run_ranks(len(worlds), lambda rank: run_round(worlds[rank], sizes))
    for rank, own in enumerate(results):
        for (axes, reduction, count), found in own.items():
            ranks = groups_of(sizes, rank)[axes]
            require_reduced(found, ranks, count, reduction)
            first = results[ranks[0]][axes, reduction, count]
            assert found.tobytes() == first.tobytes(), "ranks have other bits"
    destroy(worlds)
    doubles.require_nothing_left()


def test_a_communicator_for_each_set_of_axes(doubles):
    worlds = make_worlds(doubles, (2, 1, 2))
    assert doubles.comms() == 4 * 3
    destroy(worlds)
    doubles.require_nothing_left()


def enqueue_ones(world, axes=1, count=3):
    ones = np.arange(1.0, 1.0 + count) * (world.rank + 1)
    address = world.put(ones)
    assert world.enqueue([(axes, SUM_F64, address, count)]) == ""
    return address, ones


def test_a_round_is_one_group(doubles):
    worlds = make_worlds(doubles, (2, 2))
    data = [world.put(np.ones(8)) for world in worlds]
    before = {
        name: doubles.calls(name)
        for name in ("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce", "cuMemAlloc",
                     "cuStreamSynchronize", "cuStreamQuery", "cuLaunchKernel")
    }  # fmt: skip
    run_ranks(
        4,
        lambda rank: worlds[rank].enqueue(
            [(axes, SUM_F64, data[rank] + 16 * axes, 2) for axes in (1, 2, 3)]
            + [(3, SUM_F64, data[rank], 0), (0, SUM_F64, data[rank], 2)]
        ),
    )
    made = {name: doubles.calls(name) - count for name, count in before.items()}
    assert made == {
        "ncclGroupStart": 4, "ncclGroupEnd": 4, "ncclAllReduce": 12, "cuMemAlloc": 0,
        "cuStreamSynchronize": 0, "cuStreamQuery": 0, "cuLaunchKernel": 0,
    }  # fmt: skip
    assert [world.wait() for world in worlds] == [""] * 4
    found = [world.get(address, np.ones(8)) for world, address in zip(worlds, data, strict=True)]
    assert all(list(own) == [1, 1, 2, 2, 2, 2, 4, 4] for own in found)
    destroy(worlds)
    doubles.require_nothing_left()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_behind_a_round_waits_for_all_ranks(doubles, seed):
    """Nothing of the host waits, and nothing on the stream goes ahead."""
    doubles.reset(seed=seed)
    cuda, worlds = doubles.cuda, make_worlds(doubles, (2,))
    first, ones = enqueue_ones(worlds[0])
    copy = np.zeros_like(ones)
    with cuda.context(0):
        stream = c_void_p(worlds[0].stream)
        cuda.call("cuMemcpyDtoHAsync_v2", c_void_p(copy.ctypes.data), c_void_p(first),
                  c_void_p(copy.nbytes), stream)  # fmt: skip
        for _ in range(50):
            assert cuda.lib.cuStreamQuery(stream) == NOT_READY
    enqueue_ones(worlds[1])
    assert worlds[0].wait() == "" == worlds[1].wait()
    assert list(copy) == [3.0, 6.0, 9.0]
    destroy(worlds)
    doubles.require_nothing_left()


@pytest.mark.parametrize("seed", range(4))
def test_captured_rounds(doubles, seed):
    """A graph makes the round whenever it is launched; nothing spoils the capture."""
    doubles.reset(seed=seed)
    cuda, worlds = doubles.cuda, make_worlds(doubles, (2,))
    data = [world.put(np.full(3, 1.0 + world.rank)) for world in worlds]

    def capture(rank):
        world = worlds[rank]
        with cuda.capture(world.stream, rank) as captured:
            assert world.enqueue([(1, SUM_F64, data[rank], 3)]) == ""
        return captured[0]

    graphs = run_ranks(2, capture)
    assert [list(world.get(a, np.ones(3))) for world, a in zip(worlds, data, strict=True)] == [
        [1.0] * 3, [2.0] * 3]  # fmt: skip
    for rank, graph in [(0, graphs[0]), (0, graphs[0]), (1, graphs[1]), (1, graphs[1])]:
        cuda.launch(graph, worlds[rank].stream, rank)
    assert [world.wait() for world in worlds] == ["", ""]
    for world, address in zip(worlds, data, strict=True):
        assert list(world.get(address, np.ones(3))) == [6.0] * 3
    for graph in graphs:
        cuda.call("cuGraphExecDestroy", graph)
    destroy(worlds)
    doubles.require_nothing_left()


@pytest.mark.parametrize("blocking", [0, 1])
def test_borrowed_communicators(doubles, blocking):
    """They are split, and stay as they are."""
    comms = doubles.make_comms(4, blocking)
    worlds = run_ranks(4, lambda rank: World.borrow(doubles, (2, 2), comms[rank], rank))
    assert doubles.comms() == 4 + 4 * 3
    used = doubles.calls("ncclCommSplit")
    results = run_ranks(4, lambda rank: run_round(worlds[rank], (2, 2)))
    for rank, own in enumerate(results):
        for (axes, reduction, count), found in own.items():
            require_reduced(found, groups_of((2, 2), rank)[axes], count, reduction)
    destroy(worlds)
    assert doubles.comms() == 4
    # They may go on to be used by others.
    worlds = run_ranks(4, lambda rank: World.borrow(doubles, (4,), comms[rank], rank))
    assert doubles.calls("ncclCommSplit") == used + 4
    destroy(worlds)
    for comm in comms:
        assert doubles.nccl.ncclCommAbort(comm) == 0
    doubles.require_nothing_left()


def test_one_rank_needs_no_others(doubles):
    world = World.create(doubles, (1, 1), 0, get_unique_id())
    address = world.put(np.ones(4))
    assert world.enqueue([(3, SUM_F64, address, 4)]) == ""
    assert world.wait() == ""
    assert doubles.comms() == 0
    assert doubles.calls("ncclGroupStart") == 0
    world.destroy()
    doubles.require_nothing_left()


def test_steps_are_not_of_the_processor(doubles):
    world = World.create(doubles, (), 0, get_unique_id())
    message = ctypes.create_string_buffer(100)
    assert world.communicator.reduce(world.communicator.context, None, 0, message, 100) == 1
    assert message.value == b"the communicator of NCCL is for plans on CUDA devices"
    world.destroy()
