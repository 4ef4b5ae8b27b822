# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State tensors that lie in a file (docs/placement.md)."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator

import torch

from ... import errors
from ..._store import Piece, Store

_WINDOW = 16 << 20  # bytes that are copied at a time
_MAPPED = 1 << 20  # of this size a copy is a file


class _Mapped:
    """Memory for a tensor that looks as ``like``, a dense one, which is a file without a name.
    StoreError where none can be made."""

    def __init__(self, like: torch.Tensor, directory: str):
        size = like.numel() * like.itemsize
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                os.posix_fallocate(file.fileno(), 0, size)
                self._memory = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise errors.StoreError(
                f"a copy of a state, {size} bytes, cannot be made in '{directory}': "
                f"{error.strerror}",
                "STEPC_STORE_ERROR",
            ) from None
        self.line = torch.frombuffer(self._memory, dtype=torch.uint8)
        self.tensor = self.line.view(like.dtype).as_strided(like.size(), like.stride())

    def windows(self) -> Iterator[tuple[int, int]]:
        """Begin and size of each, in bytes."""
        for first in range(0, len(self._memory), _WINDOW):
            yield first, min(_WINDOW, len(self._memory) - first)

    def release(self, first: int, size: int) -> None:
        """What is in the file need not stay in memory."""
        self._memory.madvise(mmap.MADV_DONTNEED, first, size)


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

    ``read()`` makes an ordinary tensor of it, as pickling and copying do. ``piece`` is where it
    lies.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    piece: Piece

    @staticmethod
    def make(store: Store, like: torch.Tensor) -> StoredState:
        """One of zeros, which looks as ``like``, a dense tensor of device "meta"."""
        return StoredState._of(like, store.take(like.numel() * like.itemsize))

    @staticmethod
    def _of(like: torch.Tensor, piece: Piece) -> StoredState:
        made = torch.Tensor._make_subclass(StoredState, like)
        made.piece = piece
        return made

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
            self.piece.read(mapped.line.data_ptr() + first, size, first)
            mapped.release(first, size)
        return mapped.tensor

    def write(self, source: torch.Tensor) -> None:
        """Copies values into it, of its shape and any dtype and device."""
        if not self.numel():
            return
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

    def reshape(self, *shape) -> StoredState:
        """The same bytes in another shape."""
        return self._of(self.as_subclass(torch.Tensor).view(*shape), self.piece)

    def detach(self) -> StoredState:
        return self

    def __repr__(self, **_):
        return f"StoredState({list(self.shape)}, {self.dtype}, in a file)"

    def __deepcopy__(self, memo):
        memo[id(self)] = copy = self.read()
        return copy

    def __reduce_ex__(self, protocol):
        return self.read().__reduce_ex__(protocol)


def in_memory(value, directory: str | None = None):
    """A state, read where it lies in a file; whatever else it is, itself."""
    return value.read(directory) if isinstance(value, StoredState) else value
