"""Ordinary numbers in large tensors, soon.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

BLOCK = 1 << 20  # elements


def fill(tensor, draw):
    """Has `draw` fill the first block, and repeats it; returns the tensor."""
    flat = tensor.view(-1)
    first = flat[:BLOCK]
    draw(first)
    for begin in range(BLOCK, flat.numel(), BLOCK):
        part = flat[begin : begin + BLOCK]
        part.copy_(first[: part.numel()])
    return tensor
