# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes as the library makes them are those of the format, bit for bit."""

import numpy as np
import pytest
import root4
from stepc import _codes, errors

F32 = np.finfo(np.float32)


def encoded(values):
    values = np.ascontiguousarray(values, np.float32)
    codes = np.zeros(values.shape, np.uint8)
    scales = np.zeros(len(root4.blocks(values)[0]), np.float32)
    _codes.encode("q8", values.shape, values.ctypes.data, codes.ctypes.data, scales.ctypes.data)
    return codes, scales


def decoded(codes, scales):
    values = np.zeros(codes.shape, np.float32)
    _codes.decode("q8", codes.shape, codes.ctypes.data, scales.ctypes.data, values.ctypes.data)
    return values


def check(values):
    codes, scales = encoded(values)
    wanted_codes, wanted_scales = root4.encode(values)
    assert np.array_equal(codes, wanted_codes)
    assert np.array_equal(scales, wanted_scales, equal_nan=True)
    assert (np.signbit(scales) == np.signbit(wanted_scales))[np.isfinite(scales)].all()
    found, wanted = decoded(codes, scales), root4.decode(codes, scales)
    assert np.array_equal(found, wanted, equal_nan=True)
    return codes, scales, found


def kinds(rng):
    """Blocks of all kinds of numbers."""
    spread = np.exp(3 * rng.standard_normal(64))
    few = np.where(rng.random(64) < 0.1, rng.standard_normal(64), 0.0)
    yield from (rng.standard_normal(64), spread, -spread, few, np.zeros(64), np.full(64, -0.0))
    yield np.where(rng.random(64) < 0.5, -0.0, spread)
    yield rng.integers(-7, 8, 64) / 8
    one = np.zeros(64)
    one[rng.integers(64)] = -1.0
    yield one
    # Near the middle between two codes.
    for levels in (255, 127):
        middles = ((rng.integers(0, levels, 64) + 0.5) / levels) ** 4
        near = np.nextafter(middles.astype(np.float32), rng.choice([0, 2], 64).astype(np.float32))
        near[0], near[1] = 1.0, 1.0 if levels == 255 else -0.3
        yield near


@pytest.mark.parametrize("seed", range(6))
def test_blocks(seed):
    rng = np.random.default_rng(seed)
    for values in kinds(rng):
        for exponent in (0, *rng.integers(-149, 127, 12)):
            with np.errstate(over="ignore"):  # infinities are a case, too
                check(np.ldexp(values.astype(np.float32), exponent))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_block_with_what_is_no_number(special):
    values = np.ones((2, 128), np.float32)
    values[1, 70] = special
    codes, scales, found = check(values)
    assert (codes[1, 64:] == 0).all() and codes[1, :64].all()
    assert np.isnan(found[1, 64:]).all() and (found[0] == 1).all() and (found[1, :64] == 1).all()


def test_random_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 640_000, np.uint32)
    values = np.where(np.isfinite(bits.view(np.float32)), bits.view(np.float32), 0)
    check(values.reshape(1, -1))


def test_what_was_decoded_has_the_same_codes():
    """Of every code of both kinds, for scales from the least to the largest."""
    rng = np.random.default_rng(0)
    exponents = np.concatenate([rng.integers(-96, 127, 300), [-96, -96, 126, 127]])
    tops = np.ldexp(1 + rng.random(len(exponents)), exponents).astype(np.float32)
    for top in (*tops, np.float32(2.0**-96), F32.max):
        for signed in (False, True):
            # Each block has the largest code, too.
            codes = (np.arange(-127, 129) if signed else np.arange(256)).astype(np.uint8)
            codes = codes.reshape(4, 64)
            codes[:, 0] = 129 if signed else 255
            codes[codes == (128 if signed else 0)] = 0
            scales = np.full(4, -top if signed else top, np.float32)
            values = decoded(codes, scales)
            assert np.isfinite(values).all() and np.abs(values).max() == top
            again, of = encoded(values)
            assert np.array_equal(again, codes) and np.array_equal(of, scales), (top, signed)


def test_a_number_is_never_stored_as_nothing():
    values = np.zeros((1, 64), np.float32)
    values[0, :3] = 1e20, 1e-30, F32.smallest_subnormal
    codes, _, found = check(values)
    assert list(codes[0, :3]) == [255, 1, 1] and (found[0, :3] > 0).all()
    codes, _, found = check(-values)
    assert list(codes[0, :3]) == [129, 255, 255] and (found[0, :3] < 0).all()


def test_how_far_off():
    """Half a step of the fourth root, which is off by 3.5e-4 of it: of the largest 0.8 or 1.6 parts
    of a hundred."""
    rng = np.random.default_rng(0)
    for values, levels in ((rng.standard_normal((50, 256)), 127), (rng.random((50, 256)), 255)):
        values = values.astype(np.float32)
        _, scales, found = check(values)
        share = np.abs(root4.blocks(values)[0] / scales[:, None].astype(np.float64)) ** 0.25
        off = np.abs(root4.blocks(found)[0] / scales[:, None].astype(np.float64)) ** 0.25 - share
        assert np.abs(off)[share > 0.6 / levels].max() <= 0.5 / levels + 3.6e-4


@pytest.mark.parametrize(
    "shape", [(3, 64), (5, 100), (4, 1), (2, 3, 7, 9), (70, 3, 3), (1, 63), (2, 65), (6, 0), (9,)]
)
def test_rows(shape):
    """Blocks begin with each row, and a short one ends it."""
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    if values.size:
        check(values)
    codes, scales = encoded(values) if values.size else (values, [])
    row = root4.row_size(shape)
    assert len(scales) == (values.size // row * -(-row // 64) if values.size else 0)


def test_a_row_is_the_last_dims_of_64_elements_but_not_the_first():
    sizes = {(10, 5, 3, 3): 45, (8, 3, 128): 128, (64, 2, 8, 8): 64, (3, 2): 2, (100,): 100,
             (9, 64, 24, 3): 72, (9, 4, 24, 2): 192}  # fmt: skip
    for shape, row in sizes.items():
        values = np.zeros(shape, np.float32)
        assert len(encoded(values)[1]) == values.size // row * -(-row // 64), shape


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((), "a state of codes has rank 0, not one to 64"),
        ((2, -1), r"shape \[2, -1\] is impossible"),
    ],
)
def test_refused(shape, words):
    with pytest.raises(errors.StepcError, match=words):
        _codes.encode("q8", shape, 0, 0, 0)
    with pytest.raises(errors.StepcError, match="values is NULL"):
        _codes.encode("q8", (2, 2), 0, 0, 0)
    with pytest.raises(errors.StepcError, match="codes is NULL"):
        _codes.decode("q8", (2, 2), 0, 0, 0)
