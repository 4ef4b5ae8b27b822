# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors one after the other in bytes that a rank sends to another."""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist

from .shared_memory import all_to_all

_ALIGNMENT = 16  # bytes, of each tensor in a message


def aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def pack(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One after the other, as bytes."""
    line = torch.zeros(
        sum(aligned(t.numel() * t.element_size()) for t in tensors),
        dtype=torch.uint8,
        device="cpu",
    )
    place = 0
    for tensor in tensors:
        own = tensor.detach().contiguous().view(-1).view(torch.uint8)
        line[place : place + own.numel()] = own
        place += aligned(own.numel())
    return line


class Reader:
    """Takes tensors out of a message, in their order."""

    def __init__(self, message: torch.Tensor):
        self._message, self._place = message, 0

    def tensor(self, dtype: torch.dtype, size: int) -> torch.Tensor:
        begin, length = self._place, size * dtype.itemsize
        self._place += aligned(length)
        return self._message[begin : begin + length].view(dtype)

    def numbers(self, size: int) -> list[int]:
        return self.tensor(torch.int64, size).tolist()


def exchange(messages, sizes: list[int], group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Gives each rank its message; returns those of all ranks, of these sizes."""
    sent = torch.cat(messages)
    received = torch.zeros(sum(sizes), dtype=torch.uint8, device="cpu")
    own = [message.numel() for message in messages]
    all_to_all(received, sent, sizes, own, group)
    ends = list(itertools.accumulate(sizes, initial=0))
    return [received[a:b].clone() for a, b in itertools.pairwise(ends)]
