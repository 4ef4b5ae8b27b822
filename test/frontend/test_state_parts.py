# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of elements as boxes, and what zero cuts."""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from stepc.torch.ranks.state_parts import StatePart, boxes_of_range
from stepc.torch.ranks.zero.settings import ZeroSettings
from stepc.torch.ranks.zero.shares import _cuts


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (1, 3, 1, 2), (0, 4), (3, 0)])
def test_boxes_are_the_range(shape):
    """Every range: its boxes are its elements in their order, and few."""
    whole = torch.arange(math.prod(shape)).view(shape)
    for begin in range(whole.numel() + 1):
        for end in range(begin, whole.numel() + 1):
            found = []
            boxes = boxes_of_range(shape, begin, end)
            for offsets, sizes in boxes:
                at = tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))
                found += whole[at].flatten().tolist()
            assert found == list(range(begin, end))
            assert len(boxes) <= max(2 * len(shape) - 1, 1)


def test_what_is_computed_from_a_part_is_a_tensor():
    part = StatePart.of(torch.arange(3.0), (6,), "elements [0, 3) of (6,)", (((0,), (3,)),))
    assert type(part + 1) is torch.Tensor and type(part.clone()) is torch.Tensor
    assert part.plain().data_ptr() == part.data_ptr()
    assert part.size() == (6,) and part.shape == (3,) and "elements [0, 3)" in repr(part)


def test_a_part_whose_place_is_not_known_is_no_checkpoint():
    part = StatePart.of(torch.arange(3.0), (), "part (dim 0, tp 0 of 2)", None)
    with pytest.raises(ValueError, match="is not known before the first step"):
        part.__create_chunk_list__()


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rows, codes", [(False, False), (False, True), (True, False)])
def test_cuts_fall_between_rows_and_are_near_even(world, rows, codes):
    """Of what has rows each tensor is cut between them; else all are one line of elements, which
    is cut where blocks of codes begin, if there are some."""
    shapes = [(32, 20), (17,), (8, 12), (0, 3), (3, 11), (50, 64), (40, 100), (9, 3, 5, 8)]
    inner = [
        SimpleNamespace(local=torch.zeros(shape), name=f"p{number}", is_sharded=rows, seen=None)
        for number, shape in enumerate(shapes)
    ]
    how = SimpleNamespace(
        world=world, local_gradients=True, predivide=False, reduce_dtype=None,
        reduce_bytes=1 << 20, gather_bytes=1 << 20,
    )  # fmt: skip
    how.entry = functools.partial(ZeroSettings.entry, how)
    of_ranks = _cuts(inner, [None] * len(inner), how, range(world), lambda part: codes)
    found = [[cut for (cut,) in own] for own in of_ranks]
    total = sum(math.prod(shape) for shape in shapes)
    for shape, cuts in zip(shapes, zip(*found, strict=True), strict=True):
        assert cuts[0][0] == 0 and cuts[-1][1] == math.prod(shape)
        assert all(a[1] == b[0] for a, b in zip(cuts, cuts[1:], strict=False))
        unit = math.prod(shape[1:])
        if codes:
            row = {20: 20, 1: 17, 12: 12, 3: 3, 11: 11, 64: 64, 100: 100, 120: 120}[unit]
            assert all(begin == math.prod(shape) or begin % row % 64 == 0 for begin, *_ in cuts)
        if rows:
            assert all(begin % unit == 0 and end % unit == 0 for begin, end, _ in cuts)
            assert all(end - begin <= -(-shape[0] // world) * unit for begin, end, _ in cuts)
    if not rows:
        most = -(-total // world) + 16 + (64 if codes else 0)
        assert all(sum(b - a for a, b, _ in own) <= most for own in found)
