# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the classes have in common that torch does not have: the arguments of a constructor are
the keys of its groups, with checks by key."""

from __future__ import annotations

from collections.abc import Callable, Container

from ..step.compiled import CompiledStep
from .checks import CheckedGroups, check_not_negative


def keys_of(arguments: dict, but: Container[str] = ()) -> dict:
    """What a group has of a constructor's ``locals()``, in the order of its arguments."""
    others = ("self", "__class__", "params", "model_params", "features")
    return {key: value for key, value in arguments.items() if key not in (*others, *but)}


def not_negative(words: str) -> Callable[[float], None]:
    """A check: ValueError, ``Invalid <words>: <value>``, for a number below 0."""
    return lambda value: check_not_negative(value, words)


class Peer(CheckedGroups, CompiledStep):
    """Mix-in before ``torch.optim.Optimizer``.

    ``_ranges``: by key of a group the check of its value, of the constructor's and of groups that
    are added; what looks at several keys overrides ``_check_values``.
    """

    _ranges: dict[str, Callable[[object], None]] = {}

    def _begin(self, arguments: dict, but: Container[str] = (), **more) -> None:
        """The constructor, from its ``locals()``: all but ``but`` are keys of the groups, as are
        ``more``, which are no arguments."""
        defaults = {**keys_of(arguments, but), **more}
        self._check_values(defaults)
        params = arguments["params"] if "params" in arguments else arguments["model_params"]
        super().__init__(params, defaults, **arguments["features"])

    def _check_values(self, group: dict) -> None:
        for key, check in self._ranges.items():
            check(group[key])
