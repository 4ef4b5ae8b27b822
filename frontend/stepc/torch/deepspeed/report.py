# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was done about each key of a configuration, and the warning of what was not."""

from __future__ import annotations

import warnings

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..ranks.dtensor import is_dtensor
from ..tensors.callers import level_of_caller
from .keys import ACTED, ENGINE, NONE
from .reading import Said

# What only Zero acts on.
_OF_ZERO = (
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.overlap_comm",
    "prescale_gradients",
    "communication_data_type",
)


def report(said: Said, shares: bool, own_masters: str | None) -> dict[str, str]:
    """By key of the file what was done about it; ``shares``: whether ranks share states by Zero,
    without which what is its is that of whoever averages gradients; ``own_masters``: "fp16" or
    "bf16", where DTensors in float32 are stepped."""
    keys = said.report()
    if own_masters:
        keys[f"{own_masters}.enabled"] = f"{ACTED}: float32 DTensors are their own masters"
    for path in ("fp16.hysteresis", "fp16.consecutive_hysteresis"):
        if path in keys and said["fp16.enabled"] and not said["zero_optimization.stage"]:
            keys[path] = f"{NONE}: on stage 0 every overflow lowers the scale"
    for path in () if shares else _OF_ZERO:
        if path in keys:
            keys[path] = f"{ENGINE}: DistributedDataParallel's or fully_shard's"
    if said["zero_optimization.stage"] in (1, 2) and not shares:
        keys["zero_optimization.stage"] = f"{NONE}: one process has nothing to share"
    if "gradient_clipping" not in said:
        keys["gradient_clipping"] = "is absent: DeepSpeed's default of 1.0 is taken"
    return keys


def notes_of(said: Said, model, params, world: int, features: dict) -> list[str]:
    """What the warning has beside keys."""
    notes, stage = [], said["zero_optimization.stage"]
    averaged = any(isinstance(module, DistributedDataParallel) for module in model.modules())
    if world > 1 and not stage and not averaged and not any(map(is_dtensor, params)):
        notes.append(
            "on stage 0 nothing averages the gradients of the model over ranks: wrap it in "
            "DistributedDataParallel"
        )
    if stage and "clip" in features and str(said["optimizer.type"]).lower() == "muon":
        notes.append(
            "Muon is clipped before it orthogonalizes; with ZeRO DeepSpeed clips behind that"
        )
    return notes


def tell(keys: dict[str, str], notes: list[str]) -> None:
    """One warning of all that is not acted on, and of ``notes``, on the first rank."""
    parts = []
    for words in (ENGINE, NONE):
        names = [path for path, done in keys.items() if done.startswith(f"{words}: ")]
        parts += [f"{words}: {', '.join(names)}"] * bool(names)
    if keys["gradient_clipping"].startswith("is absent"):
        parts.append(f"gradient_clipping {keys['gradient_clipping']}")
    parts += notes
    if parts and not (dist.is_initialized() and dist.get_rank()):
        warnings.warn(
            f"stepc: of the DeepSpeed configuration {'; '.join(parts)}",
            stacklevel=level_of_caller(),
        )
