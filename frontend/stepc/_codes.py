# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of states (docs/states.md), as the runtime library makes them: of memory that others
have."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from ctypes import byref, c_float, c_int64, c_uint8
from dataclasses import dataclass
from typing import NamedTuple

from . import _library
from ._structures import DATA_TYPES, StateFormatInfo


class Words(NamedTuple):
    """What codes lie in, as the library says it: ``storage`` is that of their tensor, which no
    other format's has: it tells what codes of a checkpoint are. An element of it has
    ``per_word`` codes, the first in its lowest bits; each row begins with one of its own."""

    storage: str
    itemsize: int
    per_word: int

    def count(self, row: int) -> int:
        """How many there are of a row of so many elements."""
        return -(-row // self.per_word)


class Format(NamedTuple):
    """``number``: its StepcStateFormat."""

    number: int

    @property
    def words(self) -> Words:
        return _words(self.number)


FORMATS = {"q8": Format(1), "f8_e4m3": Format(2), "q4": Format(3)}
OF_NUMBER = {format.number: name for name, format in FORMATS.items()}


@functools.cache
def _words(number: int) -> Words:
    lib, info = _library.load_library(), StateFormatInfo()
    info.structSize = ctypes.sizeof(info)
    _library.check(lib, lib.stepcGetStateFormat(number, byref(info)))
    assert info.name.decode() == OF_NUMBER[number]
    own = (info.dtype.code, info.dtype.bits)
    [storage] = [name for name, kind in DATA_TYPES.items() if (kind.code, kind.bits) == own]
    return Words(storage, info.dtype.bits // 8, info.codesPerElement)


@dataclass(frozen=True, repr=False)
class Codes:
    """States that are kept as codes, for ``state_dtype``.

    Args:
        format: "q8", "q4" or "f8_e4m3".
        min_size: elements that a state has at least to be codes, of the whole tensor, whatever
            ranks have of it; None: 4096. States of one dim, and with rows of fewer than 32
            elements, stay float32 whatever it is.

    Raises ValueError and TypeError.
    """

    format: str
    min_size: int | None = None

    def __post_init__(self):
        if self.format not in FORMATS:
            known = " or ".join(f"'{name}'" for name in FORMATS)
            raise ValueError(f"format is {self.format!r}, expected {known}")
        if self.min_size is None:
            return
        if isinstance(self.min_size, bool) or not isinstance(self.min_size, int):
            raise TypeError(f"min_size is {self.min_size!r}, expected an integer or None")
        if not 1 <= self.min_size < 1 << 63:
            raise ValueError(f"min_size is {self.min_size}, expected one from 1 to 2**63 - 1")

    def __repr__(self) -> str:
        least = "" if self.min_size is None else f", min_size={self.min_size}"
        return f"Codes({self.format!r}{least})"


_PLAIN = {name: Codes(name) for name in FORMATS}


def as_codes(kind: object) -> Codes | None:
    """What says how a state is kept, where that is codes: a format's name, or :class:`Codes`."""
    return kind if isinstance(kind, Codes) else _PLAIN.get(kind)


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
    """An element of codes, as its storage has it, and the scale where all of a block is the
    number."""
    words = FORMATS[format].words
    size = words.per_word
    numbers, codes, scale = (
        (c_float * size)(*[value] * size),
        (c_uint8 * words.itemsize)(),
        c_float(),
    )
    encode(format, [size], *(ctypes.addressof(own) for own in (numbers, codes, scale)))
    return int.from_bytes(codes, sys.byteorder, signed=words.storage[0] == "i"), scale.value
