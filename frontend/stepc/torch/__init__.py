# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers for PyTorch. ``stepc.torch.X`` is ``torch.optim.X`` where torch has
one; ``Optimizer`` takes any definition."""

from ._features import ClipByNorm, ClipByValue, DynamicLossScale
from ._info import info
from ._report import StepReport
from .adamw import AdamW
from .lion import Lion
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "SGD",
    "AdamW",
    "ClipByNorm",
    "ClipByValue",
    "DynamicLossScale",
    "Lion",
    "Optimizer",
    "StepReport",
    "info",
]
