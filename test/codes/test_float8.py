# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of float8 are those of torch's float8, bit for bit."""

import float8
import numpy as np
import pytest
from stepc import _codes

F32 = np.finfo(np.float32)


def encoded(values):
    values = np.ascontiguousarray(values, np.float32)
    codes = np.zeros(values.shape, np.int8)
    scales = np.zeros(len(float8.root4.blocks(values)[0]), np.float32)
    addresses = (one.ctypes.data for one in (values, codes, scales))
    _codes.encode("f8_e4m3", values.shape, *addresses)
    return codes, scales


def decoded(codes, scales):
    values = np.zeros(codes.shape, np.float32)
    addresses = (one.ctypes.data for one in (codes, scales, values))
    _codes.decode("f8_e4m3", codes.shape, *addresses)
    return values


def check(values):
    codes, scales = encoded(values)
    wanted, of = float8.encode(values)
    assert np.array_equal(codes, wanted)
    assert np.array_equal(scales, of, equal_nan=True)
    found = decoded(codes, scales)
    assert np.array_equal(found, float8.decode(codes, scales), equal_nan=True)
    return codes, scales, found


@pytest.mark.parametrize("exponent", [-149, -120, -90, -3, 0, 60, 125])
def test_blocks(exponent):
    rng = np.random.default_rng(exponent + 200)
    spread = np.exp(3 * rng.standard_normal((4, 64)))
    near = rng.integers(0, 2**11, (4, 64)) / 2.0**11  # ties, and those of subnormal numbers
    few = np.where(rng.random((4, 64)) < 0.1, rng.standard_normal((4, 64)), -0.0)
    for values in (rng.standard_normal((3, 100)), spread, -spread, near, -near, few, 0 * few):
        with np.errstate(over="ignore"):  # infinities are a case, too
            check(np.ldexp(values.astype(np.float32), exponent))


def test_random_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 640_000, np.uint32)
    values = np.where(np.isfinite(bits.view(np.float32)), bits.view(np.float32), 0)
    check(values.reshape(1, -1))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_block_with_what_is_no_number(special):
    values = np.ones((2, 128), np.float32)
    values[1, 70] = special
    codes, _, found = check(values)
    assert (codes[1, 64:] == 0).all() and codes[1, :64].all()
    assert np.isnan(found[1, 64:]).all() and (found[1, :64] == found[0, 0]).all()


def test_what_was_decoded_has_the_same_codes():
    """Of every code, for scales from the least to the largest."""
    rng = np.random.default_rng(0)
    exponents = np.concatenate([rng.integers(-96, 119, 300), [-96, -96, 117, 118]])
    tops = np.ldexp(1 + rng.random(len(exponents)) / 2, exponents).astype(np.float32)
    codes = np.array([c for c in range(256) if c not in (127, 128, 255)] + [0, 0, 0], np.uint8)
    codes = codes.reshape(4, 64)
    codes[:, 0] = 126
    for top in (*tops, LARGEST := F32.max / np.float32(448)):
        scale = (np.float32(top).reshape(1).view(np.int32) & ~7).view(np.float32)[0]
        scales = np.full(4, scale, np.float32)
        values = decoded(codes.view(np.int8), scales)
        assert np.isfinite(values).all() and np.abs(values).max() == 448 * scale
        again, of = encoded(values)
        assert np.array_equal(again.view(np.uint8), codes) and np.array_equal(of, scales), top
    check(np.full((1, 64), F32.max)), check(np.full((1, 64), LARGEST))


def test_a_number_is_never_stored_as_nothing():
    values = np.zeros((1, 64), np.float32)
    values[0, :4] = 1e20, 1e-30, -F32.smallest_subnormal, -0.0
    codes, _, found = check(values)
    assert list(codes[0, :4]) == [126, 1, -127, 0] and found[0, 1] > 0 > found[0, 2]


def test_every_code_stands_for_torchs_number():
    codes = np.arange(256, dtype=np.uint8).view(np.int8).reshape(4, 64)
    found = decoded(codes, np.ones(4, np.float32))
    assert np.array_equal(found, float8.decode(codes, np.ones(4)), equal_nan=True)
