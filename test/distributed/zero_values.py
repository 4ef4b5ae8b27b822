# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of several shapes, gradients whose mean over ranks is exact, and steps of both
with the whole optimizer and with one of ``zero=``."""

import dataclasses

import torch
import torch.distributed as dist
from on_ranks import same_bits
from stepc.torch import Zero

SHAPES = [(33, 20), (17,), (5, 7, 9), (), (130, 64), (3,), (0, 4), (2, 3, 5, 7)]


def values(dtype=torch.float32, steps=4):
    """Parameters, and for each step and rank gradients whose mean is exact."""
    world = dist.get_world_size()
    params = [(torch.randn(s) * 0.1).to(dtype) for s in SHAPES]
    grads = [
        [[(torch.randint(-8, 9, s) / 64.0).to(dtype) for s in SHAPES] for _ in range(world)]
        for _ in range(steps)
    ]
    return params, grads


def parameters(made):
    return [torch.nn.Parameter(value.clone()) for value in made]


def mean(grads, i, dtype):
    return (sum(own[i].double() for own in grads) / len(grads)).to(dtype)


def step_whole(optimizer, params, grads, absent=()):
    for i, param in enumerate(params):
        param.grad = None if i in absent else mean(grads, i, param.dtype)
    optimizer.step()


def step_zero(optimizer, params, grads, mode, absent=(), absent_here=()):
    for i, param in enumerate(params):
        if i in absent or i in absent_here:
            param.grad = None
        elif mode == "local":
            param.grad = grads[dist.get_rank()][i].clone()
        else:
            param.grad = mean(grads, i, param.dtype)
    optimizer.step()


def compare(make, mode, dtype, **more):
    made, grads = values(dtype)
    plain, sharded = parameters(made), parameters(made)
    names = [field.name for field in dataclasses.fields(Zero)]
    zero = Zero(1, mode, **{name: more.pop(name) for name in names if name in more})
    reference, optimizer = make(plain), make(sharded, zero=zero, **more)
    for k, own in enumerate(grads):
        absent = {1, 4} if k == 2 else set()
        step_whole(reference, plain, own, absent)
        step_zero(optimizer, sharded, own, mode, absent)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"step {k}, parameter {i}")
            ours, theirs = optimizer.state[b], reference.state[a]
            assert set(ours) == set(theirs)
            assert float(ours.get("step", 0)) == float(theirs.get("step", 0))
    return reference, optimizer, plain, sharded


def step_all(optimizer, params, grads, mode="reduced"):
    for own in grads:
        step_zero(optimizer, params, own, mode)
