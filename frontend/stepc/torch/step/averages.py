# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step keeps of the parameters beside them: their averages and copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from ... import errors


class Averages:
    """Mix-in of :class:`CompiledStep`, for the arguments ``average`` and ``param_copy``."""

    _holds_averages = False  # whether the parameters are the averages now

    @property
    def average(self):
        """``EMA`` or ``SWA``, or None. ``opt.average.active`` and ``opt.average.decay`` may
        be changed between steps."""
        return self._given.average[0] if self._given.average else None

    def averaged_parameters(self) -> list[torch.Tensor]:
        """The average of each parameter, in the order of the groups: the optimizer's own
        tensors, f32 beside bfloat16 parameters. A parameter that no step has averaged yet
        stands for itself.

        Raises ValueError without ``average``, and where the averages are parts: with zero.
        """
        average = self.average
        if average is None:
            raise ValueError("the optimizer was made without average")
        if self._is_shared:
            raise ValueError(
                "each rank has its parts of the averages; full_state_dict() has them whole"
            )
        params = [param for group in self.param_groups for param in group["params"]]
        return [
            self.state[param].get(average._state, param) if param in self.state else param
            for param in params
        ]

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the parameters have the values of their averages: to evaluate or save the
        model. After it they are what they were, to the bit; a step inside is refused.

        Raises what ``averaged_parameters`` does, and StepcError inside another.
        """
        self._refuse_averages()
        params = [param for group in self.param_groups for param in group["params"]]
        averages = self.averaged_parameters()
        pairs = [(p, a) for p, a in zip(params, averages, strict=True) if a is not p]
        with torch.no_grad():
            kept = [param.clone() for param, _ in pairs]
            for param, average in pairs:
                param.copy_(average)
        self._holds_averages = True
        try:
            yield
        finally:
            self._holds_averages = False
            with torch.no_grad():
                for (param, _), value in zip(pairs, kept, strict=True):
                    param.copy_(value)

    def parameter_copies(self) -> list[torch.Tensor | None]:
        """The copy of each parameter, in the order of the groups, which each step writes;
        None where no step has made it yet. The tensors stay the same ones until a state is
        loaded. ValueError without ``param_copy``, and with zero.
        """
        if not self._given.copy:
            raise ValueError("the optimizer was made without param_copy")
        if self._is_shared:
            raise ValueError("each rank has its parts of the copies")
        params = [param for group in self.param_groups for param in group["params"]]
        return [
            self.state[param].get(self._given.copy[0]._state) if param in self.state else None
            for param in params
        ]

    def _refuse_averages(self) -> None:
        if self._holds_averages:
            raise errors.StepcError(
                "the parameters have the values of their averages; they are back behind averaged()"
            )
