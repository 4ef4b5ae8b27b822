# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as the runtime sees them, by ``DLTensor``, and what it cannot take."""

from __future__ import annotations

import ctypes

import torch

from ..._structures import DLTensor
from .stored import StoredState

STORAGE = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float64: "f64",
}
# Parameters that are computed with in a wider type than they have.
NARROW = (torch.bfloat16, torch.float16)
# Of states: lower halves of float32, and codes, too.
DTYPE = {
    "i16": torch.int16,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i32": torch.int32,
    **{name: dtype for dtype, name in STORAGE.items()},
}

GRAD = torch._C.TensorBase.__dict__["grad"]  # the descriptor
# The capsule of DLPack's exchange table; older releases of torch have none.
TABLE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI, as far as it is used."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_managed", ctypes.c_void_p),
        ("import_managed", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


def _exchange_view():
    # A function object of our own: the one in pythonapi belongs to everybody.
    of_capsule = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer = of_capsule(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = _Exchange.from_address(pointer(TABLE, b"dlpack_exchange_api"))
    if table.major != 1 or not table.view:
        raise ImportError("this torch has another tensor exchange table than DLPack 1")
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    return prototype(table.view)


# view(tensor, address of a DLTensor): raises where there is nothing to describe.
# Shape and strides point into the tensor; nothing is owned.
view = None if TABLE is None else _exchange_view()

_CPU, _CUDA = 1, 2  # DLDeviceType
_HERE = torch.device("cpu")
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6  # DLDataTypeCode


def _code(dtype: torch.dtype) -> int:
    if dtype is torch.bfloat16:
        return _BFLOAT
    if dtype is torch.bool:
        return _BOOL
    if dtype.is_complex:
        return _COMPLEX
    if dtype.is_floating_point:
        return _FLOAT
    return _INT if dtype.is_signed else _UINT


def fill(out: DLTensor, tensor: torch.Tensor) -> ctypes.Array:
    """What ``view`` does, from the tensor's attributes. Returns the shape and the strides,
    which must live as long as ``out`` is used. BufferError where there is nothing to describe."""
    stored = type(tensor) is StoredState
    device = (tensor.piece.store.device or _HERE) if stored else tensor.device
    kind = device.type
    if tensor.layout is not torch.strided or kind not in ("cpu", "cuda"):
        raise BufferError(f"a tensor of layout {tensor.layout} on device '{kind}' has no address")
    ndim = tensor.dim()
    numbers = (ctypes.c_int64 * (2 * ndim))(*tensor.shape, *tensor.stride())
    at = ctypes.addressof(numbers)
    pointer = ctypes.POINTER(ctypes.c_int64)
    address = tensor.piece.address if stored else tensor.data_ptr()
    out.data, out.byte_offset, out.ndim = address, 0, ndim
    out.device.device_type = _CPU if kind == "cpu" else _CUDA
    out.device.device_id = device.index or 0
    out.dtype.code, out.dtype.bits, out.dtype.lanes = _code(tensor.dtype), 8 * tensor.itemsize, 1
    out.shape = ctypes.cast(at, pointer)
    out.strides = ctypes.cast(at + 8 * ndim, pointer)
    return numbers


def describe(tensors: list[torch.Tensor]) -> ctypes.Array:
    """An array of DLTensor; valid while the tensors live and are not changed."""
    array = (DLTensor * max(len(tensors), 1))()
    if view is None:
        array.numbers = [fill(out, tensor) for out, tensor in zip(array, tensors, strict=False)]
        return array
    size = ctypes.sizeof(DLTensor)
    base = ctypes.addressof(array)
    numbers = []  # of what torch knows no address of
    for i, tensor in enumerate(tensors):
        if type(tensor) is StoredState:
            numbers.append(fill(array[i], tensor))
        else:
            view(tensor, base + i * size)
    array.numbers = numbers
    return array


def _overrides(kind: type, name: str) -> bool:
    """Whether a subclass of Tensor, other than torch's own, defines the name."""
    own = (torch.nn.Parameter, torch.Tensor, torch._C.TensorBase, object)
    return any(name in base.__dict__ for base in kind.__mro__ if base not in own)


def why_not_stepped_there(tensor: torch.Tensor) -> str | None:
    """Why no engine steps a tensor where it lies, to stand after its name, or None."""
    kind = tensor.device.type
    if kind == "cpu" or (kind == "cuda" and torch.version.hip is None):
        return None
    return f"is on device '{tensor.device}'; supported are 'cpu' and 'cuda' of NVIDIA"


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Whether reading the memory of the object itself is right: a Tensor, a
    Parameter, or a subclass that changes nothing about dispatch."""
    kind = type(tensor)
    if kind is torch.nn.Parameter or kind is torch.Tensor:
        return True
    lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
    return not lazy and not _overrides(kind, "__torch_dispatch__")


def has_plain_grad(tensor: torch.Tensor) -> bool:
    """Whether ``tensor.grad`` is what torch's own descriptor gives."""
    kind = type(tensor)
    if kind is torch.nn.Parameter or kind is torch.Tensor:
        return True
    return not _overrides(kind, "grad") and not _overrides(kind, "__torch_function__")


def obstacle(param: torch.Tensor, grad: torch.Tensor | None) -> tuple[str, bool] | None:
    """Why a parameter cannot be stepped by a compiled kernel, or None.

    The words, to stand after the parameter's name, and whether torch's own
    optimizers can be left to deal with it.
    """
    for what, tensor in (("", param), ("has a gradient that ", grad)):
        if tensor is None:
            continue
        if not is_ordinary(tensor):
            return f"{what}is a '{type(tensor).__name__}'", True
        if tensor.is_sparse or tensor.layout is not torch.strided:
            return f"{what}has layout {tensor.layout}", True
        if tensor.device.type == "meta":
            return f"{what}is on device 'meta' and has no memory", False
        if words := why_not_stepped_there(tensor):
            return f"{what}{words}", True
        if tensor.is_complex():
            return f"{what}has complex dtype {tensor.dtype}", True
        if tensor.dtype not in STORAGE:
            supported = ", ".join(str(dtype) for dtype in STORAGE)
            words = f"{what}has dtype {tensor.dtype}; supported are {supported}"
            return words, tensor.is_floating_point()
        if tensor.is_neg():
            return f"{what}is a lazily negated view", True
    if grad is not None and grad.dtype is torch.float64 and param.dtype is not torch.float64:
        return f"has dtype {param.dtype} and a gradient of torch.float64", True
    return None


def divided(tensor: torch.Tensor, number: float) -> torch.Tensor:
    """``tensor / number`` with the same bits on every device: where it is a number, CUDA
    multiplies by its reciprocal. Narrow types are divided as f32, as there."""
    if tensor.device.type == "cpu":
        return tensor / number
    wide = torch.promote_types(tensor.dtype, torch.float32)
    divisor = torch.full((), number, dtype=wide, device=tensor.device)
    return (tensor.to(wide) / divisor).to(tensor.dtype)


def set_grad(tensor: torch.Tensor, grad: torch.Tensor | None) -> None:
    """Gives a tensor that is no user's its gradient, which may be of another dtype."""
    tensor.grad = None
    if grad is not None:
        tensor.grad_dtype = None
        tensor.grad = grad
