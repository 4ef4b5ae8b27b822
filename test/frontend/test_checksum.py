# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checksums by which ranks compare tensors: of all bits in their places, made in pieces."""

import pytest
import torch
from stepc.torch.ranks import alike

CPU = torch.device("cpu")
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float64: torch.int64}


def at_once(tensor):
    bits = tensor.contiguous().view(-1).view(BITS[tensor.dtype]).tolist()
    total = sum(value * (2 * place + 1) for place, value in enumerate(bits))
    return total % 2**64 & (2**62 - 1)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("size", [0, 1, alike._PIECE - 1, alike._PIECE, alike._PIECE * 2 + 3])
def test_it_is_that_of_the_whole(dtype, size):
    tensor = torch.randn(size).to(dtype)
    assert alike.checksum(tensor, CPU).item() == at_once(tensor)


@pytest.mark.parametrize("place", [0, alike._PIECE - 1, alike._PIECE, alike._PIECE + 1])
def test_a_bit_and_its_place_count(place):
    tensor = torch.ones(alike._PIECE + 2)
    before = alike.checksum(tensor, CPU)
    tensor[place] = 2
    assert alike.checksum(tensor, CPU) != before
    other = torch.ones(alike._PIECE + 2)
    other[(place + 1) % len(other)] = 2
    assert alike.checksum(tensor, CPU) != alike.checksum(other, CPU)
    assert alike.checksum(None, CPU) == -1
