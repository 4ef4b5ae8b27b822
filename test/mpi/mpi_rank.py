# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One process of MPI: mpi_rank.py WHAT FOLDER, of which test_mpi.py starts four."""

import ctypes
import os
import pickle
import signal
import sys
import time
from pathlib import Path

import mpi_cases
import numpy as np
from mpi_cases import DEADLINE_MS
from mpi_world import MpiWorld, RefusedError, begin, end
from stepc import _mesh
from stepc._mesh import ALL_GATHER, ALL_TO_ALL, MAX_I64, SUM_F64, ReduceCall

# Around where elements go everywhere or in parts, for four processes and for two.
COUNTS = [0, 1, 5, 2047, 2048, 2049, 4096, 4097, 10_007]


def reduce(communicator, calls):
    """``calls``: axes, reduction and array of each; the error's words, or ""."""
    array = (ReduceCall * len(calls))()
    for call, (axes, reduction, data) in zip(array, calls, strict=True):
        call.axes, call.reduction = axes, reduction
        call.data, call.count = data.ctypes.data, data.size
    message = ctypes.create_string_buffer(512)
    failed = communicator.reduce(communicator.context, array, len(calls), message, 512)
    return message.value.decode() if failed else ""


def values(rank, count, reduction):
    rng = np.random.default_rng([rank, count, reduction])
    if reduction == MAX_I64:
        return rng.integers(-(2**62), 2**62, count)
    scattered = rng.standard_normal(count) * 10.0 ** rng.integers(-20, 20, count)
    scattered[:: max(count // 3, 1)] = [np.nan, np.inf, -0.0][rank % 3]
    return scattered


def expected(ranks, count, reduction):
    parts = [values(rank, count, reduction) for rank in ranks]
    total = parts[0].copy()
    with np.errstate(invalid="ignore"):
        for part in parts[1:]:
            total = np.maximum(total, part) if reduction == MAX_I64 else total + part
    return total


def groups_of(rank):
    """The ranks of this one's group, for each set of the axes of a grid of 2 x 1 x 2."""
    first, second = divmod(rank, 2)
    of = {0b001: [second, 2 + second], 0b100: [2 * first, 2 * first + 1], 0b101: [0, 1, 2, 3]}
    return {**of, 0b010: [rank], 0b000: [rank], 0b011: of[0b001], 0b111: of[0b101]}


def check_reductions():
    world = MpiWorld((2, 1, 2))
    for axes, ranks in groups_of(world.rank).items():
        calls, wanted = [], []
        for count in COUNTS:
            for reduction in (SUM_F64, MAX_I64):
                calls.append((axes, reduction, values(world.rank, count, reduction)))
                wanted.append(expected(ranks, count, reduction))
        assert reduce(world.communicator, calls) == ""
        for (_, reduction, found), right in zip(calls, wanted, strict=True):
            same = np.array_equal(found, right, equal_nan=reduction == SUM_F64)
            assert same, f"axes {axes:b}, {found.size} elements"
    for axes, reduction, words in [
        (0b101, 7, "call 0 has reduction 7, which is not known"),
        (0b1001, SUM_F64, "call 0 is over axes [0, 3], the grid has 3 axes"),
    ]:
        refused = reduce(world.communicator, [(axes, reduction, np.zeros(3))])
        assert refused == f"rank {world.rank}: {words}"
    world.destroy()


def require_refused(words, sizes, **settings):
    try:
        MpiWorld(sizes, **settings)
    except RefusedError as error:
        assert error.args[1] == words, error
    else:
        raise AssertionError(f"not refused: {words}")


def check_refusals():
    for sizes, words in [
        ((3,), "the grid has 3 places, MPI has 4 processes"),
        ((5,), "axis 0 has size 5, expected 1 to 4"),
        ((0, 4), "axis 0 has size 0, expected 1 to 4"),
        ((1,) * 65, "65 axes were given, the most are 64"),
        # More than an int64 counts.
        ((4,) * 33, "the grid has more places than MPI's 4 processes"),
    ]:
        require_refused(words, sizes)
    require_refused("2 axes were given, without sizes", None, num_axes=2)
    require_refused("the deadline is 0 ms, the least is 1", (4,), deadline_ms=0)


class Transfer:
    """One that has been started; the arrays of bytes that it has."""

    def __init__(self, communicator, axes, kind, send, receive, send_bytes, receive_bytes):
        self._communicator, self._work = communicator, ctypes.c_void_p()
        self.kept = send, receive

        def sizes(own):
            return None if own is None else (ctypes.c_int64 * len(own))(*own)

        transfer = _mesh.Transfer(
            axes, kind, 0, send.ctypes.data, receive.ctypes.data, sizes(send_bytes),
            sizes(receive_bytes),
        )  # fmt: skip
        message = ctypes.create_string_buffer(512)
        self.failed = communicator.start(
            communicator.context, ctypes.byref(transfer), ctypes.byref(self._work), message, 512
        )
        self.words = message.value.decode()

    def finish(self):
        """The error's words, or ""."""
        message = ctypes.create_string_buffer(512)
        failed = self._communicator.finish(self._communicator.context, self._work, message, 512)
        assert bool(failed) == bool(message.value)
        return message.value.decode()


def piece(number, sender, receiver, size):
    return np.random.default_rng([number, sender, receiver, size]).integers(0, 256, size, np.uint8)


def check_transfers():
    """Several under way, of any sizes, finished in another order."""
    world = MpiWorld((2, 1, 2))
    none = np.zeros(1, np.uint8)
    for axes, ranks in groups_of(world.rank).items():
        own, under_way = ranks.index(world.rank), []
        for number in range(24):
            sizes = np.random.default_rng([number, axes]).integers(0, 3000, (len(ranks),) * 2)
            sizes[number % len(ranks)] = 0
            if number % 2:
                sent = [piece(number, own, k, sizes[own, k]) for k in range(len(ranks))]
                wanted = [piece(number, k, own, sizes[k, own]) for k in range(len(ranks))]
                received = np.zeros(sizes[:, own].sum() + 1, np.uint8)
                made = Transfer(world.communicator, axes, ALL_TO_ALL, np.concatenate([*sent, none]),
                                received, sizes[own], sizes[:, own])  # fmt: skip
            else:
                parts = sizes[:, 0]
                wanted = [piece(number, k, 0, parts[k]) for k in range(len(ranks))]
                received = np.zeros(parts.sum() + 1, np.uint8)
                send = np.concatenate([wanted[own], none])
                if number % 4:  # where it belongs
                    first = parts[:own].sum()
                    received[first : first + parts[own]] = wanted[own]
                    send = received[first:]
                made = Transfer(world.communicator, axes, ALL_GATHER, send, received, None, parts)
            assert not made.failed, made.words
            under_way.append((made, np.concatenate([*wanted, none])))
        for made, wanted in under_way[::-1]:
            assert made.finish() == ""
            assert np.array_equal(made.kept[1], wanted), f"axes {axes:b}"
    for kind, sizes, words in [
        (7, [0, 0], "a transfer has kind 7, which is not known"),
        (ALL_TO_ALL, None, "a transfer does not say how many bytes cross"),
        (ALL_GATHER, [0, -8], "a transfer has -8 bytes"),
    ]:
        refused = Transfer(world.communicator, 1, kind, none, none, sizes, sizes)
        assert refused.failed and refused.words == f"rank {world.rank}: {words}"
    world.destroy()


def check_other_sizes(folder):
    """What comes is not what was expected: an error, and then at once."""
    world = MpiWorld((4,), deadline_ms=DEADLINE_MS)
    sizes = [8] * 4
    own = [4 if world.rank == 2 else 8] * 4
    made = Transfer(world.communicator, 1, ALL_TO_ALL, np.zeros(32, np.uint8),
                    np.zeros(32, np.uint8), own, sizes)  # fmt: skip
    words = made.finish()
    again = Transfer(world.communicator, 1, ALL_TO_ALL, np.zeros(32, np.uint8),
                     np.zeros(32, np.uint8), own, sizes)  # fmt: skip
    assert again.failed == bool(words) and again.words == words
    (folder / f"{world.rank}.part").write_text(words)
    (folder / f"{world.rank}.part").rename(folder / f"{world.rank}.txt")
    while not all((folder / f"{other}.txt").is_file() for other in range(4)):
        time.sleep(0.02)
    os._exit(3)


def check_steps(folder):
    from ranks import LocalLaunch
    from stepc import _runtime

    for number in range(len(mpi_cases.CASES)):
        sharded = mpi_cases.make(number)
        package = _runtime.Package.from_bytes((folder / f"{number}.stepc").read_bytes())
        world = MpiWorld(sharded.mesh.sizes)
        launch = LocalLaunch(sharded, world.rank, package, world.communicator)
        results = launch.run()
        (folder / f"{number}-{world.rank}.pickle").write_bytes(pickle.dumps(results))
        del launch
        world.destroy()


def one_does_not_come(folder):
    """The others say so when the deadline is over, and then at once."""
    world = MpiWorld((4,), deadline_ms=DEADLINE_MS)
    rank, lines = world.rank, []
    if rank != 2:
        for _ in range(2):
            begun = time.monotonic()
            words = reduce(world.communicator, [(1, SUM_F64, np.ones(12))])
            lines.append(f"{time.monotonic() - begun} {words}")
        (folder / f"{rank}.part").write_text("\n".join(lines))
        (folder / f"{rank}.part").rename(folder / f"{rank}.txt")
    # The first that ends makes MPI end the others.
    while not all((folder / f"{other}.txt").is_file() for other in (0, 1, 3)):
        time.sleep(0.02)
    world.destroy()
    os._exit(3)  # MPI_Finalize would wait for what cannot end


def one_does_not_transfer(folder):
    """The same of transfers."""
    world = MpiWorld((4,), deadline_ms=DEADLINE_MS)
    rank, lines = world.rank, []
    if rank != 2:
        for _ in range(2):
            begun = time.monotonic()
            made = Transfer(world.communicator, 1, ALL_TO_ALL, np.zeros(40, np.uint8),
                            np.zeros(40, np.uint8), [10] * 4, [10] * 4)  # fmt: skip
            words = made.words if made.failed else made.finish()
            lines.append(f"{time.monotonic() - begun} {words}")
        (folder / f"{rank}.part").write_text("\n".join(lines))
        (folder / f"{rank}.part").rename(folder / f"{rank}.txt")
    while not all((folder / f"{other}.txt").is_file() for other in (0, 1, 3)):
        time.sleep(0.02)
    os._exit(3)


def one_is_killed():
    world = MpiWorld((4,), deadline_ms=DEADLINE_MS)
    for _ in range(100):
        if world.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        words = reduce(world.communicator, [(1, SUM_F64, np.ones(12))])
        if words:
            print(f"{time.monotonic() - begun} {words}", flush=True)
            os._exit(3)


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "early":
        require_refused("MPI is not initialized yet", (1,))
    begin()
    kept = MpiWorld((1,), deadline_ms=2**63 - 1) if what == "early" else None
    if what == "reductions":
        check_reductions()
        check_refusals()
    elif what == "steps":
        check_steps(folder)
    elif what == "transfers":
        check_transfers()
    elif what == "sizes":
        check_other_sizes(folder)
    elif what == "no transfer":
        one_does_not_transfer(folder)
    elif what == "absent":
        one_does_not_come(folder)
    elif what == "killed":
        one_is_killed()
    end()
    if what == "early":
        require_refused("MPI is finalized already", (1,))
        kept.destroy()


main()
