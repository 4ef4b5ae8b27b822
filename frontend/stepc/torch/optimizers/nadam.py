# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.NAdam`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS
from ..step.compiled import CompiledStep


class NAdam(CompiledStep, torch.optim.NAdam):
    """Adam with Nesterov momentum; definition ``nadam.mlir``.

    Everything is as in :class:`torch.optim.NAdam`: arguments, param groups, ``state``
    (``step``, ``mu_product``, ``exp_avg``, ``exp_avg_sq``), checkpoints. States of
    16-bit parameters are float32. ``foreach`` makes no difference;
    ``differentiable`` and ``capturable`` run torch's own step, as do parameters that
    cannot be compiled for (complex, other devices), with one warning.

    ``mu_product`` has the type of the moments: float64 beside a float64 parameter,
    where torch has float32.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "nadam"
    _hypers = {
        "lr": "lr",
        **BETAS,
        "eps": "eps",
        "weight_decay": "weight_decay",
        "momentum_decay": "momentum_decay",
    }
    _options = {"decoupled_weight_decay": "decoupled_weight_decay", "maximize": "maximize"}
    _eager_class = torch.optim.NAdam
    _scalar_states = frozenset({"mu_product"})
