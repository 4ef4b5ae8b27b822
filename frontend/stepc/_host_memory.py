# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of the host that a CUDA device reaches, of the runtime library: ``stepc/cuda.h``."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_void_p

from ._library import check, load_library
from ._structures import CudaConfig


def _config(device: int, stream: int = 0) -> CudaConfig:
    return CudaConfig(ctypes.sizeof(CudaConfig), device, 0, None, stream)


def take(device: int, size: int, stream: int = 0) -> int:
    """The address of a ``DLManagedTensor``, bytes in memory of the host for a device, whose
    ``stream`` captures no graph. OutOfMemoryError, DeviceError."""
    lib, managed = load_library(), c_void_p()
    check(lib, lib.stepcCudaTakeHost(byref(_config(device, stream)), size, byref(managed)))
    return managed.value


def is_host(device: int, address: int) -> bool:
    """Whether an address is in such memory."""
    lib, found = load_library(), c_int32()
    check(lib, lib.stepcCudaIsHost(byref(_config(device)), address, byref(found)))
    return bool(found.value)
