# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.RAdam`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS
from ..step.compiled import CompiledStep


class RAdam(CompiledStep, torch.optim.RAdam):
    """Adam with a rectified variance; definition ``radam.mlir``.

    Everything is as in :class:`torch.optim.RAdam`: arguments, param groups, ``state``
    (``step``, ``exp_avg``, ``exp_avg_sq``), checkpoints. States of 16-bit
    parameters are float32. ``foreach`` makes no difference; ``differentiable`` and
    ``capturable`` run torch's own step, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "radam"
    _hypers = {"lr": "lr", **BETAS, "eps": "eps", "weight_decay": "weight_decay"}
    _options = {"decoupled_weight_decay": "decoupled_weight_decay", "maximize": "maximize"}
    _eager_class = torch.optim.RAdam
