# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of state tensors and of step counters."""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from ..._store import SMALL
from ..tensors.host_memory import HostMemory
from ..tensors.stored import StoredState, StoredStates

_ALIGNMENT = 64  # bytes, of each tensor in a block


@dataclass(slots=True)
class Request:
    """A state that a parameter needs, with the value of ``source`` or ``init``.

    ``shape`` None: like the parameter in shape and memory order; else dense. Those of one name
    and one ``joint`` lie one behind the other, in the order of the requests; or as ``pieces_of``
    cuts the line that has all their elements, if all of them have it.
    """

    param: torch.Tensor
    name: str
    dtype: torch.dtype
    init: float
    source: torch.Tensor | None = None
    shape: tuple[int, ...] | None = None
    joint: int | None = None
    home: StoredStates | HostMemory | None = None  # where it lies, or None: where param does
    pieces_of: Callable[[torch.Tensor], list[torch.Tensor]] | None = None
    is_small: bool = False

    def __post_init__(self):
        if self.joint is not None:
            return
        if self.shape is None:
            self.is_small = is_small(self.param)
        else:
            self.is_small = math.prod(self.shape) <= SMALL

    def layout(self) -> tuple[torch.Size | tuple, tuple]:
        """Shape and strides."""
        if self.shape is None:
            return self.param.shape, self.param.stride()
        inner = (max(extent, 1) for extent in self.shape[:0:-1])
        strides = itertools.accumulate(inner, operator.mul, initial=1)
        return self.shape, tuple(strides)[::-1] if self.shape else ()

    def make(self) -> torch.Tensor:
        """A tensor of its own, not filled; in a file of zeros."""
        device = self.param.device if self.home is None else "meta"
        if self.shape is not None:
            made = torch.empty(self.shape, dtype=self.dtype, device=device)
        else:
            made = torch.empty_like(
                self.param,
                dtype=self.dtype,
                device=device,
                requires_grad=False,
                memory_format=torch.preserve_format,
            )
        return made if self.home is None else self.home.make(made)

    def fill(self, tensor: torch.Tensor) -> None:
        """Gives what was made its values."""
        if self.source is not None:
            write = tensor.write if isinstance(tensor, StoredState) else tensor.copy_
            write(self.source)
        elif isinstance(tensor, StoredState):
            if self.init or math.copysign(1.0, self.init) < 0:
                tensor.fill_(self.init)
        elif self.home is not None or not self.is_small:
            tensor.fill_(self.init)


def allocate(requests: list[Request]) -> list[torch.Tensor]:
    """The requested tensors, filled, in order; where their parameters lie, which is one
    device."""
    tensors: list[torch.Tensor | None] = [None] * len(requests)
    blocks = defaultdict(list)
    joints = defaultdict(list)
    for i, request in enumerate(requests):
        if request.home is not None:
            tensors[i] = request.make()
        elif request.joint is not None:
            joints[request.joint, request.name].append(i)
        elif request.is_small and math.prod(request.layout()[0]):  # of nothing no part is taken
            blocks[request.name, request.dtype].append(i)
        else:
            tensors[i] = request.make()
    for (_, dtype), members in blocks.items():
        _carve(requests, members, dtype, tensors)
    for members in joints.values():
        _join(requests, members, tensors)
    for request, tensor in zip(requests, tensors, strict=True):
        request.fill(tensor)
    return tensors


def as_shown(tensor: torch.Tensor, dropped: int | None) -> torch.Tensor:
    """A state as the user has it: without the kept dim that its class drops."""
    return tensor if dropped is None else tensor.squeeze(dropped)


def as_bound(tensor: torch.Tensor, dropped: int | None) -> torch.Tensor:
    """The same memory as the plan has it."""
    return tensor if dropped is None else tensor.unsqueeze(dropped)


def wants_huge_pages() -> bool:
    """Whether large parameters and states are put on huge pages, a hint to the
    system: unless STEPC_HUGE_PAGES=0."""
    return os.environ.get("STEPC_HUGE_PAGES", "1") != "0"


def is_small(param: torch.Tensor) -> bool:
    return param.numel() <= SMALL and param.is_contiguous()


def _carve(requests, members: list[int], dtype: torch.dtype, tensors: list) -> None:
    """Fills the places ``members`` of ``tensors`` with parts of one block."""
    unit = _ALIGNMENT // dtype.itemsize
    layouts = [requests[i].layout() for i in members]
    sizes = [-(-math.prod(shape) // unit) * unit for shape, _ in layouts]
    inits = {requests[i].init for i in members}
    block = torch.empty(sum(sizes), dtype=dtype, device=requests[members[0]].param.device)
    block.fill_(inits.pop() if len(inits) == 1 else 0.0)
    offset = 0
    for i, size, (shape, strides) in zip(members, sizes, layouts, strict=True):
        tensors[i] = _alone(block.as_strided(shape, strides, offset))
        if inits:  # they differ
            tensors[i].fill_(requests[i].init)
        offset += size


def _join(requests, members: list[int], tensors: list) -> None:
    """Fills the places ``members`` of ``tensors`` with all of one memory."""
    layouts = [requests[i].layout() for i in members]
    sizes = [math.prod(shape) for shape, _ in layouts]
    first = requests[members[0]]
    line = torch.empty(sum(sizes), dtype=first.dtype, device=first.param.device)
    made = first.pieces_of(line) if first.pieces_of is not None else []
    if len(made) != len(members):
        made = [part.view(s) for part, (s, _) in zip(line.split(sizes), layouts, strict=True)]
    for i, part in zip(members, made, strict=True):
        tensors[i] = part


def _alone(view: torch.Tensor) -> torch.Tensor:
    """The view, with a storage that begins and ends where it does: ``_base`` and the version
    counter stay those of what it is a view of, whose memory the storage keeps. It does so by an
    alias: by the view itself the two would keep each other."""
    view.data = from_dlpack(to_dlpack(view.detach()))
    return view


class Counters:
    """Counts of steps, in the processor's memory as torch has its counters: ``mirror``, which
    the plan writes, and ``shown``, of which the user has the elements. They are one vector,
    unless the default dtype is float64, and torch's counters with it.

    ``version``: of ``shown`` after our step; another one says that somebody wrote a count.
    """

    def __init__(self, shown: torch.Tensor, mirror: torch.Tensor):
        self.shown, self.mirror = shown, mirror
        self.note()

    @classmethod
    def zeros(cls, number: int, dtype: torch.dtype) -> Counters:
        mirror = torch.zeros(number, dtype=torch.float32, device="cpu")
        return cls(mirror if dtype is torch.float32 else mirror.to(dtype), mirror)

    def elements(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of each count what the user has, and what the plan writes."""
        shown = list(map(_alone, self.shown.unbind()))
        mirrors = shown if self.shown is self.mirror else self.mirror.unbind()
        return list(zip(shown, mirrors, strict=True))

    def note(self) -> None:
        """Shows what the plan has written."""
        if self.shown is not self.mirror:
            self.shown.copy_(self.mirror)
        self.version = self.shown._version

    def is_written(self) -> bool:
        """Whether somebody else has written a count."""
        return self.shown._version != self.version


def owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose version counter the tensor shares."""
    base = tensor._base
    return tensor if base is None else base
