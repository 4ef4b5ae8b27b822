# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ZeRO by its arguments, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from .... import errors
from .flat import FlatMemory

_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel's
_REDUCE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)

# Arguments that are of no use without zero.
DEFAULTS = {
    "gradients": None,
    "bucket_bytes": None,
    "reduce_bucket_bytes": None,
    "gather_bucket_bytes": None,
    "predivide": False,
    "overlap": True,
    "flatten_parameters": False,
}


@dataclass(frozen=True)
class ZeroSettings:
    """What an optimizer's arguments ``zero``, ``process_group``, ``gradients``,
    ``bucket_bytes``, ``reduce_bucket_bytes``, ``gather_bucket_bytes``, ``reduce_dtype``,
    ``predivide``, ``overlap`` and ``flatten_parameters`` say."""

    group: dist.ProcessGroup
    local_gradients: bool
    stage: int
    line_bytes: int  # of what is reduced and stepped together, at most, or one parameter
    gather_bytes: int  # of what is gathered together
    reduce_dtype: torch.dtype | None
    predivide: bool
    overlap: bool
    flat: FlatMemory | None  # in which the parameters lie

    def __str__(self) -> str:
        words = [
            f"zero={self.stage}",
            f"gradients='{'local' if self.local_gradients else 'reduced'}'",
        ]
        if self.line_bytes == self.gather_bytes:
            words.append(f"bucket_bytes={self.line_bytes}")
        else:
            words.append(f"reduce_bucket_bytes={self.line_bytes}")
            words.append(f"gather_bucket_bytes={self.gather_bytes}")
        if self.reduce_dtype is not None:
            words.append(f"reduce_dtype={self.reduce_dtype}")
        words += ["predivide=True"] * self.predivide
        words += ["overlap=False"] * (not self.overlap)
        words += ["flatten_parameters=True"] * (self.flat is not None)
        return ", ".join(words)

    def __reduce__(self):
        raise errors.StepcError(
            "an optimizer with zero cannot be copied or pickled: its process group cannot; "
            "save its state_dict"
        )


def settings(zero: int, process_group=None, reduce_dtype=None, **more) -> ZeroSettings | None:
    """Checks the arguments; None where states are not sharded. ValueError. ``more``: of
    :data:`DEFAULTS`."""
    given = DEFAULTS | more
    if zero not in (0, 1, 2):
        raise ValueError(f"zero is {zero!r}, expected 0, 1 or 2")
    if zero == 0:
        more = {"process_group": process_group, **given}
        for name, value in more.items():
            if value != DEFAULTS.get(name):
                raise ValueError(f"{name} is of no use without zero=1 or 2")
        return None
    _check_gradients(zero, given)
    line, gather = _bucket_bytes(given)
    if not dist.is_initialized():
        raise ValueError(f"zero={zero} needs torch.distributed.init_process_group before it")
    return ZeroSettings(
        process_group if process_group is not None else dist.group.WORLD,
        given["gradients"] == "local",
        zero,
        line,
        gather,
        reduce_dtype,
        bool(given["predivide"]),
        bool(given["overlap"]),
        FlatMemory() if given["flatten_parameters"] else None,
    )


def _check_gradients(zero: int, given: dict) -> None:
    gradients = given["gradients"]
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
    for name in ("predivide", "reduce_bucket_bytes"):
        if gradients == "reduced" and given[name]:
            raise ValueError(f"{name} is of no use with gradients='reduced': none is reduced here")


def _bucket_bytes(given: dict) -> tuple[int, int]:
    """Of what is reduced, and of what is gathered."""
    for name in ("bucket_bytes", "reduce_bucket_bytes", "gather_bucket_bytes"):
        if given[name] is not None and given[name] < 1:
            raise ValueError(f"{name} is {given[name]}, expected a positive number")
    both = given["bucket_bytes"] or _BUCKET_BYTES
    gather = given["gather_bucket_bytes"] or both
    # Where nothing is reduced, what is gathered is what is stepped together.
    reduce = given["reduce_bucket_bytes"] or both
    if given["gradients"] == "reduced":
        reduce = gather
    if given["flatten_parameters"] and gather > reduce:
        raise ValueError(
            f"gather_bucket_bytes is {gather} and reduce_bucket_bytes {reduce}: with "
            "flatten_parameters=True a bucket is gathered where its parameters lie, and not with "
            "others in one buffer"
        )
    return reduce, gather


def check_reduce_dtype(dtype) -> None:
    """ValueError for what gradients cannot cross ranks in."""
    if dtype is not None and dtype not in _REDUCE_DTYPES:
        raise ValueError(
            f"reduce_dtype is {dtype!r}, expected torch.bfloat16, torch.float16 or torch.float32"
        )
