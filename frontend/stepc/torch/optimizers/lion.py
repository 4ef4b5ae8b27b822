# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lion, which torch does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from ..binding.hypers import BETAS, named
from .checks import check_betas, check_lr
from .peer import Peer, not_negative


class Lion(Peer, torch.optim.Optimizer):
    """Lion, "Symbolic Discovery of Optimization Algorithms"; definition ``lion.mlir``.

    ``state`` has ``exp_avg``: float32, or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        betas: weight of the momentum in the update, and its decay.
        weight_decay: decoupled, times ``lr``.
        maximize: ascend instead of descend.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "lion"
    _hypers = named("lr", "weight_decay", **BETAS)
    _options = {"maximize": "maximize"}
    _keeps_step = False
    _ranges = {
        "lr": check_lr,
        "betas": check_betas,
        "weight_decay": not_negative("weight_decay value"),
    }

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
        **features,
    ) -> None:
        self._begin(Lion, locals())
