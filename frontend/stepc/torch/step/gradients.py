# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is done to gradients before a step, as an optimizer shows it: clipping and loss scales."""

from __future__ import annotations

import torch

from ...interface import Interface, Options
from ..binding import features as _features
from ..binding.features import Feature
from .fused_backward import BackwardSteps


class Gradients:
    """Mix-in of :class:`CompiledStep`."""

    _given = _features.Features()
    _grad_scale: Feature | None = None  # of a GradScaler that is stepping this
    _backward: BackwardSteps | None = None  # with fused_backward
    _norm_clip: Feature | None = None  # with fused_backward, whose norm has a pass of its own

    @property
    def _features(self) -> tuple[Feature, ...]:
        """In the order of application."""
        given = self._given.in_order()
        return given if self._grad_scale is None else (self._grad_scale, *given)

    @property
    def _scaling(self) -> tuple[Feature, ...]:
        return self._given.scaling

    @property
    def _fragments(self) -> tuple[str, ...]:
        return tuple(feature._fragment for feature in self._features)

    def _feature_names(self, interface: Interface) -> tuple[str, ...]:
        return _features.hyper_names(interface, self._features)

    def _feature_values(self) -> tuple[float, ...]:
        return _features.values(self._features)

    def _feature_options(self, interface: Interface) -> Options:
        return _features.options(interface, self._features)

    @property
    def clip(self) -> tuple[Feature, ...]:
        """What clips the gradients, in order. Their numbers may be changed:
        ``opt.clip[0].max_norm = 0.5`` holds from the next step on."""
        return self._given.clip if self._norm_clip is None else (self._norm_clip,)

    @property
    def accumulation_steps(self) -> float:
        """How many backward passes gradients are the sum of. May be set between steps
        where the constructor was given one."""
        return self._given.accumulation[0].steps if self._given.accumulation else 1

    @accumulation_steps.setter
    def accumulation_steps(self, steps: int) -> None:
        if not self._given.accumulation:
            raise ValueError("the optimizer was made without accumulation_steps")
        self._given.accumulation[0]._set_numbers(steps=steps)

    @property
    def loss_scale(self) -> float:
        """The factor that the loss of the next step is to have; 1 without a scale.

        Of a dynamic scale this reads what the last step left.
        """
        if not self._scaling:
            return 1.0
        (feature,) = self._scaling
        if isinstance(feature, _features.LossScale):
            return float(feature.scale)
        scalars = self._current_scalars()
        name = _features.merged_name(scalars, feature, "scale")
        current = scalars.get(name, feature.first_scale)
        return float(current[0] if isinstance(current, list) else current)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """``loss`` times the loss scale, to be differentiated in its place:
        ``opt.scale(loss).backward()``. ``.grad`` is then scaled, too; the step
        divides by the scale."""
        return loss * self.loss_scale

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> torch.Tensor | None:
        """``opt.scale(loss).backward()``; and where ``fused_backward=True`` goes with
        ``ClipByNorm``, two passes: one for the norm of all gradients, which keeps the graph and
        frees each gradient at once, and the one in which parameters are stepped. Returns the
        norm, of gradients without the loss scale, where there are two. With ``zero`` there is one:
        sums over ranks are kept until the step has their norm.

        ``loss`` is not scaled yet. With DTensors all that gets a gradient is this optimizer's:
        other tensors would get theirs twice. StepcError for parameters that ``layouts`` or
        ``setup_distributed`` have cut.
        """
        scaled = self.scale(loss)
        if self._backward is None:
            return scaled.backward(retain_graph=retain_graph)
        return self._backward.backward(self, scaled, retain_graph)
