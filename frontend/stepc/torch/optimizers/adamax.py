# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Adamax`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS
from ..step.compiled import CompiledStep


class Adamax(CompiledStep, torch.optim.Adamax):
    """Adam with the infinity norm; definition ``adamax.mlir``.

    Everything is as in :class:`torch.optim.Adamax`: arguments, param groups,
    ``state`` (``step``, ``exp_avg``, ``exp_inf``), checkpoints. States of 16-bit
    parameters are float32. ``foreach`` makes no difference; ``differentiable`` and
    ``capturable`` run torch's own step, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "adamax"
    _hypers = {"lr": "lr", **BETAS, "eps": "eps", "weight_decay": "weight_decay"}
    _options = {"maximize": "maximize"}
    _eager_class = torch.optim.Adamax
