# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a durable file of states has of tensors in memory: large ones as pieces of it, and the small
ones as one. Where each is to be found is a piece, too, which is written where that has changed."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable

import torch

from ... import errors
from ..tensors.stored import StoredState, StoredStates

_UNIT = 16  # bytes that a small tensor begins at a multiple of
_SMALL = (-1, "small tensors")
_PLACES = (-1, "places")  # keys of no parameter


def as_bytes(value: object) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def from_bytes(content: bytes, file: str) -> dict:
    """StoreError for what is more than numbers, strings and tensors."""
    try:
        return torch.load(io.BytesIO(content), weights_only=True)
    except pickle.UnpicklingError as error:
        raise errors.StoreError(
            f"{file} has a note that cannot be read: {error}", "STEPC_STORE_ERROR"
        ) from None


class Kept:
    """Of one store, by number and name."""

    def __init__(self):
        self.pieces: dict[tuple[int, str], StoredState] = {}
        self._small = _Small([])
        self._places: tuple | None = None  # those that the file has

    def write(self, key: tuple[int, str], value: torch.Tensor, store) -> tuple:
        """Where the file has it."""
        like = torch.empty_like(value, device="meta", requires_grad=False)
        known = self.pieces.get(key)
        layout = like.dtype, like.shape, like.stride()
        if known is None or (known.dtype, known.shape, known.stride()) != layout:
            self.pieces[key] = known = StoredStates(store).make(like)
        known.write(value)
        return known.layout_in_file

    def write_small(self, values: list[tuple], store) -> tuple:
        """Of keys with their tensors: where the file has all of them, and where each is in that."""
        lines = [(*key, value.dtype, tuple(value.shape)) for key, value in values]
        if lines != self._small.lines:
            self._small = _Small(lines)
        self._small.take([value for _, value in values])
        return self.write(_SMALL, self._small.memory, store), lines

    def write_places(self, places: tuple, make: Callable[[], dict], store) -> tuple:
        """Where the file has what was made, of what depends on these places alone."""
        if places != self._places:
            content = as_bytes(make())
            memory = torch.empty(len(content), dtype=torch.uint8, device="cpu")
            ctypes.memmove(memory.data_ptr(), content, len(content))
            self.write(_PLACES, memory, store)
            self._places = places
        return self.pieces[_PLACES].layout_in_file

    def read_places(self, layout: tuple, file: str, store) -> dict:
        self.pieces[_PLACES] = piece = StoredState.at(store, *layout)
        memory = piece.read()
        return from_bytes(ctypes.string_at(memory.data_ptr(), memory.numel()), file)

    def read_small(self, layout: tuple, lines: list[tuple], store) -> dict:
        self.pieces[_SMALL] = piece = StoredState.at(store, *layout)
        small = _Small(lines, piece.read())
        keys = [(number, name) for number, name, _, _ in lines]
        return dict(zip(keys, (view.clone() for view in small.views), strict=True))

    def drop_others(self, keys: set[tuple[int, str]]) -> None:
        """Pieces of tensors that are gone."""
        keys = {*keys, _SMALL, _PLACES}
        self.pieces = {key: piece for key, piece in self.pieces.items() if key in keys}


class _Small:
    """Tensors, all in one; each has its key there, dtype and shape."""

    def __init__(self, lines: list[tuple], memory: torch.Tensor | None = None):
        sizes = [torch.Size(shape).numel() * dtype.itemsize for _, _, dtype, shape in lines]
        total = sum(-(-size // _UNIT) * _UNIT for size in sizes)
        self.lines = lines
        if memory is None:
            memory = torch.zeros(total, dtype=torch.uint8, device="cpu")
        self.memory, self.views, at = memory, [], 0
        for (_, _, dtype, shape), size in zip(lines, sizes, strict=True):
            self.views.append(memory[at : at + size].view(dtype).view(shape))
            at += -(-size // _UNIT) * _UNIT

    @torch.no_grad()
    def take(self, values: list[torch.Tensor]) -> None:
        if values:
            torch._foreach_copy_(self.views, values)
