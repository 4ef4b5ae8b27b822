# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format q4 (docs/states.md) in numpy, one rounded operation after the other."""

import math

import numpy as np
import root4

EACH = 8  # codes of an element, the first in its lowest bits
# Beyond these shares of a block's largest number levels of numbers with signs begin.
SHARES = [np.float32((k**3 + (k + 1) ** 3) / (2 * 7**3)) for k in range(7)]


def limit_of(share, top):
    """Cut to the upper 16 bits."""
    return ((share * top).reshape(1).view(np.int32) & ~0xFFFF).view(np.float32)[0]


def dither_of(positive):
    """From -0.485 to 0.485, as a product of a number's bits says."""
    with np.errstate(over="ignore"):
        mixed = (positive.view(np.uint32) * np.uint32(0x9E3779B1)).view(np.int32) >> 16
    return mixed.astype(np.float32) * (np.float32(0.97) / np.float32(2**16))


def encode_block(row):
    """Its numbers, and the scale."""
    above, below = max(row.max(), np.float32(0)), max((-row).max(), np.float32(0))
    top = np.maximum(max(above, below), root4.LEAST)
    limits = [limit_of(share, top) for share in SHARES]
    if below > limits[0]:
        levels = sum((np.abs(row) > limit).astype(np.int32) for limit in limits)
        return np.where(row < 0, -levels, levels), -top
    positive = np.maximum(row, np.float32(0))
    rate = np.sqrt(np.float32(15)) / np.sqrt(np.sqrt(top))
    half = root4.fourth_roots(positive, rate)
    levels = np.maximum(half * half, (positive > 0).astype(np.float32))
    levels = np.rint(levels + dither_of(positive)).astype(np.int32)
    return np.maximum(levels, positive > 0), top if above else np.float32(0)


def encode(values):
    """The codes, of the dims before a row and as many elements as it takes; and the scales."""
    values = np.ascontiguousarray(values, np.float32)
    rows, there = root4.blocks(values)
    numbers, scales = np.zeros(rows.shape, np.int32), np.zeros(len(rows), np.float32)
    for number, row in enumerate(rows):
        top = np.float32(np.nan) if np.isnan(row).any() else np.abs(row).max()
        if np.isfinite(top):
            numbers[number], scales[number] = encode_block(row)
        else:
            scales[number] = top
    return pack(numbers.reshape(-1)[there].reshape(values.shape)), scales


def lead(shape):
    """The dims before a row."""
    before, row = len(shape), root4.row_size(shape)
    while before and math.prod(shape[before:]) < row:
        before -= 1
    return shape[:before]


def pack(numbers):
    """Numbers of a state's shape, as elements of eight."""
    row = root4.row_size(numbers.shape)
    rows = numbers.reshape(-1, row) & 15
    rows = np.pad(rows, ((0, 0), (0, -row % EACH))).astype(np.uint32).reshape(len(rows), -1, EACH)
    words = np.bitwise_or.reduce(rows << (4 * np.arange(EACH, dtype=np.uint32)), axis=-1)
    return words.view(np.int32).reshape(*lead(numbers.shape), -1)


def unpack(codes, shape):
    """The four bits of each, of a state of the shape."""
    row = root4.row_size(shape)
    bits = codes.view(np.uint32)[..., None] >> (4 * np.arange(EACH, dtype=np.uint32)) & 15
    return bits.reshape(-1, codes.shape[-1] * EACH)[:, :row].reshape(shape).astype(np.int32)


def decode(codes, scales, shape):
    """What they stand for."""
    rows, there = root4.blocks(unpack(codes, shape))
    scales = np.asarray(scales, np.float32).reshape(-1, 1)
    signed = np.signbit(scales)
    number = np.where(signed, (rows ^ 8) - 8, rows)
    step = np.where(signed, np.float32(1) / np.float32(7), np.float32(1) / np.float32(15))
    share = number.astype(np.float32) * step.astype(np.float32)
    square = share * share
    with np.errstate(invalid="ignore"):
        values = np.where(signed, square * share, square) * np.abs(scales)
    return values.reshape(-1)[there].reshape(shape)
