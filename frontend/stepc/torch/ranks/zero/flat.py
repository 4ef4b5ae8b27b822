# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``flatten_parameters``: parameters that lie side by side, so that they are gathered there.

``.data`` of a parameter is pointed into a buffer of all that are bound together and have its
dtype: the parameters of a bucket follow each other there. What a rank has stepped is sent from
there, and what other ranks have comes to its place. The parameter is the same object with the same
shape and values. Its memory is a storage of its own that is a part of the buffer's: what is saved
or copied of it is the parameter alone.

What is moved elsewhere afterwards, as by ``model.to()``, is noticed as any parameter that
moves, and pointed back with the values that it then has.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import torch

from ...tensors.members import ObstacleError
from ..dtensor import is_dtensor


class _Line:
    """Parameters of one dtype side by side in a buffer."""

    def __init__(self, parts: list):
        first, sizes = parts[0].param, [part.param.numel() for part in parts]
        self.parts = parts
        memory = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self._places = [
            _alone(piece, part.param.shape)
            for part, piece in zip(parts, memory.split(sizes), strict=True)
        ]

    def is_of(self, parts: list) -> bool:
        same = len(parts) == len(self.parts) and all(
            part.param is own.param for part, own in zip(parts, self.parts, strict=True)
        )
        return same and self.fits()

    def fits(self) -> bool:
        """Whether the parameters are still what there is a place for."""
        return all(_is_like(p.param, at) for p, at in zip(self.parts, self._places, strict=True))

    def take_back(self) -> None:
        """Points parameters that lie elsewhere to their places, with their values."""
        for part, place in zip(self.parts, self._places, strict=True):
            if part.param.numel() and part.param.data_ptr() != place.data_ptr():
                with torch.no_grad():
                    place.copy_(part.param)
                    part.param.data = place
                part.relocate()


def _is_like(param: torch.Tensor, place: torch.Tensor) -> bool:
    same = param.dtype == place.dtype and param.device == place.device
    return same and param.shape == place.shape


def _alone(view: torch.Tensor, shape) -> torch.Tensor:
    """The same memory as a storage of its own, which keeps the whole of it."""
    if not view.numel():
        return view.view(shape)
    return torch.from_dlpack(view.view(torch.uint8)).view(view.dtype).view(shape)


class FlatMemory:
    """The buffers of an optimizer's lines, by the ``id()`` of their first parameter."""

    def __init__(self):
        self._lines: dict[int, _Line] = {}

    def place(self, parts: list) -> None:
        """Has parameters that are bound together lie side by side; they have been checked."""
        kinds = defaultdict(list)
        for part in parts:
            kinds[part.param.dtype].append(part)
        for own in kinds.values():
            key = id(own[0].param)
            line = self._lines.get(key)
            if line is None or not line.is_of(own):
                line = self._lines[key] = _Line(own)
            line.parts = own
            line.take_back()

    def restore(self) -> None:
        """Points parameters back that have been moved elsewhere since. ObstacleError, with
        nothing moved, for one that must not be. Of one that has become another kind of tensor
        another line is to be made."""
        for key, line in list(self._lines.items()):
            if not line.fits():
                del self._lines[key]
        check([part for line in self._lines.values() for part in line.parts])
        for line in self._lines.values():
            line.take_back()


def check(parts: list) -> None:
    """ObstacleError for a parameter that must not be taken from where it lies."""
    for part in parts:
        why = _reason(part.param)
        if why:
            raise ObstacleError(
                f"{part.name} {why}; flatten_parameters=True would take it from there, and is for "
                "contiguous parameters with memory of their own",
                False,
            )
    own = [part for part in parts if part.param.numel()]
    own.sort(key=lambda part: part.param.data_ptr())
    for one, other in itertools.pairwise(own):
        if one.param.data_ptr() + one.param.nbytes > other.param.data_ptr():
            raise ObstacleError(
                f"{one.name} and {other.name} have memory in common, which "
                "flatten_parameters=True would part",
                False,
            )


def _reason(param: torch.Tensor) -> str:
    if is_dtensor(param):
        return "is a DTensor"
    if param.device.type != "cpu":
        return f"is on device '{param.device}', not on 'cpu'"
    if not param.is_contiguous():
        return f"has strides {param.stride()} for shape {tuple(param.shape)}"
    if param.is_shared():
        return "is in memory that processes share"
    size = param.untyped_storage().nbytes()
    if param.numel() and size != param.nbytes:
        return f"has {param.nbytes} of the {size} bytes of its storage, which others may have too"
    return ""
