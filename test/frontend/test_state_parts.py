# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of elements as boxes, and where lines are cut."""

import math

import pytest
import torch
from stepc.torch.ranks.state_parts import StatePart, boxes_of_range
from stepc.torch.ranks.zero.lines import cuts


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
def test_cuts_fall_between_rows_and_are_near_even(world):
    sizes, units = [640, 17, 96, 0, 33, 3200], [20, 1, 12, 1, 11, 64]
    found = cuts(sizes, units, world)
    assert found[0] == 0 and found == sorted(found) and found[-1] >= sum(sizes)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    for cut in found[1:-1]:
        for start, size, unit in zip(starts, sizes, units, strict=True):
            assert not start < cut < start + size or (cut - start) % unit == 0
    even = -(-sum(sizes) // world)
    assert all(b - a <= even + 16 + max(units) for a, b in zip(found, found[1:], strict=False))
