# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of states (docs/states.md), as the runtime library makes them: of memory that others
have."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from ctypes import byref, c_float, c_int8, c_int64, c_uint8
from typing import NamedTuple

from . import _library


class Format(NamedTuple):
    """``number``: its StepcStateFormat; ``storage``: what its codes are, which no other format's
    are: it tells what codes of a checkpoint are."""

    number: int
    storage: str


FORMATS = {"q8": Format(1, "u8"), "f8_e4m3": Format(2, "i8")}
OF_NUMBER = {format.number: name for name, format in FORMATS.items()}


def _extents(shape: Sequence[int]):
    return (c_int64 * max(len(shape), 1))(*shape)


def encode(format: str, shape: Sequence[int], values: int, codes: int, scales: int) -> None:
    """Of f32 in row-major order; all by address. ``shape``: of the whole state, or of a part
    that begins and ends where its blocks do."""
    lib = _library.load_library()
    status = lib.stepcEncodeState(
        FORMATS[format].number, _extents(shape), len(shape), values, codes, scales
    )
    _library.check(lib, status)


def decode(format: str, shape: Sequence[int], codes: int, scales: int, values: int) -> None:
    """The same back."""
    lib = _library.load_library()
    status = lib.stepcDecodeState(
        FORMATS[format].number, _extents(shape), len(shape), codes, scales, values
    )
    _library.check(lib, status)


@functools.lru_cache(maxsize=256)
def of_number(format: str, value: float) -> tuple[int, float]:
    """The code, as its storage has it, and the scale where all of a block is the number."""
    own = FORMATS[format]
    kind = c_int8 if own.storage == "i8" else c_uint8
    number, code, scale = c_float(value), kind(), c_float()
    lib = _library.load_library()
    status = lib.stepcEncodeState(
        own.number, _extents([1]), 1, byref(number), byref(code), byref(scale)
    )
    _library.check(lib, status)
    return code.value, scale.value
