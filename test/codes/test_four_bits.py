# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of 4 bits are those of the format written in numpy, bit for bit."""

import ctypes

import four_bits
import numpy as np
import pytest
import root4
from stepc import _codes, _library, _structures

F32 = np.finfo(np.float32)


def encoded(values):
    values = np.ascontiguousarray(values, np.float32)
    row = root4.row_size(values.shape)
    codes = np.full((*four_bits.lead(values.shape), -(-row // 8)), -1, np.int32)
    scales = np.zeros(len(root4.blocks(values)[0]), np.float32)
    addresses = (one.ctypes.data for one in (values, codes, scales))
    _codes.encode("q4", values.shape, *addresses)
    return codes, scales


def decoded(codes, scales, shape):
    values = np.zeros(shape, np.float32)
    addresses = (one.ctypes.data for one in (codes, scales, values))
    _codes.decode("q4", shape, *addresses)
    return values


def check(values):
    codes, scales = encoded(values)
    wanted, of = four_bits.encode(values)
    assert np.array_equal(codes, wanted)
    assert np.array_equal(scales, of, equal_nan=True)
    found = decoded(codes, scales, values.shape)
    assert np.array_equal(found, four_bits.decode(codes, scales, values.shape), equal_nan=True)
    again, twice = encoded(found)
    finite = np.isfinite(scales)
    assert np.array_equal(twice[finite], scales[finite])
    assert not finite.all() or np.array_equal(again, codes)
    return codes, scales, found


@pytest.mark.parametrize("exponent", [-149, -120, -97, -90, -3, 0, 60, 126])
def test_blocks(exponent):
    rng = np.random.default_rng(exponent + 200)
    spread = np.exp(3 * rng.standard_normal((4, 64)))
    few = np.where(rng.random((4, 64)) < 0.1, rng.standard_normal((4, 64)), -0.0)
    one = np.where(np.arange(64) == 7, -1e-4, rng.random((4, 64)))  # next to 0: not below
    mixed = spread * rng.choice([-1, 1], spread.shape)
    rows = rng.standard_normal((3, 100)), rng.standard_normal((5, 33)), rng.random((2, 3, 5, 7))
    for values in (*rows, spread, -spread, mixed, few, one, 0 * few, -1e-9 * rng.random((2, 64))):
        with np.errstate(over="ignore"):  # infinities are a case, too
            check(np.ldexp(values.astype(np.float32), exponent))


def test_random_bits():
    bits = np.random.default_rng(0).integers(0, 2**32, 640_000, np.uint32)
    values = np.where(np.isfinite(bits.view(np.float32)), bits.view(np.float32), 0)
    check(values.reshape(1, -1))
    check(np.abs(values).reshape(10, -1))


@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_block_with_what_is_no_number(special):
    values = np.ones((2, 128), np.float32)
    values[1, 70] = special
    codes, _, found = check(values)
    assert (codes[1, 8:] == 0).all() and (codes[1, :8] == -1).all()
    assert np.isnan(found[1, 64:]).all() and (found[1, :64] == 1).all()


@pytest.mark.parametrize("signed", [False, True])
def test_what_was_decoded_has_the_same_codes(signed):
    """Of every code, for scales from the least to the largest."""
    rng = np.random.default_rng(0)
    exponents = np.concatenate([rng.integers(-96, 127, 300), [-96, 126]])
    tops = np.ldexp(1 + rng.random(len(exponents)), exponents).astype(np.float32)
    numbers = np.arange(64) % 16 if not signed else np.arange(64) % 15 - 7
    codes = four_bits.pack(numbers.astype(np.int32).reshape(1, 64))
    for top in (*tops, root4.LEAST, F32.max):
        scales = np.array([-top if signed else top], np.float32)
        values = decoded(codes, scales, (1, 64))
        assert np.isfinite(values).all() and np.abs(values).max() == top
        again, of = encoded(values)
        assert np.array_equal(again, codes) and np.array_equal(of, scales), top


def test_the_next_level():
    """Of numbers with signs: by as much as limits are cut."""
    rng = np.random.default_rng(1)
    levels = (np.arange(8) / 7) ** 3
    values = rng.uniform(-1, 1, (100, 64)).astype(np.float32)
    values[:, 0] = -1
    _, _, found = check(values)
    nearest = np.abs(np.abs(values)[..., None] - levels).min(-1)
    assert (np.abs(values - found) <= nearest + 2**-7 * np.abs(values)).all()


def test_a_number_is_never_stored_as_nothing_where_none_is_below_0():
    values = np.zeros((2, 64), np.float32)
    values[0, :3] = 1e20, 1e-30, F32.smallest_subnormal
    values[1, :3] = -1e20, 1e-30, -1e-30
    codes, scales, found = check(values)
    assert codes[0, 0] == 0x11F and (found[0, :3] > 0).all() and scales[0] > 0
    assert codes[1, 0] == 0x009 and scales[1] < 0


def test_what_is_below_0_and_next_to_it_makes_no_signs():
    values = np.ones((1, 64), np.float32)
    values[0, 3] = -1e-3  # a half of the least level is 1/686
    codes, scales, found = check(values)
    assert scales[0] == 1 and codes[0, 0] == np.int32(np.uint32(0xFFFF0FFF)) and found[0, 3] == 0
    values[0, 3] = -2e-3
    assert check(values)[1][0] == -1
    assert not any(map(np.any, encoded(np.full((1, 64), -1e-35, np.float32))))


def test_the_last_element_of_a_row_is_filled_with_zeros():
    codes, _ = encoded(np.ones((3, 101), np.float32))
    assert codes.shape == (3, 13) and (codes[:, -1] == 0xFFFFF).all()


def test_formats_are_the_librarys():
    lib, info, number = _library.load_library(), _structures.StateFormatInfo(), 1
    info.structSize = ctypes.sizeof(info)
    found = []
    while lib.stepcGetStateFormat(number, ctypes.byref(info)) == 0:
        found.append((info.name.decode(), info.dtype.bits, info.codesPerElement, info.block))
        number += 1
    assert found == [("q8", 8, 1, 64), ("f8_e4m3", 8, 1, 64), ("q4", 32, 8, 64)]
    assert list(_codes.FORMATS) == [name for name, *_ in found]
    info.structSize = 8
    assert lib.stepcGetStateFormat(1, ctypes.byref(info)) != 0
