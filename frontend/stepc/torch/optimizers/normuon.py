# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NorMuon, of its authors' repository (zichongli5/NorMuon), with a compiled step."""

from __future__ import annotations

import torch

from ..step.compiled import CompiledStep
from .checks import CheckedGroups, check_lr, check_matrices, check_not_negative
from .factors import Factors

__all__ = ["NorMuon"]


class NorMuon(CheckedGroups, Factors, CompiledStep, torch.optim.Optimizer):
    """Muon with an average of each row's mean square; definition ``normuon.mlir``.

    Li et al., "NorMuon: Making Muon more efficient and scalable", 2025, algorithm 1. The
    arguments are those of the authors' ``NorMuon``; ``nesterov`` is one of theirs of its update.

    Parameters are matrices, of ``[rows, columns]``, or several by a group's ``view``. ``state``
    has ``momentum_buffer`` of the parameter's shape and ``second_momentum_buffer`` of
    ``[rows, 1]``: float32, or float64 beside float64 parameters. The orthogonalization is
    computed in these types too, where the authors' is in bfloat16: ``factors=torch.bfloat16`` is
    nearer to that. A matrix that ranks have parts
    of is stepped whole by one of them (docs/distributed.md).

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        weight_decay: decoupled, times ``lr``.
        momentum: decay of the gradient's average.
        beta2: decay of the averages of the rows' mean squares.
        nesterov: orthogonalize the average and the gradient together.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for parameters that are no matrices.
    """

    _zoo_name = "normuon"
    _hypers = {
        "lr": "lr",
        "weight_decay": "weight_decay",
        "momentum": "momentum",
        "beta2": "beta2",
    }
    _options = {"nesterov": "nesterov"}
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float = 0.02,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        beta2: float = 0.95,
        nesterov: bool = True,
        **features,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "beta2": beta2,
            "nesterov": nesterov,
        }
        self._check_values(defaults)
        super().__init__(params, defaults, **features)

    @staticmethod
    def _check_values(group: dict) -> None:
        check_lr(group["lr"])
        check_not_negative(group["weight_decay"], "weight_decay value")
        for name in ("momentum", "beta2"):
            if not 0.0 <= group[name] < 1.0:
                raise ValueError(f"Invalid {name} value: {group[name]}")

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of range, as the
        constructor does, and for parameters that are no matrices."""
        if isinstance(param_group, dict):
            self._check_shapes(param_group)
        super().add_param_group(param_group)

    def _check_shapes(self, group: dict) -> None:
        check_matrices(group, "a matrix: give others to another optimizer")
