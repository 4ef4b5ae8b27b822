# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of the runtime's as tensors of torch."""

from __future__ import annotations

import ctypes

import torch

from .._runtime import DLDataType, DLDevice, DLTensor

_KINDS = {torch.int64: (0, 64), torch.float64: (2, 64)}  # DLPack's code and bits
_PLACES = {"cpu": 1, "cuda": 2}


class _Managed(ctypes.Structure):
    """``DLManagedTensor``; what it describes is freed by its owner."""

    _fields_ = [
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_NAME = ctypes.c_char_p(b"dltensor")  # a capsule keeps the pointer
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
# With each tensor what describes it: a backend's threads may let go of a tensor late, and
# look there for who is to free it.
_seen: dict[tuple, tuple] = {}


def tensor_at(address: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of ``count`` elements from the address on, in memory of the device that is
    somebody else's, for as long as that has it. f64 and int64 alone."""
    key = address, count, dtype, device
    if key not in _seen:
        shape = (ctypes.c_int64 * 1)(count)
        managed = _Managed()
        managed.tensor = DLTensor(
            address, DLDevice(_PLACES[device.type], device.index or 0), 1,
            DLDataType(*_KINDS[dtype], 1), shape, None, 0,
        )  # fmt: skip
        capsule = _new_capsule(ctypes.addressof(managed), _NAME, None)
        _seen[key] = torch.from_dlpack(capsule), managed, shape
    return _seen[key][0]
