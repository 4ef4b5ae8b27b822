# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalars that a definition or a fragment keeps between steps."""

from __future__ import annotations

import contextlib

from ... import errors
from ...interface import Interface
from ..binding import features as _features
from ..binding.binding import Binding


class KeptScalars:
    """Mix-in of :class:`CompiledStep`: the plan has them, and between two plans this."""

    _scalars: dict = {}  # what the last binding kept between steps

    @property
    def scalars(self) -> dict[str, float | list[float]]:
        """What the definition and its fragments keep between steps, by name: a number,
        or a list of one for each group where it is of groups. Empty before the first
        step unless something was set or loaded."""
        return self._current_scalars()

    def set_scalar(self, name: str, value: float | list[float]) -> None:
        """Sets one of them from the next step on: ``set_scalar("d", 1e-5)``.

        A number stands for all groups. NameNotFoundError for a name that is no
        scalar of the definition.
        """
        interface = self._get_definition().interface()
        found = next((scalar for scalar in interface.scalars if scalar.name == name), None)
        if found is None:
            names = ", ".join(f"'{scalar.name}'" for scalar in interface.scalars)
            raise errors.NameNotFoundError(
                f"optimizer '{interface.name}' has no scalar '{name}'; it has {names or 'none'}",
                "STEPC_UNKNOWN_NAME",
            )
        if found.scope == "group" and not isinstance(value, list):
            value = [value] * len(self.param_groups)
        value = [float(v) for v in value] if isinstance(value, list) else float(value)
        self._set_scalars({**self._current_scalars(), name: value})

    def _current_scalars(self) -> dict[str, float | list[float]]:
        if self._binding is not None:
            return self._binding.scalars()
        return self._scalars

    def _keep_scalars(self, binding: Binding | None) -> None:
        """Notes what a binding knows that is about to go: scalars, and counts of steps
        that a device alone has."""
        with contextlib.suppress(errors.StatusError):
            if binding is not None:
                binding.refresh_counts()
                self._scalars = binding.scalars()

    def _set_scalars(self, scalars: dict) -> None:
        """From the next step on, which binds anew."""
        self._keep_scalars(self._binding)
        self._binding, self._scalars = None, scalars

    def _initial_scalars(self, interface: Interface) -> dict:
        """What a plan is to begin with, other than the definition's defaults."""
        given = {**_features.initial_scalars(interface, self._features), **self._scalars}
        scopes = {scalar.name: scalar.scope for scalar in interface.scalars}
        return {
            name: value[0] if isinstance(value, list) and scopes[name] == "model" else value
            for name, value in given.items()
            if name in scopes
        }
