# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.SGD`` with a compiled step."""

from __future__ import annotations

import torch

from ..step.compiled import CompiledStep


class SGD(CompiledStep, torch.optim.SGD):
    """SGD with momentum; definition ``sgd.mlir``.

    Everything is as in :class:`torch.optim.SGD`: arguments, param groups, ``state``
    (``momentum_buffer`` where the momentum is not zero), checkpoints. The momentum
    buffer of a 16-bit parameter is float32. ``foreach`` and ``fused`` make
    no difference; ``differentiable`` and sparse gradients run
    torch's own step, as do parameters that cannot be compiled for (complex,
    other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "sgd"
    _hypers = {
        "lr": "lr",
        "momentum": "momentum",
        "dampening": "dampening",
        "weight_decay": "weight_decay",
    }
    _options = {"nesterov": "nesterov", "maximize": "maximize"}
    _eager_class = torch.optim.SGD
    _keeps_step = False
