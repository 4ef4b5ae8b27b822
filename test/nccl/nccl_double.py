# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The double of NCCL (test/nccl_double), and ranks of it that are threads, each with a device."""

import ctypes
import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int32, c_int64, c_void_p

import numpy as np
from double import BUILD, get_double
from stepc import _library
from stepc._mesh import CommunicatorStruct, ReduceCall, Transfer

LIBRARY = BUILD / "test" / "nccl_double" / "libnccl.so.2"
SUM_F64, MAX_I64 = 0, 1
REMOTE_ERROR = 6
DEADLINE_MS = 20_000


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """``ncclConfig_t`` of version 2.14."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("blocking", ctypes.c_int32),
    ]


class Doubles:
    """Both libraries. The runtime opens each by its name, which it finds loaded."""

    def __init__(self):
        self.cuda = get_double()
        self.nccl = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        for name in ("Calls", "AllCalls", "Comms"):
            getattr(self.nccl, f"ncclDouble{name}").restype = c_int64
        self.nccl.ncclDoubleFault.restype = ctypes.c_char_p
        self.nccl.ncclDoubleFail.argtypes = [ctypes.c_char_p, c_int64, c_int32]
        self.cuda.lib.cudaDoubleEvents.restype = c_int64
        self.patience = 20

    def set_patience(self, seconds):
        """How long anything may take that waits for other threads."""
        self.patience = seconds
        self.cuda.lib.cudaDoubleSetPatience(c_int64(1000 * seconds))

    def reset(self, devices=4, seed=0):
        self.nccl.ncclDoubleReset()
        self.cuda.reset(devices, seed)

    def calls(self, name):
        library = self.nccl.ncclDoubleCalls if name.startswith("nccl") else self.cuda.calls
        return library(name.encode() if name.startswith("nccl") else name)

    def fail(self, name, nth, error):
        if name.startswith("nccl"):
            self.nccl.ncclDoubleFail(name.encode(), nth, error)
        else:
            self.cuda.fail(name, nth, error)

    def comms(self):
        return self.nccl.ncclDoubleComms()

    def faults(self):
        return self.nccl.ncclDoubleFault().decode(), self.cuda.fault()

    def require_nothing_left(self):
        """No communicators, and of the devices what tests took themselves."""
        end = time.monotonic() + self.patience
        while (self.comms() or self.cuda.alive()[2]) and time.monotonic() < end:
            time.sleep(0.001)  # until aborts have come to their ends
        assert self.comms() == 0
        assert self.cuda.alive()[2:] == (0, 0)
        assert self.cuda.lib.cudaDoubleEvents() == 0
        assert self.faults() == ("", "")

    def make_comms(self, count, blocking):
        """Communicators as a caller of NCCL has them, of ranks that have a device each."""
        identifier = UniqueId()
        assert self.nccl.ncclGetUniqueId(byref(identifier)) == 0

        def make(rank):
            comm = c_void_p()
            config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 21400, blocking)
            with self.cuda.context(rank):
                self.nccl.ncclCommInitRankConfig(
                    byref(comm), count, identifier, rank, byref(config)
                )
                self.settle(comm)
            return comm

        return run_ranks(count, make)

    def settle(self, comm):
        """Waits until nothing of the communicator is in progress."""
        state = c_int32(7)
        while state.value == 7:
            assert self.nccl.ncclCommGetAsyncError(comm, byref(state)) == 0
        assert state.value == 0


@functools.cache
def get_doubles():
    return Doubles()


def run_ranks(count, work):
    """``work(rank)`` on a thread for each; the results, or the first error."""
    with ThreadPoolExecutor(count) as pool:
        return [future.result(120) for future in [pool.submit(work, k) for k in range(count)]]


@functools.cache
def get_library():
    lib = _library.load_library()
    lib.stepcNcclWorldGetRank.restype = c_int64
    lib.stepcNcclWorldGetRank.argtypes = [c_void_p]
    lib.stepcNcclWorldDestroy.restype = None
    lib.stepcNcclWorldDestroy.argtypes = [c_void_p]
    lib.stepcNcclWorldGetCommunicator.argtypes = [c_void_p, c_void_p]
    return lib


def get_unique_id():
    out = UniqueId()
    _library.check(get_library(), get_library().stepcNcclGetUniqueId(byref(out)))
    return out


def _sizes(sizes):
    return (c_int64 * max(len(sizes), 1))(*sizes), c_int64(len(sizes))


class World:
    """A rank's world, and arrays in the memory of its device."""

    def __init__(self, handle, cuda, device):
        self.lib, self.handle, self.cuda, self.device = get_library(), handle, cuda, device
        self.rank = self.lib.stepcNcclWorldGetRank(handle)
        self.communicator = CommunicatorStruct(ctypes.sizeof(CommunicatorStruct))
        status = self.lib.stepcNcclWorldGetCommunicator(handle, byref(self.communicator))
        _library.check(self.lib, status)
        self.stream = cuda.make_stream(device)

    @classmethod
    def create(cls, doubles, sizes, rank, identifier, deadline_ms=DEADLINE_MS, device=None):
        lib, handle = get_library(), c_void_p()
        device = rank if device is None else device
        status = lib.stepcNcclWorldCreate(
            *_sizes(sizes), c_int64(rank), byref(identifier), c_int32(device),
            c_int64(deadline_ms), byref(handle),
        )  # fmt: skip
        _library.check(lib, status)
        return cls(handle, doubles.cuda, device)

    @classmethod
    def borrow(cls, doubles, sizes, comm, device, deadline_ms=DEADLINE_MS):
        lib, handle = get_library(), c_void_p()
        status = lib.stepcNcclWorldBorrow(*_sizes(sizes), comm, c_int64(deadline_ms), byref(handle))
        _library.check(lib, status)
        return cls(handle, doubles.cuda, device)

    def put(self, values):
        address = self.cuda.take(values.nbytes, self.device)
        self.cuda.put(address, values, self.device)
        return address

    def get(self, address, like):
        return self.cuda.get(address, like, self.device)

    def enqueue(self, calls, stream=None):
        """``calls``: axes, reduction, address and count of each; the error's words, or ""."""
        array = (ReduceCall * max(len(calls), 1))()
        for call, (axes, reduction, data, count) in zip(array, calls, strict=False):
            call.axes, call.reduction, call.data, call.count = axes, reduction, data, count
        return self._say(
            self.communicator.enqueue, array, len(calls), self.stream if stream is None else stream
        )

    def start(self, axes, kind, send, receive, sent, received, stream=None):
        """What ends it, and the error's words, or ""."""
        transfer, work = Transfer(axes, kind), c_void_p()
        transfer.send, transfer.receive = send, receive
        lists = [(c_int64 * max(len(own), 1))(*own) for own in (sent, received)]
        transfer.sendBytes, transfer.receiveBytes = lists
        stream = self.stream if stream is None else stream
        words = self._say(self.communicator.enqueueStart, byref(transfer), stream, byref(work))
        return work.value, words

    def finish(self, work, stream=None):
        stream = self.stream if stream is None else stream
        return self._say(self.communicator.enqueueFinish, work, stream)

    def wait(self):
        return self._say(self.communicator.wait, self.stream)

    def _say(self, function, *arguments):
        message = ctypes.create_string_buffer(512)
        failed = function(self.communicator.context, *arguments, message, 512)
        assert bool(failed) == bool(message.value)
        return message.value.decode()

    def destroy(self):
        self.lib.stepcNcclWorldDestroy(self.handle)


def make_worlds(doubles, sizes, **settings):
    """A world for each place of the grid."""
    identifier = get_unique_id()
    return run_ranks(
        int(np.prod(sizes, dtype=int)),
        lambda rank: World.create(doubles, sizes, rank, identifier, **settings),
    )


def destroy(worlds):
    run_ranks(len(worlds), lambda rank: worlds[rank].destroy())


def groups_of(sizes, rank):
    """The ranks of this one's group, for each set of axes."""
    at = np.unravel_index(rank, sizes)
    places = np.arange(np.prod(sizes)).reshape(sizes)
    return {
        axes: places[
            tuple(slice(None) if axes >> k & 1 else at[k] for k in range(len(sizes)))
        ].ravel()
        for axes in range(2 ** len(sizes))
    }


class Late(threading.Thread):
    """Work of another rank that goes on; what it returned, after ``result()``."""

    def __init__(self, work):
        super().__init__()
        self.work = work
        self.start()

    def run(self):
        self.returned = self.work()

    def result(self):
        self.join(60)
        assert not self.is_alive()
        return self.returned
