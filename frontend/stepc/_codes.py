# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of states (docs/states.md), as the runtime library makes them: of memory that others
have."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from ctypes import byref, c_float, c_int64, c_uint8

from . import _library
from ._structures import Q8


def _extents(shape: Sequence[int]):
    return (c_int64 * max(len(shape), 1))(*shape)


def encode(shape: Sequence[int], values: int, codes: int, scales: int) -> None:
    """Of f32 in row-major order; all by address. ``shape``: of the whole state, or of a part
    that begins and ends where its blocks do."""
    lib = _library.load_library()
    status = lib.stepcEncodeState(Q8, _extents(shape), len(shape), values, codes, scales)
    _library.check(lib, status)


def decode(shape: Sequence[int], codes: int, scales: int, values: int) -> None:
    """The same back."""
    lib = _library.load_library()
    status = lib.stepcDecodeState(Q8, _extents(shape), len(shape), codes, scales, values)
    _library.check(lib, status)


@functools.lru_cache(maxsize=256)
def of_number(value: float) -> tuple[int, float]:
    """The code and the scale where all of a block is the number."""
    number, code, scale = c_float(value), c_uint8(), c_float()
    lib = _library.load_library()
    status = lib.stepcEncodeState(Q8, _extents([1]), 1, byref(number), byref(code), byref(scale))
    _library.check(lib, status)
    return code.value, scale.value
