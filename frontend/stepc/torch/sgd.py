# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.SGD`` with a compiled step."""

from __future__ import annotations

import torch
from torch import Tensor

from ._compiled import CompiledStep


class SGD(CompiledStep, torch.optim.SGD):
    """SGD with momentum; definition ``sgd.mlir``.

    Everything is as in :class:`torch.optim.SGD`: arguments, param groups, ``state``
    (``momentum_buffer`` where the momentum is not zero), checkpoints. The momentum
    buffer of a bfloat16 parameter is float32. ``foreach`` and ``fused=True`` make
    no difference; ``fused=False``, ``differentiable`` and sparse gradients run
    torch's own step, as do parameters that cannot be compiled for (complex,
    float16, other devices), with one warning.

    Args:
        static_grads: as for :class:`stepc.torch.AdamW`.
    """

    _zoo_name = "sgd"
    _hyper_names = ("lr", "momentum", "dampening", "weight_decay")
    _eager_class = torch.optim.SGD
    _keeps_step = False

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        static_grads: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize=maximize,
            foreach=foreach,
            differentiable=differentiable,
            fused=fused,
        )
        self._static_grads = bool(static_grads)
        self._step_supports_amp_scaling = False  # GradScaler unscales by itself

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        return (
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            float(group["weight_decay"]),
        )

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {"nesterov": bool(group["nesterov"]), "maximize": bool(group["maximize"])}

    def _read_settings(self, group: dict) -> tuple:
        return (group["nesterov"], group["maximize"])
