# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of the runtime's as tensors of torch."""

from __future__ import annotations

import ctypes

import torch

from ..._structures import DLDataType, DLDevice, DLTensor

_KINDS = {
    torch.int64: (0, 64),
    torch.float64: (2, 64),
    torch.uint8: (1, 8),
}  # DLPack's code and bits
_PLACES = {"cpu": 1, "cuda": 2}


class _Managed(ctypes.Structure):
    """``DLManagedTensor``, and behind it the shape of the vector that it describes."""

    _fields_ = [
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 1),
    ]


_NAME = ctypes.c_char_p(b"dltensor")  # a capsule keeps the pointer
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
# A backend's threads may let go of a tensor late, without the interpreter: what describes it is
# freed then, by a function of C.
_allocate = ctypes.pythonapi.PyMem_RawMalloc
_allocate.argtypes, _allocate.restype = [ctypes.c_size_t], ctypes.c_void_p
_free = ctypes.cast(ctypes.pythonapi.PyMem_RawFree, ctypes.c_void_p).value


def adopted(managed: int) -> torch.Tensor:
    """The tensor that a ``DLManagedTensor`` at an address describes, which it has from now on."""
    return torch.from_dlpack(_new_capsule(managed, _NAME, None))


def tensor_at(address: int, count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of ``count`` elements from the address on, in memory of the device that is
    somebody else's, for as long as that has it. f64, int64 and uint8 alone."""
    place = _allocate(ctypes.sizeof(_Managed))
    if not place:
        raise MemoryError("no memory for the description of a tensor")
    managed = _Managed.from_address(place)
    managed.shape[0] = count
    managed.tensor = DLTensor(
        address, DLDevice(_PLACES[device.type], device.index or 0), 1,
        DLDataType(*_KINDS[dtype], 1),
        ctypes.cast(place + _Managed.shape.offset, ctypes.POINTER(ctypes.c_int64)), None, 0,
    )  # fmt: skip
    managed.context, managed.deleter = None, _free
    return adopted(place)


def bytes_at(address: int | None, count: int, device: torch.device) -> torch.Tensor:
    """The same of bytes; of none, wherever that is."""
    if not count:
        return torch.empty(0, dtype=torch.uint8, device=device)
    return tensor_at(address, count, torch.uint8, device)
