# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Adam`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS
from ..step.compiled import CompiledStep


class AdamStep(CompiledStep):
    """What Adam and AdamW have in common."""

    _hypers = {"lr": "lr", **BETAS, "eps": "eps", "weight_decay": "weight_decay"}


class Adam(AdamStep, torch.optim.Adam):
    """Adam; definition ``adam.mlir``.

    Everything is as in :class:`torch.optim.Adam`: arguments, param groups, ``state``
    (``step``, ``exp_avg``, ``exp_avg_sq``, ``max_exp_avg_sq``), checkpoints. States
    of 16-bit parameters are float32. ``foreach`` and ``fused`` make no
    difference; ``differentiable`` and ``capturable`` run torch's own
    step, as do parameters that cannot be compiled for (complex, other
    devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "adam"
    _options = {
        "amsgrad": "amsgrad",
        "maximize": "maximize",
        # torch's Adam has it since 2.7.
        "decoupled_weight_decay": lambda group: bool(group.get("decoupled_weight_decay", False)),
    }
    _eager_class = torch.optim.Adam
