# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Learning rates of groups, which are floats or tensors."""

from __future__ import annotations

import torch


def rates_of(optimizer: torch.optim.Optimizer) -> list:
    """The groups' learning rates; of a tensor a copy."""
    rates = [group["lr"] for group in optimizer.param_groups]
    return [rate.clone() if isinstance(rate, torch.Tensor) else rate for rate in rates]


def write(optimizer: torch.optim.Optimizer, rates: list) -> None:
    """Sets the groups' learning rates, in place where they are tensors."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate.squeeze() if isinstance(rate, torch.Tensor) else rate)
        else:
            group["lr"] = rate
