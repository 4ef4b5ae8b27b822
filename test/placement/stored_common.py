# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of states on disk share."""

import torch
from stepc.torch.tensors.stored import StoredState

MATRICES = [(130, 140), (64, 1030), (700, 128)]
TWO_DIMS = [*MATRICES, (40000,), (7, 9)]  # the last stays in memory
SHAPES = [*TWO_DIMS, (40, 8, 9, 7)]


def make_params(shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def give(params, step, grads=None):
    torch.manual_seed(100 + step)
    for number, param in enumerate(params):
        grad = torch.randn(param.shape).to(param.dtype)
        param.grad = grads(grad, step, number) if grads else grad


def same(one, other):
    return one.dtype is other.dtype and torch.equal(
        one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)
    )


def same_states(optimizer, twin):
    """Of two optimizers, as they are saved; returns how many tensors lie in a file."""
    saved, other = (one.state_dict()["state"] for one in (optimizer, twin))
    assert saved.keys() == other.keys()
    for number, own in other.items():
        assert saved[number].keys() == own.keys()
        for name, value in own.items():
            assert same(saved[number][name], value), (number, name)
            assert saved[number][name].stride() == value.stride()
    held = [value for own in optimizer.state.values() for value in own.values()]
    return sum(isinstance(value, StoredState) for value in held)
