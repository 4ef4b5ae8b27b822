# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Adagrad`` with a compiled step."""

from __future__ import annotations

import torch

from ..step.compiled import CompiledStep
from ..tensors.views import NARROW


class Adagrad(CompiledStep, torch.optim.Adagrad):
    """Adagrad; definition ``adagrad.mlir``.

    Everything is as in :class:`torch.optim.Adagrad`: arguments, param groups,
    ``state`` (``step``, ``sum``), checkpoints. States of bfloat16 parameters are
    float32. ``foreach`` and ``fused`` make no difference; ``differentiable`` and
    sparse gradients run torch's own step, as do parameters that cannot be compiled
    for (complex, other devices), with one warning.

    The state is there from the beginning, as torch has it.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "adagrad"
    _hypers = {
        "lr": "lr",
        "lr_decay": "lr_decay",
        "weight_decay": "weight_decay",
        "initial_accumulator_value": "initial_accumulator_value",
        "eps": "eps",
    }
    _options = {"maximize": "maximize"}
    _eager_class = torch.optim.Adagrad

    def _after_init(self) -> None:
        # torch's sum has the parameter's dtype; narrow ones would round the initial value.
        initial = self.defaults["initial_accumulator_value"]
        for param, state in self.state.items():
            if param.dtype in NARROW:
                like = torch.preserve_format
                wide = torch.full_like(param, initial, dtype=torch.float32, memory_format=like)
                state["sum"] = wide
