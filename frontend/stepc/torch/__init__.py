# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers for PyTorch. ``stepc.torch.X`` is ``torch.optim.X`` where torch has
one, and ``stepc.torch.LIBRARY.X`` is the X of that library; ``Optimizer`` takes any
definition. ``ClipByNorm``, ``ClipByValue`` and ``DynamicLossScale`` go with all of them."""

from . import apex, came, colossal, deepspeed, hf, lomo
from ._features import ClipByNorm, ClipByValue, DynamicLossScale
from ._info import info
from ._report import StepReport
from .adafactor import Adafactor
from .adamw import AdamW
from .lars import LARS
from .lion import Lion
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "LARS",
    "SGD",
    "Adafactor",
    "AdamW",
    "ClipByNorm",
    "ClipByValue",
    "DynamicLossScale",
    "Lion",
    "Optimizer",
    "StepReport",
    "apex",
    "came",
    "colossal",
    "deepspeed",
    "hf",
    "info",
    "lomo",
]
