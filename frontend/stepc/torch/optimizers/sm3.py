# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SM3, which torch does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from ..binding.hypers import named
from .checks import check_lr, check_not_negative
from .peer import Peer


class SM3(Peer, torch.optim.Optimizer):
    """SM3, "Memory-Efficient Adaptive Optimization"; definition ``sm3.mlir``.

    Arguments and defaults are those of ``pytorch_optimizer.SM3``; ``eps=0`` is the
    paper's. ``state`` has ``accumulator_0`` to ``accumulator_3`` for a parameter of
    four dims, of the shapes [o, 1, 1, 1] to [1, 1, 1, w]; one for each dim of fewer; one
    of the parameter's shape for any other; and ``momentum_buffer`` where the momentum
    is not 0. They are float32, or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        momentum: decay of the momentum, of updates.
        beta: decay of the second moments; 0: they are sums.
        eps: added to the second moments.
        maximize: ascend instead of descend.
        foreach: makes no difference.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "sm3"
    _hypers = named("lr", "momentum", "beta", "eps")
    _options = {"maximize": "maximize"}
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-1,
        momentum: float = 0.0,
        beta: float = 0.0,
        eps: float = 1e-30,
        maximize: bool = False,
        foreach: bool | None = None,
        **features,
    ) -> None:
        self._begin(SM3, locals())

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # pytorch_optimizer's has none
            group.setdefault("maximize", self.defaults["maximize"])

    def _check_values(self, group: dict) -> None:
        check_lr(group["lr"])
        check_not_negative(group["eps"], "eps value")
        if not 0.0 <= group["momentum"] < 1.0:
            raise ValueError(f"Invalid momentum value: {group['momentum']}, expected [0, 1)")
        if not 0.0 <= group["beta"] <= 1.0:
            raise ValueError(f"Invalid beta value: {group['beta']}, expected [0, 1]")
