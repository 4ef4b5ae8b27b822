# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.ASGD`` with a compiled step."""

from __future__ import annotations

import torch

from ..step.compiled import CompiledStep


class ASGD(CompiledStep, torch.optim.ASGD):
    """Averaged stochastic gradient descent; definition ``asgd.mlir``.

    Everything is as in :class:`torch.optim.ASGD`: arguments, param groups, ``state``
    (``step``, ``eta``, ``mu``, ``ax``), checkpoints. States of 16-bit parameters
    are float32. ``foreach`` makes no difference; ``differentiable`` and
    ``capturable`` run torch's own step, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``eta`` and ``mu`` have the type of the average: float64 beside a float64
    parameter, where torch has float32.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "asgd"
    _hypers = {
        "lr": "lr",
        "lambd": "lambd",
        "alpha": "alpha",
        "t0": "t0",
        "weight_decay": "weight_decay",
    }
    _options = {"maximize": "maximize"}
    _eager_class = torch.optim.ASGD
    _scalar_states = frozenset({"eta", "mu"})
