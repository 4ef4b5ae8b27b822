# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of DeepSpeed, with a compiled step, its loss scale, and what a ``ds_config.json``
says."""

from __future__ import annotations

from .config import from_config
from .optimizers import DeepSpeedCPUAdam, FusedAdam, FusedLamb
from .placing import placement
from .scaler import DynamicLossScaler, loss_scaler
from .setup import Setup

__all__ = [
    "DeepSpeedCPUAdam",
    "DynamicLossScaler",
    "FusedAdam",
    "FusedLamb",
    "Setup",
    "from_config",
    "loss_scaler",
    "placement",
]
