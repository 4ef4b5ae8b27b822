# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of several shapes, and gradients whose mean over ranks is exact."""

import torch
import torch.distributed as dist

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
