# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What classes have in common that take a number of steps of Newton and Schulz."""

from __future__ import annotations

from ...definition import Definition

STEPS = 5  # that the definitions are written with
_END = 100  # torch refuses that many


def is_number_of_steps(value: object) -> bool:
    """Whether a step can be compiled for so many of Newton and Schulz."""
    return type(value) is int and 0 <= value < _END


class OfSteps:
    """Mix-in before :class:`CompiledStep`, of definitions that repeat what groups say by
    ``ns_steps``: for each number there is a package of its own. It is that of the first group
    of matrices that has any."""

    def _num_steps_of_all(self) -> int:
        groups = (g for g in self.param_groups if len(g["params"]) and g.get("use_muon", True))
        steps = next((group["ns_steps"] for group in groups), STEPS)
        return steps if is_number_of_steps(steps) else STEPS

    def _get_definition(self) -> Definition:
        return super()._get_definition().with_repeats(self._num_steps_of_all() - STEPS)

    def _read_settings(self, group: dict) -> tuple:
        return *super()._read_settings(group), group["ns_steps"]
