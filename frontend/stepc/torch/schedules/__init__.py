# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learning rate schedules of DeepSpeed and of ColossalAI, as schedulers of torch: by their names,
with their arguments, learning rates and saved states. They go with any ``torch.optim.Optimizer``,
and with learning rates that are floats or tensors."""

from __future__ import annotations

from .of_colossal import (
    CosineAnnealingLR,
    CosineAnnealingWarmupLR,
    ExponentialLR,
    FlatAnnealingLR,
    FlatAnnealingWarmupLR,
    LambdaLR,
    LinearWarmupLR,
    MultiplicativeLR,
    MultiStepLR,
    MultiStepWarmupLR,
    OneCycleLR,
    PolynomialLR,
    PolynomialWarmupLR,
    StepLR,
)
from .of_deepspeed import LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR
from .stages import DelayerScheduler, WarmupDelayerScheduler, WarmupScheduler

__all__ = [
    "CosineAnnealingLR",
    "CosineAnnealingWarmupLR",
    "DelayerScheduler",
    "ExponentialLR",
    "FlatAnnealingLR",
    "FlatAnnealingWarmupLR",
    "LRRangeTest",
    "LambdaLR",
    "LinearWarmupLR",
    "MultiStepLR",
    "MultiStepWarmupLR",
    "MultiplicativeLR",
    "OneCycle",
    "OneCycleLR",
    "PolynomialLR",
    "PolynomialWarmupLR",
    "StepLR",
    "WarmupCosineLR",
    "WarmupDecayLR",
    "WarmupDelayerScheduler",
    "WarmupLR",
    "WarmupScheduler",
]
