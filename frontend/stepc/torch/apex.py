# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of ``apex``, with a compiled step."""

from __future__ import annotations

from collections import defaultdict

import torch

from .binding.hypers import BETAS, named
from .optimizers.peer import Peer
from .optimizers.peer_adam import SetsGradNone
from .step.saving import adopted

__all__ = ["FusedLAMB"]


class FusedLAMB(SetsGradNone, Peer, torch.optim.Optimizer):
    """LAMB as in ``apex.optimizers.FusedLAMB``; definition ``fused_lamb.mlir``.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", ICLR 2020. ``state`` has ``step``, ``exp_avg`` and ``exp_avg_sq``: float32,
    or float64 beside float64 parameters. apex counts the steps of a group; here
    each parameter has its count, and a saved group has the largest, as apex' has.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        bias_correction: divide the averages by their weights' sums.
        betas: decays of the averages of the gradient and of its square.
        eps: added to the root of the latter.
        weight_decay: see ``adam_w_mode``.
        amsgrad: must be False.
        adam_w_mode: decay in the update, else in the gradient.
        grad_averaging: weight ``1 - beta1`` for a gradient in its average, else 1.
        set_grad_none: what ``zero_grad()`` does.
        max_grad_norm: gradients are divided by ``max(1, norm / max_grad_norm)``, the
            norm of all groups; 0: never. ``last_step.grad_norm`` is that norm.
        use_nvlamb: a trust ratio without weight decay, too.
        features: what every class takes, see :class:`stepc.torch.Optimizer`. Clipping comes
            before ``max_grad_norm``.

    Raises RuntimeError, as apex does, for ``amsgrad``.
    """

    _zoo_name = "fused_lamb"
    _attributes = ("adam_w_mode", "use_nvlamb")
    _hypers = named("lr", "eps", "weight_decay", "max_grad_norm", **BETAS)

    _not_keys = ("amsgrad", "adam_w_mode", "set_grad_none", "use_nvlamb")

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
        **features,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB does not support the AMSGrad variant.")
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none
        self.use_nvlamb = use_nvlamb
        self._begin(FusedLAMB, locals())

    def _read_hypers(self, group: dict) -> tuple[float, ...]:
        # One for all groups, in apex too.
        return super()._read_hypers({**group, "max_grad_norm": self.defaults["max_grad_norm"]})

    def _read_options(self, group: dict) -> dict[str, bool]:
        return {
            "bias_correction": bool(group["bias_correction"]),
            "adam_w_mode": bool(self.adam_w_mode),
            "grad_averaging": bool(group["grad_averaging"]),
            "use_nvlamb": bool(self.use_nvlamb),
        }

    def _finish_saving(self, packed: dict) -> None:
        for group in packed["param_groups"]:
            states = [packed["state"].get(index) for index in group["params"]]
            counts = [int(state["step"]) for state in states if state and "step" in state]
            if counts:
                group["step"] = max(counts)

    def _adopt(self, state_dict: dict) -> defaultdict:
        state = super()._adopt(state_dict)
        for group in self.param_groups:
            count = group.pop("step", None)
            for param in group["params"]:
                if count is not None and param in state and "step" not in state[param]:
                    state[param] = {"step": adopted(param, "step", count), **state[param]}
        return state
