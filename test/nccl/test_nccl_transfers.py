# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers of NCCL's ranks: bytes that cross as they are, beside the stream that starts them."""

import ctypes
import sys
from ctypes import byref, c_void_p

import numpy as np
import pytest
from double import ROOT
from nccl_double import SUM_F64, destroy, get_library, groups_of, make_worlds, run_ranks
from stepc import _library
from stepc._mesh import ALL_GATHER, ALL_TO_ALL, CommunicatorStruct, Mesh

sys.path.append(str(ROOT / "test" / "cuda"))
from device_entries import DeviceRun, compare, compile_models, run_alone
from test_device_entries import capture, launch, make_model, rewrite

NOT_READY = 600


def pieces_of(rank, sizes):
    """Bytes that say whose and for whom they are."""
    return [np.full(size, 1 + 16 * rank + k, np.uint8) for k, size in enumerate(sizes)]


def join(pieces):
    return np.concatenate([*pieces, np.zeros(0, np.uint8)])


def cross(world, sizes, equal):
    """All groups, in both kinds; what came, and what should have."""
    found, expected, works = [], [], []
    for axes, ranks in groups_of(sizes, world.rank).items():
        place, count = list(ranks).index(world.rank), len(ranks)
        lengths = [[5] * count if equal else [7 * s + 3 * r - 6 * (s == r) for r in range(count)]
                   for s in range(count)]  # fmt: skip
        lengths = [[max(n, 0) for n in line] for line in lengths]
        own, receives = lengths[place], [line[place] for line in lengths]
        expected.append(join([pieces_of(r, lengths[k])[place] for k, r in enumerate(ranks)]))
        target = np.zeros(sum(receives), np.uint8)
        addresses = [world.put(join(pieces_of(world.rank, own))), world.put(target)]
        works.append(world.start(axes, ALL_TO_ALL, *addresses, own, receives))
        found.append((addresses[1], target))

        gathered = [5 if equal else 3 * (int(r) % 3) for r in ranks]
        expected.append(
            join([np.full(n, 9 + r, np.uint8) for n, r in zip(gathered, ranks, strict=True)])
        )
        target = np.zeros(sum(gathered), np.uint8)
        begin = sum(gathered[:place])
        target[begin : begin + gathered[place]] = 9 + world.rank
        address = world.put(target)
        works.append(world.start(axes, ALL_GATHER, address + begin, address, [], gathered))
        found.append((address, target))
    assert {words for _, words in works} == {""}, [words for _, words in works]
    for work, _ in reversed(works):
        assert world.finish(work) == ""
    assert world.wait() == ""
    return [world.get(*own) if own[1].size else own[1] for own in found], expected


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 1, 2)])
@pytest.mark.parametrize("equal", [True, False])
def test_pieces(doubles, sizes, equal):
    worlds = make_worlds(doubles, sizes)
    for found, expected in run_ranks(len(worlds), lambda rank: cross(worlds[rank], sizes, equal)):
        assert [own.tolist() for own in found] == [own.tolist() for own in expected]
    used = [doubles.calls(name) > 0 for name in ("ncclAllGather", "ncclBroadcast")]
    assert used == [equal, not equal]
    destroy(worlds)
    doubles.require_nothing_left()


def start_one(world, value):
    """Sends 4 bytes of the value to each of two ranks, once a round has made it."""
    send, receive = world.put(np.full(8, value, np.uint8)), world.put(np.zeros(8, np.uint8))
    return world.start(1, ALL_TO_ALL, send, receive, [4, 4], [4, 4])[0], receive


@pytest.mark.parametrize("seed", range(4))
def test_what_is_behind_a_transfer(doubles, seed):
    """The stream goes on beside it, and what is behind its end waits for all ranks."""
    doubles.reset(seed=seed)
    cuda, worlds = doubles.cuda, make_worlds(doubles, (2,))
    other = worlds[0].put(np.zeros(8, np.uint8))
    waits = doubles.calls("cuStreamSynchronize"), doubles.calls("cuStreamQuery")
    work, receive = start_one(worlds[0], 3)
    assert (doubles.calls("cuStreamSynchronize"), doubles.calls("cuStreamQuery")) == waits
    with cuda.context(0):
        stream = c_void_p(worlds[0].stream)
        cuda.call("cuMemsetD8Async", c_void_p(other), 7, c_void_p(8), stream)
        while cuda.lib.cuStreamQuery(stream) == NOT_READY:
            pass  # it has nothing to wait for
        assert worlds[0].finish(work) == ""
        for _ in range(50):
            assert cuda.lib.cuStreamQuery(stream) == NOT_READY
    work, _ = start_one(worlds[1], 5)
    assert worlds[1].finish(work) == ""
    assert worlds[0].wait() == "" == worlds[1].wait()
    assert worlds[0].get(receive, np.zeros(8, np.uint8)).tolist() == [3] * 4 + [5] * 4
    destroy(worlds)
    doubles.require_nothing_left()


@pytest.mark.parametrize("seed", range(4))
def test_captured_transfers(doubles, seed):
    """A graph makes them whenever it is launched, behind what it has before them."""
    doubles.reset(seed=seed)
    cuda, worlds = doubles.cuda, make_worlds(doubles, (2,))
    send = [world.put(np.zeros(8, np.uint8)) for world in worlds]
    receive = [world.put(np.zeros(8, np.uint8)) for world in worlds]

    def capture(rank):
        world = worlds[rank]
        with cuda.capture(world.stream, rank) as captured:
            with cuda.context(rank):
                cuda.call("cuMemsetD8Async", c_void_p(send[rank]), 3 + rank, c_void_p(8),
                          c_void_p(world.stream))  # fmt: skip
            work, words = world.start(1, ALL_TO_ALL, send[rank], receive[rank], [4, 4], [4, 4])
            assert words == "" == world.finish(work)
        return captured[0]

    graphs = run_ranks(2, capture)
    for rank in (0, 1, 0, 1):
        cuda.launch(graphs[rank], worlds[rank].stream, rank)
    assert [world.wait() for world in worlds] == ["", ""]
    for world, address in zip(worlds, receive, strict=True):
        assert world.get(address, np.zeros(8, np.uint8)).tolist() == [3] * 4 + [4] * 4
    for graph in graphs:
        cuda.call("cuGraphExecDestroy", graph)
    destroy(worlds)
    doubles.require_nothing_left()


# --- Errors -------------------------------------------------------------------------------


def test_a_rank_that_does_not_come(doubles):
    worlds = make_worlds(doubles, (2,), deadline_ms=150)
    work, _ = start_one(worlds[0], 1)
    assert worlds[0].finish(work) == ""
    words = "rank 0: all_to_all of 8 bytes over axes [0] of ranks [0, 1] did not end within 150 ms"
    assert worlds[0].wait() == words
    # Everything says the same from then on.
    assert worlds[0].start(1, ALL_TO_ALL, 1, 1, [4, 4], [4, 4])[1] == words
    assert worlds[0].enqueue([(1, SUM_F64, 8, 1)]) == words
    destroy(worlds)


@pytest.mark.parametrize("name", ["ncclSend", "ncclRecv", "ncclGroupEnd", "cuStreamWaitEvent"])
def test_calls_that_fail(doubles, name):
    worlds = make_worlds(doubles, (2,), deadline_ms=150)
    data = worlds[0].put(np.zeros(8, np.uint8))
    doubles.fail(name, 1, 3 if name.startswith("nccl") else 1)
    _, words = worlds[0].start(1, ALL_TO_ALL, data, data, [4, 4], [4, 4])
    assert words.startswith("rank 0: ")
    if name.startswith("nccl"):
        assert "all_to_all of 8 bytes over axes [0] of ranks [0, 1]" in words
    assert worlds[0].finish(None) == words
    destroy(worlds)


def test_transfers_that_cannot_be(doubles):
    (world,) = make_worlds(doubles, (1,))
    _, words = world.start(4, ALL_TO_ALL, None, None, [0], [0])
    assert words == "rank 0: a transfer is over axes [2], the grid has 1 axes"
    destroy([world])


@pytest.mark.parametrize("room", [0, CommunicatorStruct.start.offset])
def test_callers_with_less_room(doubles, room):
    (world,) = make_worlds(doubles, (1,))
    own = CommunicatorStruct(room)
    marks = ctypes.sizeof(own) - max(room, CommunicatorStruct.success.offset)
    ctypes.memset(byref(own, ctypes.sizeof(own) - marks), 0x5A, marks)
    _library.check(
        get_library(), get_library().stepcNcclWorldGetCommunicator(world.handle, byref(own))
    )
    assert own.structSize == max(room, CommunicatorStruct.success.offset)
    assert bytes(own)[-marks:] == b"\x5a" * marks
    destroy([world])


# --- Plans --------------------------------------------------------------------------------


class Ranks:
    """Plans of a model on devices of their own, with worlds of NCCL."""

    def __init__(self, doubles, model, package):
        self.doubles, self.double, self.model = doubles, doubles.cuda, model
        self.worlds = make_worlds(doubles, model.mesh.sizes)
        for world in self.worlds:
            world.struct = world.communicator
        self.runs = [DeviceRun(model, package, world, world.rank, doubles.cuda, world.rank)
                     for world in self.worlds]  # fmt: skip

    def each(self, work):
        return run_ranks(len(self.runs), lambda rank: work(self.runs[rank]))

    def synchronize(self):
        self.each(lambda run: self.double.synchronize(run.stream, run.device))

    def end(self, package):
        self.synchronize()
        alone = run_alone(self.model, package)
        assert [compare(self.model, run, alone) for run in self.runs] == [""] * len(self.runs)
        for run in self.runs:
            run.plan = None
        destroy(self.worlds)
        self.doubles.require_nothing_left()


def test_steps_with_entries(doubles, tmp_path):
    """The bits of one process: no sum of a gradient is NCCL's."""
    model = make_model("adamw", Mesh(("dp", "rep"), (2, 2)))
    package = compile_models([model], tmp_path).get(model)
    ranks = Ranks(doubles, model, package)
    ranks.each(lambda run: [run.step(step) for step in range(len(model.orders))])
    ranks.end(package)


def test_a_graph_with_rounds(doubles, tmp_path):
    """Of two ranks there is one order of additions; whether a launch is skipped the device alone
    knows, and counts what others own."""
    model = make_model(
        "adamw", Mesh(("dp",), (2,)), ["torch_scaler", "clip_by_norm"], ("f32", "f32"),
        missing=False, overflows=(2,), orders=[None] * 4, flags=["--reproducible"],
    )  # fmt: skip
    package = compile_models([model], tmp_path).get(model)
    ranks = Ranks(doubles, model, package)
    ranks.each(lambda run: run.step(0))
    graphs = capture(ranks)
    for step in (1, 2, 3):
        rewrite(ranks, [run.grads for run in ranks.runs], step)
        launch(ranks, graphs)
    assert ranks.runs[0].plan.info().skippedSteps == 1
    assert [run.plan.count(run.ids[0]) for run in ranks.runs] == [3, 3]
    ranks.synchronize()
    for graph in graphs:
        doubles.cuda.call("cuGraphExecDestroy", graph)
    ranks.end(package)
