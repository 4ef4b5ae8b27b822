# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LARS, which torch does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from ..binding.hypers import named
from .checks import check_lr, check_not_negative
from .peer import Peer


class LARS(Peer, torch.optim.Optimizer):
    """LARS, "Large Batch Training of Convolutional Networks"; definition ``lars.mlir``.

    Arguments and defaults are those of ``pytorch_optimizer.LARS``: scalars and
    vectors are stepped as by SGD, without decay, and the momentum is gathered
    without ``lr``. ``lr_in_momentum=True, vectors_as_sgd=False`` is the paper's.
    ``state`` has ``momentum_buffer`` where the momentum is not 0: float32, or float64
    beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        weight_decay: added to the gradient, times the parameter.
        momentum: decay of the momentum.
        dampening: must be 0.
        trust_coefficient: of the ratio of norms.
        nesterov: look ahead; needs ``lr_in_momentum=False``.
        foreach: makes no difference.
        maximize: ascend instead of descend.
        eps: added to the norm that is divided by.
        lr_in_momentum: gather the momentum times the learning rate.
        vectors_as_sgd: no ratio and no decay for tensors of fewer than two dims.
        bound_ratio: at most ``1 / lr`` for the ratio, as apex' LARC with ``clip=True``.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "lars"
    _hypers = named("lr", "momentum", "weight_decay", "trust_coefficient", "eps")
    _options = named("lr_in_momentum", "nesterov", "bound_ratio", "vectors_as_sgd", "maximize")
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.0,
        momentum: float = 0.9,
        dampening: float = 0.0,
        trust_coefficient: float = 1e-3,
        nesterov: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        *,
        eps: float = 0.0,
        lr_in_momentum: bool = False,
        vectors_as_sgd: bool = True,
        bound_ratio: bool = False,
        **features,
    ) -> None:
        self._begin(LARS, locals())

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # pytorch_optimizer's has none of these
            for name in ("maximize", "eps", "lr_in_momentum", "vectors_as_sgd", "bound_ratio"):
                group.setdefault(name, self.defaults[name])

    def _check_values(self, group: dict) -> None:
        check_lr(group["lr"])
        for name in ("weight_decay", "momentum", "trust_coefficient", "eps"):
            check_not_negative(group[name], f"{name} value")
        if group["dampening"] != 0.0:
            raise ValueError(f"Invalid dampening value: {group['dampening']}, expected 0")
        if group["nesterov"] and group["lr_in_momentum"]:
            raise ValueError("Nesterov momentum requires lr_in_momentum=False")
