# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of DeepSpeed, with a compiled step, its loss scale, and what a ``ds_config.json``
says."""

from __future__ import annotations

from .optimizers import DeepSpeedCPUAdam, FusedAdam, FusedLamb
from .scaler import DynamicLossScaler, loss_scaler

__all__ = ["DeepSpeedCPUAdam", "DynamicLossScaler", "FusedAdam", "FusedLamb", "loss_scaler"]
