# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the classes have in common that torch does not have: the arguments of a constructor are
the keys of its groups, with checks by key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container

from ..step.compiled import CompiledStep
from .checks import CheckedGroups, check_not_negative

_OTHERS = ("self", "params", "model_params", "features")


def keys_of(kind: type, values: dict, but: Container[str] = ()) -> dict:
    """What a group has of the arguments of a class's constructor, in their order, from the
    ``locals()`` of that."""
    names = inspect.signature(kind.__init__).parameters
    return {name: values[name] for name in names if name not in (*_OTHERS, *but)}


def not_negative(words: str) -> Callable[[float], None]:
    """A check: ValueError, ``Invalid <words>: <value>``, for a number below 0."""
    return lambda value: check_not_negative(value, words)


class Peer(CheckedGroups, CompiledStep):
    """Mix-in before ``torch.optim.Optimizer``.

    ``_ranges``: by key of a group the check of its value, of the constructor's and of groups that
    are added; what looks at several keys overrides ``_check_values``. ``_not_keys``: arguments of
    the constructor that groups do not have. ``_only``: others of these, with the value that each
    is to have, and why.
    """

    _ranges: dict[str, Callable[[object], None]] = {}
    _not_keys: tuple[str, ...] = ()
    _only: dict[str, tuple[object, str]] = {}

    def _begin(self, kind: type, arguments: dict, **more) -> None:
        """The constructor, which is ``kind``'s, from its ``locals()``: its arguments are keys of
        the groups, as are ``more``, which are no arguments. ValueError by ``_only``."""
        for name, (expected, why) in self._only.items():
            if arguments[name] != expected:
                raise ValueError(f"{name} is {arguments[name]}, expected {expected}: {why}")
        defaults = {**keys_of(kind, arguments, (*self._not_keys, *self._only)), **more}
        self._check_values(defaults)
        params = arguments["params"] if "params" in arguments else arguments["model_params"]
        super().__init__(params, defaults, **arguments["features"])

    def _check_values(self, group: dict) -> None:
        for key, check in self._ranges.items():
            check(group[key])
