# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.AdamW`` with a compiled step."""

from __future__ import annotations

import torch

from .adam import Adam, AdamStep

# torch's is a subclass of its Adam since 2.7.
_Base = Adam if issubclass(torch.optim.AdamW, torch.optim.Adam) else AdamStep


class AdamW(_Base, torch.optim.AdamW):
    """AdamW; definition ``adamw.mlir``.

    Everything is as in :class:`torch.optim.AdamW`: arguments, param groups,
    ``state`` (``step``, ``exp_avg``, ``exp_avg_sq``, ``max_exp_avg_sq``), checkpoints.
    States of 16-bit parameters are float32. ``foreach`` and ``fused`` make
    no difference; ``differentiable`` and ``capturable`` run
    torch's own step, as do parameters that cannot be compiled for (complex,
    other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "adamw"
    _options = {"amsgrad": "amsgrad", "maximize": "maximize"}
    _eager_class = torch.optim.AdamW
    _compiled_where = {"decoupled_weight_decay": True}
