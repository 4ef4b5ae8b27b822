# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of parameters on CUDA devices that are codes: codes, scales and parameters have the bits
of the processor's."""

import pytest
import stepc.torch as st
import torch
from torch_pair import KINDS, Pair

# Rows of whole blocks and others, several dims in a row, and what has no codes.
SHAPES = [(64, 128), (17,), (100, 70), (3, 3000), (33, 5, 9, 5), (65, 64), (7, 9)]
CODED = {0, 2, 3, 4, 5}


def make_pair(cuda, kind, dtype=torch.float32, shapes=SHAPES, state_dtype="q8", **keywords):
    return Pair(cuda, KINDS[kind], dtype, shapes, state_dtype=state_dtype, **keywords)


def coded(pair):
    states = [pair.optimizer.state[param] for param in pair.placed]
    return {
        k for k, state in enumerate(states)
        if any(value.dtype is torch.uint8 for value in state.values())
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "came", "lamb", "rprop"])
def test_steps(cuda, kind):
    pair = make_pair(cuda, kind)
    for step in range(3):
        pair.step(step, {1, 4} if step == 1 else ())
        pair.check()
    assert coded(pair) == (CODED if kind != "adafactor" else set())
    assert cuda.double.fault() == ""
