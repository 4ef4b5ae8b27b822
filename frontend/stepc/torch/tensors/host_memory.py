# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State tensors of a CUDA device that lie in the host's memory (docs/placement.md)."""

from __future__ import annotations

import torch

from ..._host_memory import is_host, take
from .device_memory import adopted


class HostMemory:
    """Page-locked memory of the host, for tensors of a device, which reaches it in place. To torch
    such a tensor is the device's: what it does with one is in order with steps, and copies of
    it are in the device's memory."""

    def __init__(self, device: torch.device):
        self._device = device

    def make(self, like: torch.Tensor) -> torch.Tensor:
        """One that looks as ``like``, a dense one of device "meta", not filled; at least one
        element. OutOfMemoryError."""
        stream = torch.cuda.current_stream(self._device).cuda_stream
        line = adopted(take(self._device.index, like.numel() * like.itemsize, stream))
        made = torch.empty(0, dtype=like.dtype, device=self._device)
        return made.set_(line.untyped_storage(), 0, like.size(), like.stride())

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.device == self._device and is_on_host(tensor)


def is_on_host(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or a rank's part of it, is a device's and lies in memory of the host."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.device.type == "cuda" and is_host(local.device.index, local.data_ptr())
