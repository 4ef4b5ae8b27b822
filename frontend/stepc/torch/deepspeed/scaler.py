# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss scale of DeepSpeed."""

from __future__ import annotations

import math

from ... import errors
from ..binding.features import DynamicLossScale, LossScale
from ..binding.hypers import named
from ..tensors.devices import captures_steps_of


class DynamicLossScaler(DynamicLossScale):
    """The loss scale of ``deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler``, for the
    argument ``loss_scale`` of an optimizer.

    After ``delayed_shift`` overflows the scale is divided by ``scale_factor``, down to
    ``min_scale``; ``scale_window`` steps after the last overflow it is multiplied by it.
    ``consecutive_hysteresis``: every step that was made begins the count of
    overflows anew. ``raise_error_at_min_scale``: an overflow at ``min_scale`` that would lower
    the scale raises :class:`stepc.errors.LossScaleError` from ``step``, which has changed nothing
    else. Asking costs a wait for the device, and steps that are captured in a graph do not ask:
    ``last_step.at_min_scale`` is 1 in any case. ``late_growth``: the first growth after an
    overflow one step later, as in DeepSpeed since 0.17.1.

    Raises ValueError for numbers that are not positive.
    """

    _fragment = "deepspeed_scaler"
    _hypers = named("scale_factor", "scale_window", "min_scale", "delayed_shift")
    _options = named("consecutive_hysteresis", "late_growth")
    _scalars = {"scale": "init_scale"}

    def __init__(
        self,
        init_scale: float = 2.0**32,
        scale_factor: float = 2.0,
        scale_window: int = 1000,
        min_scale: float = 1.0,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
        raise_error_at_min_scale: bool = True,
        *,
        late_growth: bool = True,
    ):
        self._set_numbers(
            init_scale=init_scale,
            scale_factor=scale_factor,
            scale_window=scale_window,
            min_scale=min_scale,
            delayed_shift=delayed_shift,
        )
        self.consecutive_hysteresis = bool(consecutive_hysteresis)
        self.raise_error_at_min_scale = bool(raise_error_at_min_scale)
        self.late_growth = bool(late_growth)

    def after_step(self, optimizer) -> None:
        """LossScaleError, in DeepSpeed's words, where the step asks for a lower scale."""
        if not self.raise_error_at_min_scale or captures_steps_of(optimizer.param_groups):
            return
        report = optimizer.last_step
        if report is not None and report.get("at_min_scale"):
            raise errors.LossScaleError(
                "Current loss scale already at minimum - cannot decrease scale anymore: it is "
                f"{report.loss_scale:g}, and a gradient is Inf or NaN in step after step"
            )


def loss_scaler(
    loss_scale: float = 0,
    initial_scale_power: int = 16,
    loss_scale_window: int = 1000,
    hysteresis: int = 2,
    consecutive_hysteresis: bool = False,
    min_loss_scale: float = 1,
) -> LossScale | DynamicLossScaler:
    """The argument ``loss_scale`` of an optimizer from the keys of a configuration's ``fp16``
    block, with the defaults that they have there: ``loss_scaler(hysteresis=4)``.

    Args:
        loss_scale: a scale that stays as it is, or 0, with which those below count.
        initial_scale_power: the first scale is 2 to this power.
        loss_scale_window: steps without overflow until it doubles.
        hysteresis: overflows until it is halved.
        consecutive_hysteresis: whether each step that is made counts overflows anew.
        min_loss_scale: the least; an overflow there is a LossScaleError.

    Raises ValueError for numbers out of range.
    """
    if isinstance(loss_scale, bool) or not 0 <= loss_scale < math.inf:
        raise ValueError(f"loss_scale is {loss_scale!r}, expected a number from 0 on")
    if loss_scale:
        return LossScale(loss_scale)
    if not initial_scale_power <= 1023:
        raise ValueError(f"initial_scale_power is {initial_scale_power}, expected at most 1023")
    return DynamicLossScaler(
        init_scale=2.0**initial_scale_power,
        scale_window=loss_scale_window,
        min_scale=min_loss_scale,
        delayed_shift=hysteresis,
        consecutive_hysteresis=consecutive_hysteresis,
    )
