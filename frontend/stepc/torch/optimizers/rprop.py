# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Rprop`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import Part
from ..step.compiled import CompiledStep


class Rprop(CompiledStep, torch.optim.Rprop):
    """Rprop; definition ``rprop.mlir``.

    Everything is as in :class:`torch.optim.Rprop`: arguments, param groups, ``state``
    (``step``, ``prev``, ``step_size``), checkpoints. States of 16-bit parameters
    are float32. ``foreach`` makes no difference; ``differentiable`` and
    ``capturable`` run torch's own step, as do parameters that cannot be compiled for
    (complex, other devices), with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "rprop"
    _hypers = {
        "lr": "lr",
        "eta_minus": Part("etas", 0),
        "eta_plus": Part("etas", 1),
        "step_size_min": Part("step_sizes", 0),
        "step_size_max": Part("step_sizes", 1),
    }
    _options = {"maximize": "maximize"}
    _eager_class = torch.optim.Rprop
