# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""libstepc_mpi.so as a process of MPI has it."""

import ctypes
import os
from ctypes import byref, c_int, c_int64, c_void_p
from pathlib import Path

from stepc._mesh import CommunicatorStruct

BUILD = Path(os.environ.get("STEPC_BUILD", Path(__file__).resolve().parents[2] / "build"))
LIBRARY = BUILD / "lib" / "libstepc_mpi.so"


class RefusedError(Exception):
    """A world that was not made: its status and the message."""


class MpiWorld:
    """A world over all processes, with axes of these sizes; None: so many without sizes."""

    def __init__(self, sizes, deadline_ms=20_000, num_axes=0):
        self._lib = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        self._lib.stepcMpiWorldGetRank.restype = c_int64
        self._lib.stepcMpiWorldDestroy.restype = None
        self._handle, message = c_void_p(), ctypes.create_string_buffer(512)
        own = None if sizes is None else (c_int64 * max(len(sizes), 1))(*sizes)
        num_axes = num_axes if sizes is None else len(sizes)
        status = self._lib.stepcMpiWorldCreate(
            own, c_int64(num_axes), c_int64(deadline_ms),
            byref(self._handle), message, ctypes.c_size_t(512),
        )  # fmt: skip
        if status:
            raise RefusedError(status, message.value.decode())
        self.rank = self._lib.stepcMpiWorldGetRank(self._handle)
        self.communicator = CommunicatorStruct()
        get = self._lib.stepcMpiWorldGetCommunicator
        self.communicator.structSize = CommunicatorStruct.enqueue.offset - 1
        assert get(self._handle, byref(self.communicator)) == 1
        self.communicator.structSize = CommunicatorStruct.enqueue.offset
        assert get(self._handle, byref(self.communicator)) == 0
        assert self.communicator.structSize == CommunicatorStruct.enqueue.offset
        assert not self.communicator.start
        self.communicator.structSize = ctypes.sizeof(CommunicatorStruct)
        assert get(None, byref(self.communicator)) == get(self._handle, None) == 1
        assert get(self._handle, byref(self.communicator)) == 0
        assert self.communicator.structSize == ctypes.sizeof(CommunicatorStruct)

    def destroy(self):
        self._lib.stepcMpiWorldDestroy(self._handle)


def mpi():
    """The MPI that the library is linked to, which is loaded with it."""
    lib = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
    found = ctypes.CDLL(None)
    return found if hasattr(found, "MPI_Init") else lib


def begin():
    assert mpi().MPI_Init(None, None) == 0


def end():
    assert mpi().MPI_Finalize() == c_int(0).value
