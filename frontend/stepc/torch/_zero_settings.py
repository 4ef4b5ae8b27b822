# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ZeRO by its arguments, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import errors

_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel's
_REDUCE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class ZeroSettings:
    """What an optimizer's arguments ``zero``, ``process_group``, ``gradients``,
    ``bucket_bytes``, ``reduce_dtype`` and ``overlap`` say."""

    group: dist.ProcessGroup
    local_gradients: bool
    stage: int
    bucket_bytes: int  # of a line, at most, or one parameter
    reduce_dtype: torch.dtype | None
    overlap: bool

    def __str__(self) -> str:
        words = [
            f"zero={self.stage}",
            f"gradients='{'local' if self.local_gradients else 'reduced'}'",
            f"bucket_bytes={self.bucket_bytes}",
        ]
        if self.reduce_dtype is not None:
            words.append(f"reduce_dtype={self.reduce_dtype}")
        if not self.overlap:
            words.append("overlap=False")
        return ", ".join(words)

    def __reduce__(self):
        raise errors.StepcError(
            "an optimizer with zero cannot be copied or pickled: its process group cannot; "
            "save its state_dict"
        )


def settings(
    zero: int,
    process_group=None,
    gradients: str | None = None,
    bucket_bytes: int | None = None,
    reduce_dtype: torch.dtype | None = None,
    overlap: bool = True,
) -> ZeroSettings | None:
    """Checks the arguments; None where states are not sharded. ValueError."""
    if zero not in (0, 1, 2):
        raise ValueError(f"zero is {zero!r}, expected 0, 1 or 2")
    if zero == 0:
        given = {
            "process_group": process_group is not None,
            "gradients": gradients is not None,
            "bucket_bytes": bucket_bytes is not None,
            "overlap": not overlap,
        }
        for name, is_given in given.items():
            if is_given:
                raise ValueError(f"{name} is of no use without zero=1 or 2")
        return None
    if gradients not in ("reduced", "local"):
        raise ValueError(
            f"gradients is {gradients!r}, expected 'reduced' (all ranks have the same, as after "
            "DistributedDataParallel) or 'local' (each has its own; their mean is taken)"
        )
    if zero == 2 and gradients == "reduced":
        raise ValueError(
            "zero=2 reduces gradients itself, during the backward pass, and needs "
            "gradients='local'; over DistributedDataParallel, which has reduced them, zero=1 "
            "keeps as little"
        )
    if bucket_bytes is not None and bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}, expected a positive number")
    if not dist.is_initialized():
        raise ValueError(f"zero={zero} needs torch.distributed.init_process_group before it")
    return ZeroSettings(
        process_group if process_group is not None else dist.group.WORLD,
        gradients == "local",
        zero,
        bucket_bytes or _BUCKET_BYTES,
        reduce_dtype,
        bool(overlap),
    )


def check_reduce_dtype(dtype) -> None:
    """ValueError for what gradients cannot cross ranks in."""
    if dtype is not None and dtype not in _REDUCE_DTYPES:
        raise ValueError(
            f"reduce_dtype is {dtype!r}, expected torch.bfloat16, torch.float16 or torch.float32"
        )
