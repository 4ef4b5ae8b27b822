# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""x * y + z of arrays, rounded once, for what is compared with products of matrices."""

import math
from fractions import Fraction

import numpy as np


def _add(x, y):
    """Their sum, rounded, and what it lacks."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _multiply(x, y):
    """Their product, rounded, and what it lacks: by halves of their bits (T. J. Dekker, 1971)."""

    def halve(value):
        big = value * 134217729.0  # 2^27 + 1
        upper = big - (big - value)
        return upper, value - upper

    product, (a, b), (c, d) = x * y, halve(x), halve(y)
    return product, b * d - (((product - a * c) - b * c) - a * d)


def add_to_odd(x, y):
    """x + y of float64, rounded to odd: where it is not exact, the neighbour with an odd last
    bit of the two that are around it."""
    total, error = _add(x, y)
    bits = total.view(np.int64)
    # Towards the true sum, where that lies beyond an even neighbour.
    outwards = (error > 0) == (total > 0)
    odd = np.where(bits & 1 == 0, bits + np.where(outwards, 1, -1), bits).view(np.float64)
    return np.where(np.isfinite(total) & (error != 0), odd, total)


def fma32(x, y, z):
    """Of float32: their product is exact in float64, also where it is subnormal in float32, and
    a sum rounded to odd may be rounded again."""
    wide = add_to_odd(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
    return wide.astype(np.float32)


def _fma_by_fractions(x, y, z):
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        # What is nothing is +0.0, as no factor is 0.
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _is_within(x, exponent):
    return (abs(x) > 2.0**-exponent) & (abs(x) < 2.0**exponent)


def fma64(x, y, z):
    """Of float64: of what can neither overflow nor underflow on its way by sums without errors
    (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008)."""
    x, y, z = np.broadcast_arrays(x, y, z)
    with np.errstate(all="ignore"):
        by_sums = _is_within(x, 400) & _is_within(y, 400) & ((z == 0) | _is_within(z, 800))
        product, rest = _multiply(x, y)
        upper, lower = _add(z, rest)
        total, left = _add(product, upper)
        # Else right where a factor is 0, or where one is not finite.
        result = np.where(by_sums, total + add_to_odd(lower, left), x * y + z)
    is_finite = np.isfinite(x) & np.isfinite(y)
    # Beside an infinity a product that overflows is nothing.
    result = np.where(is_finite & ~np.isfinite(z), z, result)
    is_plain = (x == 0) | (y == 0) | ~(is_finite & np.isfinite(z))
    for place in np.flatnonzero(~(by_sums | is_plain)):
        result.flat[place] = _fma_by_fractions(x.flat[place], y.flat[place], z.flat[place])
    return result
