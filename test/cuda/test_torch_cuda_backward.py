# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters on CUDA devices that are stepped within the backward pass."""

import pytest
from torch_pair import KINDS, Pair


def in_the_pass(pair, step, streams=()):
    """A step whose gradients come one by one, the last parameter's first; streams change."""
    pair.give(step)
    pair.reference.step()
    grads = [param.grad for param in pair.placed]
    for param in pair.placed:
        param.grad = None
    for number, param in reversed(list(enumerate(pair.placed))):
        if streams:
            pair.cuda.stream = streams[number % len(streams)]
        param.grad = grads[number]
        pair.optimizer._backward.came(param)
        assert param.grad is None
    pair.optimizer.step()


@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
def test_steps_within_the_backward_pass(cuda, kind):
    pair = Pair(cuda, KINDS[kind])
    pair.optimizer = KINDS[kind](pair.placed, fused_backward=True)
    for step in range(3):
        pair.set_lr(1e-2 / (step + 1))
        in_the_pass(pair, step)
        pair.check()


def test_gradients_that_come_on_several_streams(cuda):
    """As those of FSDP2 and of plain parameters: what is enqueued later waits for the former."""
    pair = Pair(cuda, KINDS["adamw"])
    pair.optimizer = KINDS["adamw"](pair.placed, fused_backward=True)
    streams = [cuda.double.make_stream(), cuda.double.make_stream()]
    for step in range(2):
        waited = cuda.waited
        in_the_pass(pair, step, streams)
        assert cuda.waited >= waited + len(pair.placed) - 1
        cuda.double.synchronize(cuda.stream)
        pair.check()
