# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State tensors that lie in a file (docs/placement.md)."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator

import torch

from ... import errors
from ..._store import Piece, Store

_WINDOW = 16 << 20  # bytes that are copied at a time
_MAPPED = 1 << 20  # of this size a copy is a file
_libc = ctypes.CDLL(None)

# What a tensor without memory knows of itself.
_ATTRIBUTES = """shape dtype device layout ndim itemsize nbytes requires_grad is_leaf grad grad_fn
    _version _base is_meta is_cpu is_cuda is_sparse is_quantized is_nested is_mkldnn"""
_METHODS = """size stride dim ndimension numel nelement element_size storage_offset is_contiguous
    is_floating_point is_complex is_inference is_shared is_conj is_neg is_set_to get_device
    __len__ __hash__ untyped_storage _is_view"""
_KNOWN = {getattr(torch.Tensor, name, None) for name in _METHODS.split()}
_KNOWN |= {getattr(getattr(torch.Tensor, n, None), "__get__", None) for n in _ATTRIBUTES.split()}


class _Mapped:
    """Memory for a tensor that looks as ``like``, a dense one, which is a file without a name.
    StoreError where none can be made."""

    def __init__(self, like: torch.Tensor, directory: str):
        self._size = like.numel() * like.itemsize
        try:
            file, path = tempfile.mkstemp(dir=directory)
            try:
                os.posix_fallocate(file, 0, self._size)
                # Which keeps no descriptor: there may be thousands of states.
                storage = torch.UntypedStorage.from_file(path, True, self._size)
            finally:
                os.close(file)
                os.unlink(path)
        except OSError as error:
            raise errors.StoreError(
                f"a copy of a state, {self._size} bytes, cannot be made in '{directory}': "
                f"{error.strerror}",
                "STEPC_STORE_ERROR",
            ) from None
        self.address = storage.data_ptr()
        self.tensor = torch.empty(0, dtype=like.dtype, device="cpu").set_(
            storage, 0, like.size(), like.stride()
        )

    def windows(self) -> Iterator[tuple[int, int]]:
        """Begin and size of each, in bytes."""
        for first in range(0, self._size, _WINDOW):
            yield first, min(_WINDOW, self._size - first)

    def release(self, first: int, size: int) -> None:
        """What is in the file need not stay in memory."""
        _libc.madvise(
            ctypes.c_void_p(self.address + first), ctypes.c_size_t(size), mmap.MADV_DONTNEED
        )


def copied(value: torch.Tensor, dtype: torch.dtype, directory: str | None) -> torch.Tensor:
    """A copy in the processor's memory, in a dtype; with ``directory`` of a large dense tensor one
    that is a file there, as of :meth:`StoredState.read`."""
    large = value.numel() * dtype.itemsize >= _MAPPED and value.is_contiguous()
    if directory is None or not large or value.device.type != "cpu":
        return value.to(dtype=dtype, device="cpu", copy=True)
    mapped = _Mapped(torch.empty_like(value, dtype=dtype, device="meta"), directory)
    source, line = value.detach().view(-1), mapped.tensor.view(-1)
    for first, size in mapped.windows():
        part = slice(first // dtype.itemsize, (first + size) // dtype.itemsize)
        line[part].copy_(source[part])
        mapped.release(first, size)
    return mapped.tensor


class StoredState(torch.Tensor):
    """A state in a file, between steps and in them: a tensor of device "meta", which has shape,
    strides and dtype, and no memory.

    ``read()`` makes an ordinary tensor of it, as ``cpu``, ``clone``, pickling and copying do, and
    ``write(...)`` is ``copy_``; ``fill_`` and ``zero_`` are as those of others. What else is asked
    of it is a TypeError. ``piece`` is where it lies.
    """

    piece: Piece

    @classmethod
    def __torch_function__(cls, function, _types, args=(), kwargs=None):
        if function not in _KNOWN:
            name = getattr(function, "__name__", str(function))
            own = name in ("__get__", "__set__")
            name = function.__self__.__name__ if own else f"{name}()"
            raise TypeError(
                f"a state that lies in a file has no {name}: read() makes a tensor of it, and "
                "write(tensor) puts one there"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @staticmethod
    def at(store: Store, offset: int, dtype: torch.dtype, shape, stride) -> StoredState:
        """What an earlier process has left in the store; ``layout_in_file`` says where."""
        like = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        return StoredState._of(like, store.piece_at(offset, like.numel() * like.itemsize))

    @property
    def layout_in_file(self) -> tuple:
        """What ``at`` takes behind the store."""
        return self.piece.offset, self.dtype, tuple(self.shape), tuple(self.stride())

    @staticmethod
    def _of(like: torch.Tensor, piece: Piece) -> StoredState:
        made = torch.Tensor._make_subclass(StoredState, like)
        made.piece = piece
        return made

    @property
    def _alone(self) -> torch.Tensor:
        """The tensor of device "meta"."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    @property
    def size_in_bytes(self) -> int:
        return self.numel() * self.itemsize

    def _memory(self) -> torch.Tensor:
        return torch.empty_strided(self.size(), self.stride(), dtype=self.dtype, device="cpu")

    def read(self, directory: str | None = None) -> torch.Tensor:
        """A copy in memory; with ``directory`` one that is itself a file without a name there,
        mapped into memory, which the system may write out: so a large state is read without
        having memory for it. StoreError."""
        if directory is None or self.size_in_bytes < _MAPPED:
            made = self._memory()
            if self.numel():
                self.piece.read(made.data_ptr(), self.size_in_bytes)
            return made
        return self._read_mapped(directory)

    def _read_mapped(self, directory: str) -> torch.Tensor:
        mapped = _Mapped(self, directory)
        for first, size in mapped.windows():
            self.piece.read(mapped.address + first, size, first)
            mapped.release(first, size)
        return mapped.tensor

    def write(self, source: torch.Tensor) -> None:
        """Copies values into it, of its shape and any dtype and device."""
        if not self.numel():
            return
        made, own = source.detach(), (self.dtype, self.size(), self.stride())
        alike = (made.dtype, made.size(), made.stride()) == own and not made.is_neg()
        if not alike or made.device.type != "cpu":
            made = self._memory()
            made.copy_(source)
        self.piece.write(made.data_ptr(), self.size_in_bytes)

    def fill_(self, value: float) -> StoredState:
        """Makes all elements the value."""
        count = min(self.numel(), _WINDOW // self.itemsize)
        part = torch.full((count,), value, dtype=self.dtype, device="cpu")
        for first in range(0, self.size_in_bytes, max(count, 1) * self.itemsize):
            size = min(count * self.itemsize, self.size_in_bytes - first)
            self.piece.write(part.data_ptr(), size, first)
        return self

    def zero_(self) -> StoredState:
        return self.fill_(0)

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> StoredState:
        self.write(source.expand(self.size()))
        return self

    def clone(self, **_) -> torch.Tensor:
        return self.read()

    cpu = clone

    def reshape(self, *shape) -> StoredState:
        """The same bytes in another shape."""
        return self._of(self._alone.view(*shape), self.piece)

    def detach(self) -> StoredState:
        return self

    def __repr__(self, **_):
        return f"StoredState({list(self.shape)}, {self.dtype}, in a file)"

    def __deepcopy__(self, memo):
        memo[id(self)] = copy = self.read()
        return copy

    def __reduce_ex__(self, protocol):
        return self.read().__reduce_ex__(protocol)


class StoredStates:
    """A file in which states lie."""

    def __init__(self, store: Store):
        self.store = store

    def make(self, like: torch.Tensor) -> StoredState:
        """One of zeros, which looks as ``like``, a dense tensor of device "meta"."""
        return StoredState._of(like, self.store.take(like.numel() * like.itemsize))

    def has(self, tensor: torch.Tensor) -> bool:
        return isinstance(tensor, StoredState) and tensor.piece.store is self.store


def in_memory(value, directory: str | None = None):
    """A state, read where it lies in a file; whatever else it is, itself."""
    return value.read(directory) if isinstance(value, StoredState) else value
