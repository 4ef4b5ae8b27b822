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
@pytest.mark.parametrize("rows", [False, True])
def test_cuts_fall_between_rows_and_are_near_even(world, rows):
    """Of what has rows each tensor is cut between them; else all are one line of elements."""
    shapes = [(32, 20), (17,), (8, 12), (0, 3), (3, 11), (50, 64)]
    inner = [
        SimpleNamespace(local=torch.zeros(shape), name=f"p{number}", is_sharded=rows)
        for number, shape in enumerate(shapes)
    ]
    how = SimpleNamespace(
        world=world, local_gradients=True, predivide=False, reduce_dtype=None,
        reduce_bytes=1 << 20, gather_bytes=1 << 20,
    )  # fmt: skip
    how.entry = functools.partial(ZeroSettings.entry, how)
    found = _cuts(inner, [None] * len(inner), how, range(world))
    total = sum(math.prod(shape) for shape in shapes)
    for shape, cuts in zip(shapes, zip(*found, strict=True), strict=True):
        assert cuts[0][0] == 0 and cuts[-1][1] == math.prod(shape)
        assert all(a[1] == b[0] for a, b in zip(cuts, cuts[1:], strict=False))
        unit = math.prod(shape[1:])
        if rows:
            assert all(begin % unit == 0 and end % unit == 0 for begin, end, _ in cuts)
            assert all(end - begin <= -(-shape[0] // world) * unit for begin, end, _ in cuts)
    if not rows:
        assert all(sum(b - a for a, b, _ in own) <= -(-total // world) + 16 for own in found)
