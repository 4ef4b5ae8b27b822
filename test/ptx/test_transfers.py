# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels of what crosses ranks, by an interpreter of PTX: the bits of numpy, which rounds
once and adds up in the order of the rows."""

import itertools

import numpy as np
import pytest
from packages import GO_ON, ZOO, Package, bits
from ptx import Kernel, Memory
from test_ptx import TYPES, make_values, words

KINDS = {"f32": 0, "f64": 1, "bf16": 2, "f16": 3}
TILE = 8192
PAIRS = [("f32", "f32"), ("f32", "bf16"), ("bf16", "f16"), ("f16", "f32"), ("f64", "bf16"),
         ("f64", "f16"), ("f64", "f32")]  # fmt: skip


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def compiled(request, tmp_path_factory):
    """The types of a gradient and of what crosses, and PTX with their exchanges."""
    own, wire = request.param
    entry = f"layout.flat=dp,layout.whole=dp,layout.partial=dp,layout.wire={wire}"
    folder = tmp_path_factory.mktemp("transfers")
    package = Package(ZOO / "sgd.mlir", "f32", folder, f"--variant=param={own},grad={own},{entry}")
    return own, wire, package.ptx


def widen(values, storage):
    if storage == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values if values.dtype == np.float64 else values.astype(np.float32)


def to_odd(values):
    """As f32: what is between two of them is the odd one, to be rounded once more."""
    near = values.astype(np.float32)
    beyond = np.isfinite(near) & (np.abs(near.astype(np.float64)) > np.abs(values))
    beyond |= np.isinf(near) & np.isfinite(values)
    below = np.where(beyond, np.nextafter(near, np.float32(0)), near)
    inexact = np.isfinite(values) & (below.astype(np.float64) != values)
    return (below.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)


def narrow(values, storage):
    if storage == "f64":
        return values
    if values.dtype == np.float64:
        values = values.astype(np.float32) if storage == "f32" else to_odd(values)
    if storage != "bf16":
        return values.astype(TYPES[storage])
    own = values.view(np.uint32)
    rounded = (own + 0x7FFF + ((own >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def place(values, offset=0):
    """In memory, that begins so many elements after 64 bytes."""
    room = np.zeros(values.nbytes + 256, np.uint8)
    begin = -room.ctypes.data % 64 + offset * values.itemsize
    view = room[begin : begin + values.nbytes].view(values.dtype)
    view[:] = values
    return view


def divisor_bits(divisor):
    return int(np.float64(divisor).view(np.int64))


def convert(ptx, pieces, blocks=2, skip=GO_ON):
    """`pieces`: source or None, target, kind and divisor of each."""
    entries, tiles = [], 0
    for source, target, kind, divisor in pieces:
        begin = 0 if source is None else source.ctypes.data
        entries += [begin, target.ctypes.data, target.size, kind, divisor_bits(divisor), tiles]
        tiles += -(-target.size // TILE)
    entries = words(*entries)
    arrays = [array for piece in pieces for array in piece[:2] if array is not None]
    Kernel(ptx, "transfer_convert").launch(
        blocks, [entries.ctypes.data, len(pieces), tiles, skip.ctypes.data],
        Memory([entries, skip, *arrays]),
    )  # fmt: skip


def test_conversions(compiled):
    own, wire, ptx = compiled
    kinds = {(own, wire): 16 + 4 * KINDS[own] + KINDS[wire]}
    total = "f64" if own == "f64" else "f32"
    if total != wire:
        kinds[total, wire] = 16 + 4 * KINDS[total] + KINDS[wire]
    with np.errstate(all="ignore"):
        for (source, target), kind in kinds.items():
            pieces, expected = [], []
            shapes = itertools.product((35, 1, 300), (0, 1), (1.0, 3.0))
            for number, (count, offset, divisor) in enumerate(shapes):
                if source == target and divisor == 1.0:
                    continue
                values = place(make_values(source, count, number), offset)
                wide = widen(values, source)
                expected.append(narrow(wide / wide.dtype.type(divisor), target))
                made = place(np.zeros(count, TYPES[target]))
                pieces.append((values, made, kind, divisor))
            convert(ptx, pieces)
            for (_, made, _, _), own_expected in zip(pieces, expected, strict=True):
                np.testing.assert_array_equal(bits(made), bits(own_expected))


def test_copies_and_zeros(compiled):
    """Of many tiles, and entries without elements between; nothing where the step is skipped."""
    own, wire, ptx = compiled
    sizes = [np.dtype(TYPES[name]).itemsize for name in (own, wire)]
    counts = [5, 0, TILE + 3, 0, 1, TILE]
    kinds = 3 * sizes
    types = {2: np.uint16, 4: np.uint32, 8: np.uint64}
    rng = np.random.default_rng(3)
    pieces = []
    for number, (count, kind) in enumerate(zip(counts, kinds, strict=True)):
        source = place(rng.integers(0, 1 << 16, count).astype(types[kind]), number % 2)
        target = place(np.full(count, 7, types[kind]))
        pieces.append((None if number == 4 else source, target, kind, 1.0))
    convert(ptx, pieces, skip=words(1))
    assert all((target == 7).all() for _, target, _, _ in pieces)
    convert(ptx, pieces, blocks=3)
    for source, target, _, _ in pieces:
        np.testing.assert_array_equal(target, np.zeros_like(target) if source is None else source)


@pytest.mark.parametrize("adds", [0, 1])
@pytest.mark.parametrize("divisor", [1.0, 3.0])
def test_sums(divisor, adds, compiled):
    own, wire, ptx = compiled
    total = np.float64 if own == "f64" else np.float32
    kind = 16 + 4 * KINDS[wire] + KINDS["f64" if own == "f64" else "f32"]
    with np.errstate(all="ignore"):
        for count, offset in ((160, 0), (37, 0), (64, 1)):
            rows = place(np.concatenate([make_values(wire, count, k) for k in range(3)]), offset)
            own_rows = widen(rows, wire).astype(total).reshape(3, count)
            expected = ((own_rows[0] + own_rows[1]) + own_rows[2]) / total(divisor)
            target = place(make_values("f64" if own == "f64" else "f32", count, 9))
            expected = target + expected if adds else expected
            arguments = [rows.ctypes.data, count, 3, target.ctypes.data, count, kind,
                         divisor_bits(divisor), adds]  # fmt: skip
            Kernel(ptx, "transfer_sum").launch(
                2, [*arguments, GO_ON.ctypes.data], Memory([rows, target, GO_ON])
            )
            np.testing.assert_array_equal(bits(target), bits(expected))
