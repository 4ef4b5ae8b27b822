# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes, places in memory and elements that tests of whole steps are made of."""

from __future__ import annotations

import numpy as np
from driver import random_array
from oracle import store

EXTENTS = [0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257,
           1023, 1024, 1025, 2049, 4097]  # fmt: skip
RANKS = (0, 1, 1, 2, 2, 2, 2, 3, 3, 4)


def random_shape(rng, most=20000, ranks=RANKS):
    """Extents at the edges of lanes, leaves and tiles, of at most some elements."""
    while True:
        shape = tuple(int(rng.choice(EXTENTS)) for _ in range(rng.choice(ranks)))
        if 0 in shape and rng.random() < 0.7:
            continue
        # A state without the dim that is 0 has elements.
        if np.prod([max(n, 1) for n in shape]) <= most:
            return shape


def all_zero(rng, shape):
    return np.zeros(shape)


def zero_row(rng, shape):
    values = rng.standard_normal(shape)
    if len(shape) > 1:
        values[..., : (shape[-2] + 1) // 2, :] = 0
    return values


def zero_column(rng, shape):
    values = rng.standard_normal(shape)
    if shape:
        values[..., : (shape[-1] + 1) // 2] = 0
    return values


def one_of(number):
    def values(rng, shape):
        result = rng.standard_normal(shape)
        if result.size:
            result[np.unravel_index(rng.integers(result.size), shape)] = number
        return result

    return values


def scaled(factor):
    return lambda rng, shape: rng.standard_normal(shape) * factor


FILLS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "wide": lambda rng, shape: rng.standard_normal(shape) * np.exp2(rng.integers(-40, 30, shape)),
    "huge": scaled(1e30), "denormal": scaled(1e-39), "tiny": scaled(1e-20),
    "zero": all_zero, "zero row": zero_row, "zero column": zero_column,
    "one nan": one_of(np.nan), "one inf": one_of(np.inf), "one huge": one_of(3e38),
}  # fmt: skip


def fill(rng, kind, shape, storage, positive=False):
    if kind == "special":
        return random_array(rng, shape, storage, positive)
    if kind == "few bits":  # for sums that are exact
        return store(rng.integers(-31, 32, shape) / 2.0, storage).reshape(shape)
    values = np.asarray(FILLS[kind](rng, shape))
    if storage != "f64":
        with np.errstate(over="ignore", under="ignore"):
            values = values.astype(np.float32)
    return store(np.abs(values) if positive else values, storage).reshape(shape)


def random_place(rng, shape, strided=True):
    """An offset, and often strides that are not those of a dense array."""
    place = {"offset": int(rng.integers(0, 17))}
    kind = rng.integers(5) if strided else 0
    if kind >= 2 and shape:
        order = rng.permutation(len(shape)) if kind >= 3 else np.arange(len(shape))[::-1]
        strides, size = [0] * len(shape), int(rng.integers(1, 4)) if kind == 4 else 1
        for dim in order:
            strides[dim] = size
            size *= max(shape[dim], 1)
            size += int(rng.integers(0, 4)) if kind == 2 else 0
        place["strides"] = strides
    return place
