# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``transformers.Adafactor``, with a compiled step."""

from __future__ import annotations

import math

import torch

from ..binding.hypers import Part, named
from .peer import Peer

__all__ = ["Adafactor"]


def _lr(group: dict) -> float:
    # With relative_step nothing reads it.
    return 0.0 if group["lr"] is None and group["relative_step"] else float(group["lr"])


def _beta1(group: dict) -> float:
    # The definition keeps no average where it is 0.
    return 0.0 if group["beta1"] is None else float(group["beta1"])


class Adafactor(Peer, torch.optim.Optimizer):
    """Adafactor as in ``transformers.Adafactor``; definition ``adafactor.mlir``.

    Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory
    Cost", 2018. ``state`` has ``step``, ``exp_avg`` where ``beta1`` is given, and of a
    matrix ``exp_avg_sq_row`` (the parameter's shape without the last dim) and
    ``exp_avg_sq_col`` (without the last but one), else ``exp_avg_sq``; all float32, or
    float64 beside float64 parameters. ``state["RMS"]``, which transformers notes down
    and reads in the same step, is not kept.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: external learning rate; None with ``relative_step``.
        eps: added to the squared gradient; least scale of a parameter.
        clip_threshold: of the root mean square of an update.
        decay_rate: exponent of the decay of the squared gradient's average.
        beta1: decay of the average of updates; None: no such average.
        weight_decay: decoupled, times the learning rate of the parameter.
        scale_parameter: multiply the learning rate by the parameter's root mean square.
        relative_step: learning rate from the step count, instead of ``lr``.
        warmup_init: begin with small ones; needs ``relative_step``.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError, in the words of transformers, for ``lr`` with
    ``relative_step`` and for ``warmup_init`` without.
    """

    _zoo_name = "adafactor"
    _hypers = named(
        "clip_threshold",
        "decay_rate",
        "weight_decay",
        lr=_lr,
        eps1=Part("eps", 0),
        eps2=Part("eps", 1),
        beta1=_beta1,
    )
    _options = named("scale_parameter", "relative_step", "warmup_init")
    _dropped_dims = {"exp_avg_sq_row": -1, "exp_avg_sq_col": -2}
    _transient_states = frozenset({"RMS"})

    def __init__(
        self,
        params,
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        beta1: float | None = None,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
        **features,
    ) -> None:
        if lr is not None and relative_step:
            raise ValueError("Cannot combine manual `lr` and `relative_step=True` options")
        if warmup_init and not relative_step:
            raise ValueError("`warmup_init=True` requires `relative_step=True`")
        self._begin(Adafactor, locals())

    def _get_lr(self, param_group: dict, param_state: dict) -> float:
        """For ``transformers.AdafactorSchedule``, which asks it of a group's first
        parameter, to report: the rate of its last step, by its scale now."""
        count = float(param_state["step"])
        rate = param_group["lr"]
        if param_group["relative_step"]:
            least = 1e-6 * count if param_group["warmup_init"] else 1e-2
            rate = min(least, 1.0 / math.sqrt(count))
        if not param_group["scale_parameter"]:
            return rate
        param = param_group["params"][0].detach().float()
        return rate * max(param_group["eps"][1], float(param.square().mean().sqrt()))
