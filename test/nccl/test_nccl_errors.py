# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What goes wrong has words, ends the rank's communicators, and leaves nobody waiting."""

import ctypes
import math
import os
import subprocess
import sys
from ctypes import byref

import numpy as np
import pytest
from double import LIBRARY as CUDA_LIBRARY
from double import ROOT
from nccl_double import (
    MAX_I64,
    REMOTE_ERROR,
    SUM_F64,
    Late,
    UniqueId,
    World,
    destroy,
    get_library,
    get_unique_id,
    make_worlds,
    run_ranks,
)
from stepc import _library, errors

SHORT_MS = 150
REMOTE_WORDS = (
    "another rank or the network failed: ncclRemoteError (6): "
    "remote process exited or there was a network error"
)


def make_data(worlds):
    return [world.put(np.ones(16)) for world in worlds]


def require_failed(world, words):
    """Every call says the same, and the device has nothing left to do."""
    assert world.enqueue([(1, SUM_F64, 8, 1)]) == words
    assert world.wait() == words
    assert world.cuda.synchronize(world.stream, world.device) == 0


# --- Arguments ------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes, rank, device, deadline, words",
    [
        ((2,), 2, 0, 100, "rank 2 does not exist, the grid has 2 places"),
        ((2,), -1, 0, 100, "rank -1 does not exist, the grid has 2 places"),
        ((2, 0), 0, 0, 100, "axis 1 has size 0, the least is 1"),
        ((300, 300), 0, 0, 100, "the grid has more than 65536 places"),
        ((2,) * 7, 0, 0, 100, "7 axes are larger than 1, the most are 6"),
        ((1,) * 65, 0, 0, 100, "65 axes were given, the most are 64"),
        ((2,), 0, 0, 0, "the deadline is 0 ms, the least is 1"),
        ((1,), 0, 9, 100, "CUDA device 9 does not exist, the driver has 4"),
    ],
)
def test_refused_worlds(doubles, sizes, rank, device, deadline, words):
    with pytest.raises(errors.StatusError) as refused:
        World.create(doubles, sizes, rank, get_unique_id(), deadline, device)
    assert str(refused.value) == words
    assert doubles.calls("ncclCommInitRankConfig") == 0
    doubles.require_nothing_left()


def test_sizes_that_are_not_there(doubles):
    lib, world = get_library(), ctypes.c_void_p()
    status = lib.stepcNcclWorldCreate(
        None, ctypes.c_int64(2), ctypes.c_int64(0), byref(get_unique_id()), ctypes.c_int32(0),
        ctypes.c_int64(100), byref(world),
    )  # fmt: skip
    assert lib.stepcStatusString(status) == b"STEPC_INVALID_ARGUMENT"
    assert ctypes.string_at(lib.stepcLastErrorMessage()) == b"2 axes were given, without sizes"


def test_a_borrowed_communicator_of_another_size(doubles):
    comms = doubles.make_comms(2, 0)
    with pytest.raises(errors.StatusError) as refused:
        World.borrow(doubles, (4,), comms[0], 0)
    assert str(refused.value) == "the grid has 4 places, the communicator has 2 ranks"
    assert doubles.comms() == 2


@pytest.mark.parametrize(
    "call, words",
    [
        ((2, SUM_F64, 8, 1), "call 1 is over axes [1], the grid has 1 axes"),
        ((1, 7, 8, 1), "call 1 has reduction 7, which is not known"),
        ((1, SUM_F64, None, 1), "call 1 has 1 elements and no address"),
        ((1, MAX_I64, 8, -1), "call 1 has -1 elements and an address"),
    ],
)
def test_refused_calls(doubles, call, words):
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    data = make_data(worlds)
    assert worlds[0].enqueue([(1, SUM_F64, data[0], 1), call]) == f"rank 0: {words}"
    assert doubles.calls("ncclGroupStart") == 0
    require_failed(worlds[0], f"rank 0: {words}")
    destroy(worlds)


# --- The library ----------------------------------------------------------------


def get_words_without_nccl(folder=None):
    script = (
        "import ctypes; from stepc import _library; lib = _library.load_library();"
        "print(lib.stepcNcclGetUniqueId(ctypes.create_string_buffer(128)),"
        "lib.stepcLastErrorMessage().decode())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}
    if folder:
        environment["LD_LIBRARY_PATH"] = str(folder)
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    return run.stdout.strip()


def test_there_is_no_nccl():
    words = get_words_without_nccl()
    assert words.startswith("18 NCCL cannot be opened: libnccl.so.2: ")


def test_an_nccl_without_a_function(tmp_path):
    # Any library that has none.
    (tmp_path / "libnccl.so.2").symlink_to(CUDA_LIBRARY)
    assert get_words_without_nccl(tmp_path) == (
        "18 NCCL's libnccl.so.2 has no function 'ncclGetErrorString', which version 2.18 has"
    )


# --- Each call fails ------------------------------------------------------------


def live(doubles):
    """A short life of two ranks on two axes; what each was told, in order."""
    lives, identifier = [[], []], None
    try:
        identifier = get_unique_id()
    except errors.StatusError as error:
        return [[str(error)], []]

    def run(rank):
        try:
            world = World.create(doubles, (2, 1), rank, identifier, SHORT_MS)
        except errors.StatusError as error:
            lives[rank].append(str(error))
            return
        data = world.put(np.ones(8))
        for _ in range(2):
            calls = [(1, SUM_F64, data, 4), (3, MAX_I64, data + 32, 4)]
            lives[rank] += [world.enqueue(calls), world.wait()]
        world.destroy()

    run_ranks(2, run)
    return lives


def require_told(lives, words):
    """Someone was told; nobody was told anything after that but the same."""
    assert any(words in told for own in lives for told in own), lives
    for own in lives:
        first = next((k for k, told in enumerate(own) if told), len(own))
        assert set(own[:first]) <= {""}
        assert len(set(own[first:])) <= 1, own


NAMES = [
    "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclGroupStart",
    "ncclAllReduce", "ncclGroupEnd", "cuDevicePrimaryCtxRetain", "cuEventCreate",
    "cuEventRecord", "cuEventQuery", "cuStreamQuery", "cuStreamIsCapturing",
]  # fmt: skip


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [1, 2])
def test_every_call_fails(doubles, name, error):
    before = doubles.calls(name)
    live(doubles)
    count = doubles.calls(name) - before
    assert count > 0
    for nth in sorted({*range(1, min(count, 5) + 1), (5 + count) // 2}):
        doubles.reset(seed=nth)
        before = doubles.calls(name)
        doubles.nccl.ncclDoubleTellAborts(1)
        doubles.fail(name, nth, error)
        lives = live(doubles)
        if name.startswith("nccl"):
            result = {1: "ncclUnhandledCudaError (1)", 2: "ncclSystemError (2)"}[error]
            words = f"{result}: "
        else:
            result = {1: "CUDA_ERROR_INVALID_VALUE (1)", 2: "CUDA_ERROR_OUT_OF_MEMORY (2)"}[error]
            words = f"{name} on CUDA device "
        if doubles.calls(name) - before >= nth:
            # At the end of a world there is nobody to be told.
            if name != "ncclCommGetAsyncError" or lives != [[""] * 4] * 2:
                require_told(lives, words)
                require_told(lives, result)
            else:
                assert doubles.calls("ncclCommAbort") > 0
        doubles.require_nothing_left()


@pytest.mark.parametrize("name", ["ncclCommFinalize", "ncclCommDestroy"])
def test_what_fails_at_the_end_is_aborted(doubles, name):
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    doubles.fail(name, 1, 1)
    destroy(worlds)
    if name == "ncclCommFinalize":
        assert doubles.calls("ncclCommAbort") == 2
        doubles.require_nothing_left()
    else:
        # NCCL has said that it is gone, and what is left of it is not known.
        assert doubles.comms() == 1


def test_words_of_a_call_that_fails(doubles):
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    data = make_data(worlds)
    doubles.fail("ncclAllReduce", 2, 5)
    words = (
        "rank 0: ncclAllReduce of max of i64 of 3 elements over axes [0] of ranks [0, 1]: "
        "ncclInvalidUsage (5): invalid usage (run with NCCL_DEBUG=WARN for details): "
        "a test made ncclAllReduce fail"
    )
    calls = [(1, SUM_F64, data[0], 4), (1, MAX_I64, data[0] + 32, 3)]
    assert worlds[0].enqueue(calls) == words
    require_failed(worlds[0], words)
    # The group is at its end: what the thread calls next is of no group.
    assert doubles.calls("ncclGroupEnd") == doubles.calls("ncclGroupStart") == 1
    destroy(worlds)
    doubles.require_nothing_left()


# --- Other ranks ----------------------------------------------------------------


def test_an_error_of_another_rank(doubles):
    worlds = make_worlds(doubles, (2,))
    data = make_data(worlds)
    doubles.nccl.ncclDoubleReport(0, REMOTE_ERROR)
    assert worlds[0].enqueue([(1, SUM_F64, data[0], 1)]) == f"rank 0: {REMOTE_WORDS}"
    require_failed(worlds[0], f"rank 0: {REMOTE_WORDS}")
    assert doubles.calls("ncclGroupStart") == 0
    # The other one is told while it waits.
    assert worlds[1].enqueue([(1, SUM_F64, data[1], 1)]) == ""
    waiting = Late(worlds[1].wait)
    doubles.nccl.ncclDoubleReport(1, REMOTE_ERROR)
    assert waiting.result() == f"rank 1: {REMOTE_WORDS}"
    require_failed(worlds[1], f"rank 1: {REMOTE_WORDS}")
    destroy(worlds)
    doubles.require_nothing_left()


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_does_not_come(doubles, seed):
    """The round that does not end is named, by its first call, and aborted."""
    doubles.reset(seed=seed)
    worlds = make_worlds(doubles, (2, 2), deadline_ms=SHORT_MS)
    data = make_data(worlds)
    for world, address in zip(worlds, data, strict=True):
        assert world.enqueue([(3, SUM_F64, address, 5)]) == ""
    for rank in (0, 2, 3):
        # Rank 1 is of the group of rank 0 alone, and of that of rank 3.
        axes = 2 if rank != 2 else 1
        calls = [(axes, SUM_F64, data[rank], 12), (axes, MAX_I64, data[rank] + 96, 2)]
        assert worlds[rank].enqueue(calls) == ""
    told = run_ranks(4, lambda rank: worlds[rank].wait())
    words = (
        "rank 0: sum of f64 of 12 elements over axes [1] of ranks [0, 1] and 1 more "
        "did not end within 150 ms"
    )
    assert told[0] == words
    assert told[1] == ""
    require_failed(worlds[0], words)
    destroy(worlds)
    doubles.require_nothing_left()


def test_the_first_round_connects(doubles):
    """It may be in progress before it is on the stream, for which there is the deadline too."""
    doubles.nccl.ncclDoubleConnectLazily(1)
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    data = make_data(worlds)
    calls = [[(1, SUM_F64, address, 2)] for address in data]
    assert run_ranks(2, lambda rank: worlds[rank].enqueue(calls[rank])) == ["", ""]
    assert run_ranks(2, lambda rank: worlds[rank].wait()) == ["", ""]
    destroy(worlds)
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    words = (
        "rank 0: ncclGroupEnd of sum of f64 of 2 elements over axes [0] of ranks [0, 1] "
        "did not end within 150 ms"
    )
    assert worlds[0].enqueue(calls[0]) == words
    require_failed(worlds[0], words)
    destroy(worlds)
    doubles.require_nothing_left()


def test_a_rank_that_makes_no_world(doubles):
    with pytest.raises(errors.CommunicationError) as refused:
        World.create(doubles, (4,), 2, get_unique_id(), SHORT_MS)
    assert str(refused.value) == (
        "rank 2: ncclCommInitRankConfig of 4 ranks did not end within 150 ms"
    )
    doubles.require_nothing_left()


@pytest.mark.parametrize(
    "sizes, ranks",
    [
        ((2, 2), "axes [0, 1] of ranks [0, 1, 2, 3]"),
        # Of many ranks not all are named: the end of the message would be cut off.
        ((12,), "axes [0] of ranks [0, 1, 2, 3, 4, 5, 6, 7, ..., 11] (12 in all)"),
    ],
)
def test_a_rank_that_does_not_borrow(doubles, sizes, ranks):
    count = math.prod(sizes)
    doubles.reset(devices=count)
    comms = doubles.make_comms(count, blocking=0)
    with pytest.raises(errors.CommunicationError) as refused:
        World.borrow(doubles, sizes, comms[3], 3, SHORT_MS)
    words = f"rank 3: ncclCommSplit for {ranks} did not end within 150 ms"
    assert str(refused.value) == words
    # It is the caller's to abort.
    assert doubles.comms() == count
    for rank, comm in enumerate(comms):
        with doubles.cuda.context(rank):
            assert doubles.nccl.ncclCommAbort(comm) == 0
    doubles.require_nothing_left()


def test_ranks_that_do_not_agree(doubles):
    worlds = make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    data = make_data(worlds)

    def run(rank):
        assert worlds[rank].enqueue([(1, SUM_F64, data[rank], 4 + rank)]) == ""
        return worlds[rank].wait()

    told = run_ranks(2, run)
    assert told == [
        f"rank {rank}: sum of f64 of {4 + rank} elements over axes [0] of ranks [0, 1] "
        "did not end within 150 ms"
        for rank in (0, 1)
    ]
    assert doubles.faults()[0] == "rank 1 reduces 5x8/0, rank 0 4x8/0"
    destroy(worlds)


def test_a_graph_outlives_its_world(doubles):
    """NCCL waits for it to be destroyed, and nobody else does."""
    cuda, worlds = doubles.cuda, make_worlds(doubles, (2,), deadline_ms=SHORT_MS)
    data = make_data(worlds)
    with cuda.capture(worlds[0].stream, 0) as captured:
        assert worlds[0].enqueue([(1, SUM_F64, data[0], 1)]) == ""
    cuda.launch(captured[0], worlds[0].stream, 0)
    assert worlds[0].wait() == "rank 0: the work on the stream did not end within 150 ms"
    destroy(worlds)
    assert doubles.comms() == 1
    cuda.call("cuGraphExecDestroy", captured[0])
    doubles.require_nothing_left()


def test_a_library_error_has_a_status(doubles):
    doubles.fail("ncclGetUniqueId", 1, 3)
    out = UniqueId()
    lib = _library.load_library()
    assert lib.stepcStatusString(lib.stepcNcclGetUniqueId(byref(out))) == (
        b"STEPC_COMMUNICATION_ERROR"
    )
    assert ctypes.string_at(lib.stepcLastErrorMessage()) == (
        b"ncclGetUniqueId: ncclInternalError (3): internal error - please report this issue to "
        b"the NCCL developers: a test made ncclGetUniqueId fail"
    )
