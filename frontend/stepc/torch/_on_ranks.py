# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer is told of ranks: ``zero``, ``process_group``, ``gradients``,
``bucket_bytes`` and ``layouts``. What follows from it is in :mod:`._distributed`."""

from __future__ import annotations

import contextlib

import torch

from .. import errors


class OnRanks:
    """Mix-in of :class:`CompiledStep`."""

    _mesh = None  # of an optimizer all of whose tensors are whole
    _layouts: tuple = ()  # what the user says of plain parameters
    _reducer = None  # of zero=2
    _zero = None  # how states are sharded over ranks that have whole parameters

    def _set_ranks(self, zero: int, process_group, gradients, bucket_bytes, layouts) -> None:
        """Takes over the constructor's arguments; ValueError and TypeError."""
        if layouts is not None:
            from ._layouts import check_rules

            self._layouts = check_rules(layouts)
        if (zero, process_group, gradients, bucket_bytes) != (0, None, None, None):
            from ._zero import settings

            self._zero = settings(zero, process_group, gradients, bucket_bytes)

    def _ranks_state(self) -> dict:
        """What pickling keeps of it."""
        kept = {"_zero": self._zero, "_layouts": self._layouts}
        return {name: value for name, value in kept.items() if value}

    @property
    def _is_shared(self) -> bool:
        """Whether ranks step plain parameters together."""
        return self._zero is not None or any(layout is not None for _, layout in self._layouts)

    def _refuse_scaler(self) -> None:
        if self._is_shared and getattr(self, "found_inf", None) is not None:
            raise errors.StepcError(
                "torch's GradScaler knows of an overflow on this rank alone, and other ranks step "
                "with it; use stepc.torch.GradScaler, or loss_scale=DynamicLossScale()"
            )

    def _make_reducer(self) -> None:
        """With zero=2 the buckets of all parameters there are now."""
        if self._zero is None or self._zero.stage != 2:
            return
        from ._members import parameter_name
        from ._reducer import GradientReducer

        if self._reducer is not None:
            self._reducer.remove()
        named = [
            (param, parameter_name(group, number, place))
            for number, group in enumerate(self.param_groups)
            for place, param in enumerate(group["params"])
        ]
        self._reducer = GradientReducer(named, self._zero)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's. With zero=2 gradients that wait for the step
        are forgotten."""
        super().add_param_group(param_group)
        if self._reducer is not None:
            self._make_reducer()

    def no_sync(self) -> contextlib.AbstractContextManager:
        """With zero=2: backward passes inside keep their gradients in ``.grad``, to which the
        next pass outside adds. Nothing otherwise."""
        return contextlib.nullcontext() if self._reducer is None else self._reducer.no_sync()

    def _state_place(self) -> tuple[int, ...] | None:
        return None if self._zero is None else self._zero.place

    def _layout_of(self, param: torch.Tensor):
        """How a parameter lies on the mesh, as the plan is to be told: it is whole."""
        return None
