# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What values of a ``ds_config.json`` may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """``words``: what is expected; ``accepts``: whether a value of the file is that; ``take``: the
    value as it is used."""

    words: str
    accepts: Callable[[object], bool]
    take: Callable = staticmethod(lambda value: value)


def _is_number(value: object) -> bool:
    """Integers are of 64 bits."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value)


def number(least: float = 0.0) -> Check:
    words = "a number" if least == -math.inf else f"a number from {least:g} on"
    return Check(words, lambda v: _is_number(v) and v >= least)


def share() -> Check:
    return Check("a number from 0 to 1", lambda v: _is_number(v) and 0 <= v <= 1)


def whole(least: int = 0) -> Check:
    """Also written as 5e8."""
    words = f"a whole number from {least} on, of 64 bits"
    return Check(words, lambda v: _is_number(v) and least <= v < 2**63 and v == int(v), int)


def one_of(*values: object) -> Check:
    """True is no 1 there."""
    words = ", ".join(map(repr, values))
    return Check(words, lambda v: any(v is o or (type(v) is type(o) and v == o) for o in values))


def optional(check: Check) -> Check:
    return Check(
        f"{check.words} or null",
        lambda v: v is None or check.accepts(v),
        lambda v: None if v is None else check.take(v),
    )


def _is_pair(value: object) -> bool:
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(_is_number(v) and 0.0 <= v < 1.0 for v in value)


BOOL = Check("true or false", lambda v: isinstance(v, bool))
BOOL_OR_NULL = optional(BOOL)
TEXT = Check("a text", lambda v: isinstance(v, str))
BETAS = Check("two numbers from 0 to below 1", _is_pair, tuple)
BLOCK = Check("a block", lambda v: isinstance(v, dict))
ANY = Check("anything", lambda v: True)
DTYPE = one_of(None, "fp16", "bf16", "fp32")
