# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of states that are codes, by an interpreter of PTX: the bits of the format as it is
written in numpy."""

import sys
from pathlib import Path

import numpy as np
import pytest
from packages import GO_ON, ZOO, Package, bits
from ptx import Kernel, Memory
from test_ptx import words
from test_transfers import place

sys.path.insert(0, str(Path(__file__).parents[1] / "codes"))
import float8
import four_bits
import root4

BLOCK, TILE = 64, 64  # elements of a block, blocks of a tile
FORMATS = {"q8": root4, "f8_e4m3": float8, "q4": four_bits}


@pytest.fixture(params=FORMATS)
def format(request):
    return request.param


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    return Package(ZOO / "adamw.mlir", "f32", tmp_path_factory.mktemp("codes")).ptx


def make_values(shape, seed):
    """Of magnitudes far apart; blocks with and without signs, of zeros, and with what is no
    number, not all of which are whole."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-12, 4, shape)
    values = values.astype(np.float32).reshape(-1, shape[-1])
    for row in values[1::2]:
        np.abs(row, out=row)
    values[0, : shape[-1] // 2] = -0.0
    values[0, 0] = 1e-41
    values[-1, -1] = np.inf
    if len(values) > 2:
        values[2] = 0
        values[-2, 0], values[-3, -1] = np.nan, -np.inf
        values[-2, -1], values[-3, 0] = 3e38, -1e-38
    return values.reshape(shape)


class Part:
    """Elements [begin, end) of a state in rows, at so many elements after 64 bytes."""

    def __init__(self, format, values, begin=0, end=None, offset=0):
        self.columns = values.shape[-1]
        codes, scales = FORMATS[format].encode(values)
        words, blocks = (
            [
                index // self.columns * -(-self.columns // size)
                + -(-(index % self.columns) // size)
                for index in (begin, values.size if end is None else end)
            ]
            for size in (1 if codes.shape == values.shape else four_bits.EACH, BLOCK)
        )
        self.first = begin % self.columns
        self.given = place(values.reshape(-1)[begin:end].copy(), offset)
        self.codes = place(codes.reshape(-1)[slice(*words)].copy(), offset)
        self.scales = place(scales[slice(*blocks)].copy(), offset)
        self.decoded = FORMATS[format].decode(codes, scales, values.shape).reshape(-1)[begin:end]
        self.made = [place(np.full_like(array, 7), offset) for array in
                     (self.given, self.codes, self.scales)]  # fmt: skip

    def entry(self, values, codes, scales, tile):
        blocks = self.scales.size
        long = self.columns % BLOCK == 0
        row = (blocks * BLOCK, 0) if long else (self.columns, self.first)
        addresses = (array.ctypes.data for array in (values, codes, scales))
        return [*addresses, blocks, *row, tile]


def launch(ptx, name, parts, skip=GO_ON, blocks=2):
    entries, tiles, arrays = [], 0, []
    for part in parts:
        own = list(part.made)
        decodes = name.startswith("decode")
        own = [own[0], part.codes, part.scales] if decodes else [part.given, *own[1:]]
        entries += part.entry(*own, tiles)
        tiles += -(-part.scales.size // TILE)
        arrays += own
    entries = words(*entries)
    Kernel(ptx, name).launch(
        blocks, [entries.ctypes.data, len(parts), tiles, skip.ctypes.data],
        Memory([entries, skip, *arrays], granule=1),
    )  # fmt: skip


def make_parts(format):
    """Rows of whole blocks, in several tiles; short last blocks; ranges of rows; and bytes that lie
    anywhere."""
    shapes = (5, 1024), (7, 100), (6, 33), (2, 4100), (4, 192), (3, 64), (9, 130)
    values = [make_values(shape, seed) for seed, shape in enumerate(shapes)]
    given = [
        (values[0],), (values[1],), (values[2], 0, None, 1), (values[3],), (values[4], 128, 640),
        (values[5], 0, None, 3), (values[6], 64, 9 * 130 - 66),
        (values[6], 128, 5 * 130 + 64, 2),
    ]  # fmt: skip
    return [Part(format, *own) for own in given]


def test_decoding(ptx, format):
    parts = make_parts(format)
    launch(ptx, f"decode_{format}", parts, skip=words(1))
    assert all((part.made[0] == 7).all() for part in parts)
    launch(ptx, f"decode_{format}", parts)
    for part in parts:
        np.testing.assert_array_equal(bits(part.made[0]), bits(part.decoded))


def test_encoding(ptx, format):
    parts = make_parts(format)
    launch(ptx, f"encode_{format}", parts, skip=words(1))
    assert all((array == 7).all() for part in parts for array in part.made[1:])
    launch(ptx, f"encode_{format}", parts, blocks=3)
    for part in parts:
        np.testing.assert_array_equal(part.made[1], part.codes)
        np.testing.assert_array_equal(bits(part.made[2]), bits(part.scales))


def test_every_code(ptx, format):
    """And numbers halfway between two, in blocks of both kinds."""
    steps = np.arange(1, 511, dtype=np.float64) / 510
    rows = [np.resize(steps**4 * top, 512).astype(np.float32) for top in (1.0, 3e-30, 1e38)]
    signed = [np.where(np.arange(512) % 2, row, -row).astype(np.float32) for row in rows]
    part = Part(format, np.stack([*rows, *signed]))
    launch(ptx, f"encode_{format}", [part])
    np.testing.assert_array_equal(part.made[1], part.codes)
    codes = np.arange(256, dtype=np.uint8).view(part.codes.dtype if format != "q4" else np.int8)
    codes = codes.reshape(4, 64)
    if format == "q4":
        found = four_bits.unpack(part.codes.reshape(6, -1), (6, 512))
        assert len(set(found[:3].flat)) == len(set(found[3:].flat)) == 15
        codes = four_bits.pack(codes)
    else:
        found = set(part.codes.reshape(-1).tolist())
        assert len(found) > (240 if format == "q8" else 120)
    part.codes, part.scales = map(place, (codes.reshape(-1), np.float32([1, 3e38, 1e-38, 2])))
    if format != "f8_e4m3":
        part.scales[:2] *= -1
    part.made[0] = place(np.zeros(256, np.float32))
    part.columns = 64
    launch(ptx, f"decode_{format}", [part])
    with np.errstate(over="ignore"):
        expected = FORMATS[format].decode(codes, part.scales, (4, 64)).reshape(-1)
    np.testing.assert_array_equal(bits(part.made[0]), bits(expected))


def test_only_where_a_state_is_f32(tmp_path):
    narrow = Package(ZOO / "adamw.mlir", "all bf16", tmp_path)
    assert not any(f"{way}code_{f}" in narrow.ptx for way in ("en", "de") for f in FORMATS)
