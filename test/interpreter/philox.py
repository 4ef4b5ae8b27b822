# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stochastic rounding to bf16 and normal random numbers in numpy, from the papers alone.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: Parallel Random Numbers: As Easy as 1, 2,
3. SC 2011. The rest is as docs/language.md has it (`step.round_stochastic`, `step.random_normal`).
"""

import statistics

import numpy as np

WORD = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key, rounds=10):
    """Four words of 32 bits for each counter: arrays of uint64 that hold words."""
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(rounds):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0 = (second >> np.uint64(32)) ^ c1 ^ np.uint64(k0)
        c2 = (first >> np.uint64(32)) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & WORD, first & WORD
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def fnv1a(name):
    value = 0x811C9DC5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def halves(indices, seed, count, name="", number=1):
    """The random number from 0 to 65535 of each element."""
    position = (np.uint64(number) << np.uint64(40)) + np.asarray(indices, np.uint64)
    block = position >> np.uint64(3)
    counter = (block & WORD, block >> np.uint64(32), count % 2**32, fnv1a(name))
    words = np.stack(philox4x32(counter, (seed % 2**32, seed >> 32)))
    half = position & np.uint64(7)
    word = np.take_along_axis(words, (half >> np.uint64(1)).astype(int)[None], 0)[0]
    return (word >> (half % np.uint64(2) * np.uint64(16))) & np.uint64(0xFFFF)


def rounded(values, random):
    """The bits of the bf16 to which each f32 is rounded."""
    bits = values.view(np.uint32).astype(np.uint64)
    result = (bits + random) >> np.uint64(16)
    # A finite value stays finite.
    result = np.where(
        np.isfinite(values) & (result % 2**15 == 0x7F80), bits >> np.uint64(16), result
    )
    return np.where(np.isnan(values), 0x7FC0, result).astype(np.uint16)


def normal_parts(shape, seed, count, name, number=1):
    """Of each element the 52 bits k: it is the quantile of (k + 1/2) / 2^52."""
    indices = np.arange(np.prod(shape), dtype="u8")
    position = (np.uint64(number) << np.uint64(40)) + indices
    block = position >> np.uint64(1)
    key = int(np.float64(seed).view("u8"))
    counter = (block & WORD, block >> np.uint64(32), count % 2**32, fnv1a(" normal " + name))
    words = np.stack(philox4x32(counter, (key % 2**32, key >> 32)))
    first = (position & np.uint64(1)).astype(int) * 2
    low = np.take_along_axis(words, first[None], 0)[0]
    high = np.take_along_axis(words, first[None] + 1, 0)[0]
    return ((high << np.uint64(32) | low) >> np.uint64(12)).reshape(shape)


def normals(shape, seed, count, name, number=1):
    """To some units of f64, by Python's quantile."""
    quantile = statistics.NormalDist().inv_cdf
    parts = normal_parts(shape, seed, count, name, number).astype("f8")
    return np.vectorize(quantile, otypes=["f8"])((parts + 0.5) / 2**52)
