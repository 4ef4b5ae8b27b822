# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.AdamW`` with a compiled step."""

from __future__ import annotations

import torch
from torch import Tensor

from ._compiled import CompiledStep


class AdamW(CompiledStep, torch.optim.AdamW):
    """AdamW; definition ``adamw.mlir``.

    Everything is as in :class:`torch.optim.AdamW`: arguments, param groups,
    ``state`` (``step``, ``exp_avg``, ``exp_avg_sq``, ``max_exp_avg_sq``), checkpoints.
    States of bfloat16 parameters are float32. ``foreach`` and ``fused=True`` make
    no difference; ``fused=False``, ``differentiable`` and ``capturable`` run
    torch's own step, as do parameters that cannot be compiled for (complex,
    float16, other devices), with one warning.

    States of small parameters are parts of common blocks. ``state_dict`` hands out
    the optimizer's own tensors, as torch's does; saved whole, a block is written
    once. To save a few of them, clone them, or their blocks are written too.

    Args:
        static_grads: promises that each ``.grad``, once there, stays the same
            tensor in the same memory, as do the parameters; they are then not
            looked at again in each step. ``zero_grad`` then zeroes in place.
    """

    _zoo_name = "adamw"
    _hyper_names = ("lr", "beta1", "beta2", "eps", "weight_decay")
    _eager_class = torch.optim.AdamW

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        static_grads: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
        )
        self._static_grads = bool(static_grads)
        self._step_supports_amp_scaling = False  # GradScaler unscales by itself

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        return (
            float(group["lr"]),
            float(beta1),
            float(beta2),
            float(group["eps"]),
            float(group["weight_decay"]),
        )

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {"amsgrad": bool(group["amsgrad"]), "maximize": bool(group["maximize"])}

    def _read_settings(self, group: dict) -> tuple:
        return (group["amsgrad"], group["maximize"])
