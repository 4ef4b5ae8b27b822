# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lion, which torch does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from ._compiled import CompiledStep


class Lion(CompiledStep, torch.optim.Optimizer):
    """Lion, "Symbolic Discovery of Optimization Algorithms"; definition ``lion.mlir``.

    ``state`` has ``exp_avg``: float32, or float64 beside float64 parameters.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        betas: weight of the momentum in the update, and its decay.
        weight_decay: decoupled, times ``lr``.
        maximize: ascend instead of descend.
        static_grads: as for :class:`stepc.torch.AdamW`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "lion"
    _hyper_names = ("lr", "beta1", "beta2", "weight_decay")
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        static_grads: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        _check_values(defaults)
        super().__init__(params, defaults)
        self._static_grads = bool(static_grads)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of
        range, as the constructor does."""
        if isinstance(param_group, dict):
            _check_values({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        return (float(group["lr"]), float(beta1), float(beta2), float(group["weight_decay"]))

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {"maximize": bool(group["maximize"])}

    def _read_settings(self, group: dict) -> tuple:
        return (group["maximize"],)


def _check_values(group: dict) -> None:
    lr, betas, weight_decay = (group[name] for name in ("lr", "betas", "weight_decay"))
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}")
    if len(betas) != 2:
        raise ValueError(f"Invalid betas: {betas}")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if not weight_decay >= 0.0:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")
