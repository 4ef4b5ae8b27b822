# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.RMSprop`` with a compiled step."""

from __future__ import annotations

import torch

from ..step.compiled import CompiledStep


class RMSprop(CompiledStep, torch.optim.RMSprop):
    """RMSprop; definition ``rmsprop.mlir``.

    Everything is as in :class:`torch.optim.RMSprop`: arguments, param groups,
    ``state`` (``step``, ``square_avg``, ``momentum_buffer`` where the momentum is
    positive, ``grad_avg`` where it is centered), checkpoints. States of 16-bit
    parameters are float32. ``foreach`` makes no difference; ``differentiable`` and
    ``capturable`` run torch's own step, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "rmsprop"
    _hypers = {
        "lr": "lr",
        "alpha": "alpha",
        "eps": "eps",
        "weight_decay": "weight_decay",
        "momentum": "momentum",
    }
    _options = {"centered": "centered", "maximize": "maximize"}
    _eager_class = torch.optim.RMSprop
