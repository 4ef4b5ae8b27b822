# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What happened in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class StepReport(Mapping):
    """What the last step reported, by name; names are attributes too.

    ``skipped``: whether the step changed nothing, because a gradient was Inf or
    NaN. With clipping by norm: ``grad_norm``, before it and after unscaling, and
    ``clip_coef``, what the gradients were multiplied by. With a loss scale:
    ``loss_scale``, the one that gradients were divided by. And what the
    definition reports; a list of one for each group where it is of groups.
    """

    def __init__(self, skipped: bool, reports: dict[str, float | list[float]]):
        self._values = {"skipped": skipped, **reports}

    def __getitem__(self, name: str) -> bool | float | list[float]:
        return self._values[name]

    def __getattr__(self, name: str) -> bool | float | list[float]:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(
            f"the step reported no '{name}'; it reported {', '.join(values) or 'nothing'}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"StepReport({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"
