# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lion, which torch does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from ..binding.hypers import BETAS
from ..step.compiled import CompiledStep
from .checks import CheckedGroups, check_betas, check_lr, check_not_negative


class Lion(CheckedGroups, CompiledStep, torch.optim.Optimizer):
    """Lion, "Symbolic Discovery of Optimization Algorithms"; definition ``lion.mlir``.

    ``state`` has ``exp_avg``: float32, or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        betas: weight of the momentum in the update, and its decay.
        weight_decay: decoupled, times ``lr``.
        maximize: ascend instead of descend.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "lion"
    _hypers = {"lr": "lr", **BETAS, "weight_decay": "weight_decay"}
    _options = {"maximize": "maximize"}
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
        **features,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        self._check_values(defaults)
        super().__init__(params, defaults, **features)

    @staticmethod
    def _check_values(group: dict) -> None:
        check_lr(group["lr"])
        check_betas(group["betas"])
        check_not_negative(group["weight_decay"], "weight_decay value")
