# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format q8 (docs/states.md) written in numpy, one rounded operation after the other."""

import numpy as np

BLOCK = 64
LEAST = np.float32(2.0**-96)


def row_size(shape):
    """Of a row, along which blocks lie: the last dims, not the first, that have 64 elements."""
    size, dim = shape[-1], len(shape) - 1
    while dim > 1 and size < BLOCK:
        dim -= 1
        size *= shape[dim]
    return size


def blocks(values):
    """A row each, filled up with zeros; and which of its elements there are."""
    rows = values.reshape(-1, row_size(values.shape))
    pad = -rows.shape[1] % BLOCK
    there = np.ones(rows.shape, bool)
    rows, there = (np.pad(a, ((0, 0), (0, pad))) for a in (rows, there))
    return rows.reshape(-1, BLOCK), there.reshape(-1)


GUESS = np.int32(0x4F50A3D7)
POWER = [np.float32(float.fromhex(n)) for n in
         ("0x1.ffe084p-1", "-0x1.5a624ap+1", "0x1.5a93a4p+1")]  # fmt: skip


def fourth_roots(x, rate):
    """Of numbers not below 0, times the rate, in float32: x^(-1/4) is guessed from the bits, and a
    polynomial corrects it."""
    guess = (GUESS - (x.view(np.int32) >> 2)).view(np.float32)
    second, first, zeroth = (number * rate for number in POWER)
    root = guess * guess * (x * guess)
    t = root * guess
    return root * ((second * t + first) * t + zeroth)


def encode(values):
    """The codes, of the shape of the values, and the scales, in their order."""
    values = np.ascontiguousarray(values, np.float32)
    rows, there = blocks(values)
    codes, scales = np.zeros(rows.shape, np.uint8), np.zeros(len(rows), np.float32)
    for number, row in enumerate(rows):
        magnitude = np.abs(row)
        top = np.float32(np.nan) if np.isnan(row).any() else magnitude.max()
        if not np.isfinite(top) or top == 0:
            scales[number] = top
            continue
        top, signed = max(top, LEAST), (row < 0).any()
        levels = np.float32(127 if signed else 255)
        rate = levels / np.sqrt(np.sqrt(top))
        level = np.rint(fourth_roots(magnitude, rate))
        level = np.maximum(level.astype(np.int32), magnitude > 0)
        codes[number] = np.where(row < 0, -level, level).astype(np.uint8)
        scales[number] = -top if signed else top
    return codes.reshape(-1)[there].reshape(values.shape), scales


def decode(codes, scales, shape=None):
    """What they stand for, of the shape of the codes."""
    rows, there = blocks(codes)
    scales = np.asarray(scales, np.float32).reshape(-1, 1)
    signed = np.signbit(scales)
    number = np.where(signed, rows.view(np.int8).astype(np.int32), rows.astype(np.int32))
    step = np.where(signed, np.float32(1) / np.float32(127), np.float32(1) / np.float32(255))
    share = number.astype(np.float32) * step.astype(np.float32)
    square = share * share
    with np.errstate(invalid="ignore"):
        values = square * square * np.abs(scales)
    values = np.where(number < 0, -values, values)
    return values.reshape(-1)[there].reshape(codes.shape)
