# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of PTX on arrays, with an entry for each thread. Registers hold bits, in
uint64; `kind` is a type as PTX writes it: "f32", "s64", "b16".
"""

import numpy as np
from fused import fma32, fma64

_ONE = np.uint64(1)


def get_width(kind):
    return 1 if kind == "pred" else int(kind[1:])


def signed(bits, width):
    """The integers that the low `width` bits are."""
    if width == 64:
        return np.asarray(bits).view(np.int64)
    shift = np.int64(64 - width)
    return (np.asarray(bits).view(np.int64) << shift) >> shift


def from_bits(bits, kind):
    """Values of the kind: floats, signed integers, else uint64."""
    width = get_width(kind)
    if kind[0] == "f":
        if width == 64:
            return np.asarray(bits).view(np.float64)
        if width == 16:
            return np.asarray(bits).astype(np.uint16).view(np.float16)
        return np.asarray(bits).astype(np.uint32).view(np.float32)
    if kind[0] == "s":
        return signed(bits, width)
    return np.asarray(bits) & np.uint64((1 << width) - 1)


def to_bits(values, width):
    values = np.asarray(values)
    if values.dtype == np.float32:
        return values.view(np.uint32).astype(np.uint64)
    if values.dtype == np.float16:
        return values.view(np.uint16).astype(np.uint64)
    if values.dtype.itemsize == 8:
        values = values.view(np.uint64)
    return values.astype(np.uint64) & np.uint64((1 << width) - 1)


def _extremum(x, y, is_max):
    """-0 is below +0; a NaN only where both are."""
    signs = np.signbit(x) if is_max else ~np.signbit(x)
    equal = np.where(signs, y, x)
    larger = np.where((x > y) == is_max, x, y)
    result = np.where(x == y, equal, larger)
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, result))


FLOATS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": lambda x, y, z: (fma32 if x.dtype == np.float32 else fma64)(x, y, z),
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": lambda x: x.dtype.type(1) / x,
    "abs": np.abs,
    "neg": np.negative,
    "max": lambda x, y: _extremum(x, y, True),
    "min": lambda x, y: _extremum(x, y, False),
}


def _shift(function):
    """By at most the width."""

    def shift(x, by, width):
        kept = np.minimum(by, np.uint64(width - 1)).astype(x.dtype)
        beyond = function(x, kept)
        if width - 1 == 0 or not np.any(by >= width):
            return beyond
        # A sign stays; all else is gone.
        gone = np.where(x < 0, -1, 0).astype(x.dtype) if x.dtype == np.int64 else x.dtype.type(0)
        return np.where(by >= width, gone, beyond)

    return shift


def _count_ones(x):
    octets = np.ascontiguousarray(np.atleast_1d(x)).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(octets, axis=1).sum(axis=1).astype(np.uint64)


INTEGERS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mad": lambda x, y, z: x * y + z,
    "div": np.floor_divide,
    "rem": np.remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "abs": np.abs,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "popc": _count_ones,
    "bfe": lambda x, first, length: (x >> first) & ((_ONE << length) - _ONE),
}

COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
