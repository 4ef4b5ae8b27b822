# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Meshes, layouts and communicators of ``stepc/stepc.h`` (docs/sharding.md)."""

from __future__ import annotations

import ctypes
import itertools
import traceback
from collections.abc import Callable, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass

from . import _callbacks, _library, _structures, errors

SUM_F64 = 0  # StepcReduction
MAX_I64 = 1

ALL_TO_ALL = 0  # StepcTransferKind
ALL_GATHER = 1

# What crosses ranks at a time where nobody says: bytes of a bucket, as of DistributedDataParallel,
# and buckets.
BUCKET_BYTES = 25 * 2**20
UNDER_WAY = 4

_DONE = 1  # of a round; 0 is what ctypes returns for a function that was not run to its end


class Axis(Structure):
    """``StepcAxis``."""

    _fields_ = [("name", c_char_p), ("size", c_int64), ("coordinate", c_int64)]


class ReduceCall(Structure):
    """``StepcReduceCall``: elements of 8 bytes that a group of ranks combines in place."""

    _fields_ = [
        ("axes", c_uint64),
        ("reduction", c_int32),
        ("reserved", c_int32),
        ("data", c_void_p),
        ("count", c_int64),
    ]


class Transfer(Structure):
    """``StepcTransfer``: bytes that a group of ranks exchanges as they are; ``kind`` is
    ALL_TO_ALL or ALL_GATHER."""

    _fields_ = [
        ("axes", c_uint64),
        ("kind", c_int32),
        ("reserved", c_int32),
        ("send", c_void_p),
        ("receive", c_void_p),
        ("sendBytes", POINTER(c_int64)),
        ("receiveBytes", POINTER(c_int64)),
    ]


REDUCE = CFUNCTYPE(c_int32, c_void_p, POINTER(ReduceCall), c_int64, POINTER(c_char), c_size_t)
ENQUEUE = CFUNCTYPE(
    c_int32, c_void_p, POINTER(ReduceCall), c_int64, c_void_p, POINTER(c_char), c_size_t
)
WAIT = CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(c_char), c_size_t)
START = CFUNCTYPE(
    c_int32, c_void_p, POINTER(Transfer), POINTER(c_void_p), POINTER(c_char), c_size_t
)
FINISH = CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(c_char), c_size_t)
ENQUEUE_START = CFUNCTYPE(
    c_int32, c_void_p, POINTER(Transfer), c_void_p, POINTER(c_void_p), POINTER(c_char), c_size_t
)
ENQUEUE_FINISH = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, POINTER(c_char), c_size_t)


class CommunicatorStruct(Structure):
    """``StepcCommunicator``."""

    _fields_ = [
        ("structSize", c_size_t),
        ("context", c_void_p),
        ("reduce", REDUCE),
        ("enqueue", ENQUEUE),
        ("wait", WAIT),
        ("success", c_int32),
        ("reserved", c_int32),
        ("start", START),
        ("finish", FINISH),
        ("enqueueStart", ENQUEUE_START),
        ("enqueueFinish", ENQUEUE_FINISH),
    ]


class EntryStruct(Structure):
    """``StepcEntry``."""

    _fields_ = [
        ("structSize", c_size_t),
        ("wholeAxes", c_uint64),
        ("partialAxes", c_uint64),
        ("divisor", c_double),
        ("divideBefore", c_int32),
        ("owned", c_int32),
        ("wireType", _structures.DLDataType),
        ("owner", c_int64),
    ]


class LayoutStruct(Structure):
    """``StepcLayout``."""

    _fields_ = [
        ("structSize", c_size_t),
        ("ndim", c_int32),
        ("flat", c_int32),
        ("shape", POINTER(c_int64)),
        ("dimAxes", POINTER(c_uint64)),
        ("flatAxes", c_uint64),
        ("begin", c_int64),
        ("distinctAxes", c_uint64),
        ("start", POINTER(c_int64)),
    ]


def communicator_of(
    reduce: Callable[[Sequence[ReduceCall]], None],
    enqueue: Callable[[Sequence[ReduceCall], int], None] | None = None,
    start: Callable[[Transfer], Callable[[], None]] | None = None,
    enqueue_start: Callable[[Transfer, int], Callable[[int], None]] | None = None,
) -> CommunicatorStruct:
    """A communicator whose rounds are made by a Python function.

    ``reduce`` gets the calls of a round and returns when all are done; an exception that it raises
    becomes the message of the step's CommunicationError, an interrupt goes on from the step as
    it is. ``enqueue`` gets those whose data is
    on a device, and the stream (a CUstream) on which they are to be done; it does not wait.
    ``start`` gets a transfer, which it copies what it needs of, and returns what waits for it.
    ``enqueue_start`` gets one whose data is on a device, and the stream behind which it is to be
    made; it returns what has the stream that it gets wait for it, and neither waits itself.
    """
    under_way: dict[int, Callable[[], None]] = {}
    numbers = itertools.count(1)

    def run(message, size, function, *arguments):
        try:
            function(*arguments)
            return _DONE
        except BaseException as error:
            if not isinstance(error, Exception):
                _callbacks.hold(error)
            words = "".join(traceback.format_exception_only(error)).strip()
            words = str(error) if isinstance(error, errors.StepcError) else words
            text = words.encode()[: size - 1]
            ctypes.memmove(message, text + b"\0", len(text) + 1)
            return 0

    def run_here(_context, calls, count, message, size):
        return run(message, size, reduce, calls[:count])

    def run_there(_context, calls, count, stream, message, size):
        return run(message, size, enqueue, calls[:count], stream or 0)

    def begin(transfer, work):
        number = next(numbers)
        under_way[number] = start(transfer[0])
        work[0] = number

    def begin_there(transfer, stream, work):
        number = next(numbers)
        under_way[number] = enqueue_start(transfer[0], stream or 0)
        work[0] = number

    def run_start_there(_context, transfer, stream, work, message, size):
        return run(message, size, begin_there, transfer, stream, work)

    def run_finish_there(_context, work, stream, message, size):
        return run(message, size, lambda: under_way.pop(work)(stream or 0))

    def run_start(_context, transfer, work, message, size):
        return run(message, size, begin, transfer, work)

    def run_finish(_context, work, message, size):
        return run(message, size, lambda: under_way.pop(work)())

    made = CommunicatorStruct(ctypes.sizeof(CommunicatorStruct), None, REDUCE(run_here))
    if start is not None:
        made.start, made.finish = START(run_start), FINISH(run_finish)
    if enqueue_start is not None:
        made.enqueueStart = ENQUEUE_START(run_start_there)
        made.enqueueFinish = ENQUEUE_FINISH(run_finish_there)
    if enqueue is not None:
        made.enqueue = ENQUEUE(run_there)
    made.success = _DONE
    return made


@dataclass(frozen=True)
class Mesh:
    """A grid of ranks with named axes, row-major: the last axis varies fastest."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def coordinates(self, rank: int) -> tuple[int, ...]:
        found = []
        for size in reversed(self.sizes):
            found.append(rank % size)
            rank //= size
        return tuple(reversed(found))

    def rank(self, coordinates: Sequence[int]) -> int:
        found = 0
        for size, at in zip(self.sizes, coordinates, strict=True):
            found = found * size + at
        return found

    def bits(self, axes: Sequence[str]) -> int:
        """The axes as the runtime names a set of them."""
        return sum(1 << self.names.index(name) for name in axes)

    def struct(self, rank: int) -> ctypes.Array:
        """The array that :meth:`stepc._runtime.Plan.set_mesh` takes."""
        axes = (Axis * max(len(self.names), 1))()
        values = zip(self.names, self.sizes, self.coordinates(rank), strict=True)
        for axis, (name, size, at) in zip(axes, values, strict=False):
            axis.name, axis.size, axis.coordinate = name.encode(), size, at
        return axes if self.names else (Axis * 0)()


@dataclass(frozen=True)
class Layout:
    """How one tensor lies on a mesh; whole over axes that are not named.

    ``dims`` has for each sharded dim its axes, in order. ``flat``: the axes over which the
    elements in row-major order lie, of which this rank has those from ``begin`` on.
    ``distinct``: other coordinates of these axes hold other tensors. ``start``: where each
    dim of this rank's part begins in the whole; None where the part is no block of it.
    """

    shape: tuple[int, ...]
    dims: tuple[tuple[int, tuple[str, ...]], ...] = ()
    flat: tuple[str, ...] = ()
    begin: int = 0
    distinct: tuple[str, ...] = ()
    start: tuple[int, ...] | None = None

    def request(self) -> str:
        """What ``--variant`` says of it: "layout.-1=tp,rank=2"; "" where nothing is sharded.

        With the rank no rule is compiled that such a tensor does not fit.
        """
        rank = len(self.shape)
        words = [f"layout.{dim - rank}={'+'.join(axes)}" for dim, axes in self.dims if axes]
        if self.flat:
            words = [f"layout.flat={'+'.join(self.flat)}"]
        return ",".join([*words, f"rank={rank}"]) if words and rank else ",".join(words)

    @property
    def sharded(self) -> int:
        """Bit k says that ranks share dim k."""
        return sum(1 << dim for dim, axes in self.dims if axes)

    def struct(self, mesh: Mesh) -> LayoutStruct:
        """``StepcLayout``; it keeps alive what it points to."""
        rank = len(self.shape)
        shape = (c_int64 * max(rank, 1))(*self.shape)
        axes = (c_uint64 * max(rank, 1))()
        for dim, names in self.dims:
            axes[dim] = mesh.bits(names)
        layout = LayoutStruct(ctypes.sizeof(LayoutStruct), rank, int(bool(self.flat)))
        layout.shape = ctypes.cast(shape, POINTER(c_int64))
        if not self.flat:
            layout.dimAxes = ctypes.cast(axes, POINTER(c_uint64))
        layout.flatAxes = mesh.bits(self.flat)
        layout.begin = self.begin
        layout.distinctAxes = mesh.bits(self.distinct)
        start = (c_int64 * max(rank, 1))(*(self.start or ()))
        if self.start is not None and not self.flat:
            layout.start = ctypes.cast(start, POINTER(c_int64))
        layout.keep = (shape, axes, start)
        return layout


@dataclass(frozen=True)
class Entry:
    """How a parameter and its gradient lie around a step (``StepcEntry``), in which each is a
    part as a :class:`Layout` says, cut over the axes ``whole``, or all of it on one of their ranks,
    the ``owner``: its place along them. The gradient is a sum over the axes ``partial``, divided
    by ``divisor``, each addend ``before`` it is rounded to the storage type ``wire``, or the
    sum."""

    whole: tuple[str, ...]
    partial: tuple[str, ...] = ()
    divisor: float = 1.0
    before: bool = False
    wire: str = ""
    owner: int | None = None

    def request(self) -> str:
        """What ``--variant`` says of it, beside the layout."""
        words = [f"layout.{'whole' if self.owner is None else 'owned'}={'+'.join(self.whole)}"]
        if self.partial:
            words += [f"layout.partial={'+'.join(self.partial)}", f"layout.wire={self.wire}"]
        return ",".join(words)

    def struct(self, mesh: Mesh) -> EntryStruct:
        """``StepcEntry``."""
        entry = EntryStruct(ctypes.sizeof(EntryStruct))
        entry.wholeAxes, entry.partialAxes = mesh.bits(self.whole), mesh.bits(self.partial)
        entry.divisor, entry.divideBefore = self.divisor, int(self.before)
        if self.owner is not None:
            entry.owned, entry.owner = 1, 1 + self.owner
        if self.partial:
            entry.wireType = _structures.DATA_TYPES[self.wire]
        return entry


class SimulatedWorld:
    """Ranks that are threads of this process: to try a layout out, and for tests.

    Each rank steps its own plan on its own thread; a round waits for the others.
    """

    def __init__(self, mesh: Mesh, deadline_ms: int = 60_000):
        self._lib = _library.load_library()
        self._handle = c_void_p()
        sizes = (c_int64 * max(len(mesh.sizes), 1))(*mesh.sizes)
        create = self._lib.stepcSimulatedWorldCreate
        _library.check(self._lib, create(sizes, len(mesh.sizes), byref(self._handle)))
        set_deadline = self._lib.stepcSimulatedWorldSetDeadline
        _library.check(self._lib, set_deadline(self._handle, deadline_ms))

    def communicator(self, rank: int) -> CommunicatorStruct:
        """The rank's; the world must outlive it."""
        made = CommunicatorStruct(ctypes.sizeof(CommunicatorStruct))
        get = self._lib.stepcSimulatedWorldGetCommunicator
        _library.check(self._lib, get(self._handle, rank, byref(made)))
        return made

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.stepcSimulatedWorldDestroy(self._handle)
            self._handle = None
