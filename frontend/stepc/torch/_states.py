# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of state tensors and of step counters."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass

import torch

# Tensors of at most this many elements are carved from a common block: they
# lie in the order of the parameters, and share one version counter.
SMALL = 16384
_ALIGNMENT = 64  # bytes, of each tensor in a block


@dataclass(frozen=True)
class Request:
    """A state that a parameter needs: like it in shape and memory order."""

    param: torch.Tensor
    name: str
    dtype: torch.dtype
    init: float
    source: torch.Tensor | None = None  # its value, where it has one


def allocate(requests: list[Request]) -> list[torch.Tensor]:
    """The requested tensors, filled, in order."""
    tensors: list[torch.Tensor | None] = [None] * len(requests)
    blocks = defaultdict(list)
    for i, request in enumerate(requests):
        if is_small(request.param):
            blocks[request.name, request.dtype].append(i)
        else:
            tensors[i] = torch.empty_like(
                request.param,
                dtype=request.dtype,
                requires_grad=False,
                memory_format=torch.preserve_format,
            )
    for (_, dtype), members in blocks.items():
        _carve(requests, members, dtype, tensors)
    for request, tensor in zip(requests, tensors, strict=True):
        if request.source is not None:
            tensor.copy_(request.source)
        elif not is_small(request.param):
            tensor.fill_(request.init)
    return tensors


def wants_huge_pages() -> bool:
    """Whether large parameters and states are put on huge pages, a hint to the
    system: unless STEPC_HUGE_PAGES=0."""
    return os.environ.get("STEPC_HUGE_PAGES", "1") != "0"


def is_small(param: torch.Tensor) -> bool:
    return param.numel() <= SMALL and param.is_contiguous()


def _carve(requests, members: list[int], dtype: torch.dtype, tensors: list) -> None:
    """Fills the places ``members`` of ``tensors`` with parts of one block."""
    unit = _ALIGNMENT // dtype.itemsize
    sizes = [-(-requests[i].param.numel() // unit) * unit for i in members]
    inits = {requests[i].init for i in members}
    block = torch.empty(sum(sizes), dtype=dtype)
    block.fill_(inits.pop() if len(inits) == 1 else 0.0)
    offset = 0
    for i, size in zip(members, sizes, strict=True):
        param = requests[i].param
        tensors[i] = block.as_strided(param.shape, param.stride(), offset)
        if inits:  # they differ
            tensors[i].fill_(requests[i].init)
        offset += size


def counters(number: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One float32 vector of zeros, and a 0-d view of each element."""
    vector = torch.zeros(number, dtype=torch.float32)
    return vector, list(vector.unbind())


def owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose version counter the tensor shares."""
    base = tensor._base
    return tensor if base is None else base
