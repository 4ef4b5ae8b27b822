# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DTensors as what a rank has of them, and back."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .dtensor import is_dtensor


class Spread(NamedTuple):
    """How a tensor lies on the mesh of its parameter: its shape and strides, and of each dim of
    the mesh which dim is cut, and by which factor before, or None."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    cuts: tuple

    def packed(self) -> tuple:
        return tuple(self)

    @classmethod
    def of(cls, packed: tuple) -> Spread:
        return cls(*packed)

    def of_param(self, local: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
        """A rank's part, as a DTensor on the parameter's mesh."""
        from torch.distributed.tensor import DTensor

        placements = []
        for cut, own in zip(self.cuts, param.placements, strict=True):
            placements.append(_placement(cut, own))
        shape = torch.Size(self.shape)
        return DTensor.from_local(
            local, param.device_mesh, placements, run_check=False, shape=shape, stride=self.stride
        )


def _placement(cut, own):
    from torch.distributed.tensor import Replicate, Shard

    if cut is None:
        return Replicate()
    dim, factor = cut
    return Shard(dim) if factor is None else type(own)(dim, split_factor=factor)


def local_of(value) -> tuple:
    """A tensor or what this rank has of it, and how it lies; None of one that is no DTensor."""
    if not isinstance(value, torch.Tensor) or not is_dtensor(value):
        return value, None
    cuts = tuple(
        None if p.is_replicate() else (p.dim, getattr(p, "split_factor", None))
        for p in value.placements
    )
    return value.to_local(), Spread(tuple(value.shape), tuple(value.stride()), cuts)
