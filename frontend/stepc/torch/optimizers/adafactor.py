# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Adafactor`` with a compiled step."""

from __future__ import annotations

import torch

from ..binding.hypers import Part
from ..step.compiled import CompiledStep


def _eps1(group: dict) -> float:
    """None stands for the epsilon of the dtype: for torch that of the first
    parameter of the group that is stepped; here of its first, and of a group that has none,
    as on a rank that only takes part, the usual one's."""
    eps1, params = group["eps"][0], group["params"]
    if eps1 is not None:
        return float(eps1)
    return torch.finfo(params[0].dtype if params else torch.float32).eps


class Adafactor(CompiledStep, torch.optim.Adafactor):
    """Adafactor as torch has it; definition ``torch_adafactor.mlir``.

    Everything is as in :class:`torch.optim.Adafactor`: arguments, param groups,
    ``state`` (``step``, and ``row_var`` and ``col_var`` with a dim of 1, or
    ``variance`` for vectors), checkpoints. States of 16-bit parameters are float32.
    ``foreach`` makes no difference; parameters that cannot be compiled for run
    torch's own step, with one warning.

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`. Clipping comes first; ``d`` clips the update.
    """

    _zoo_name = "torch_adafactor"
    _hypers = {
        "lr": "lr",
        "beta2_decay": "beta2_decay",
        "eps1": _eps1,
        "eps2": Part("eps", 1),
        "d": "d",
        "weight_decay": "weight_decay",
    }
    _options = {"maximize": "maximize"}
    _eager_class = torch.optim.Adafactor
