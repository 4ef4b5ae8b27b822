# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of other packages' optimizers beside the papers' equations, in float64."""

import copy

import numpy as np
import torch
from papers import HYPERS, OTHERS, PAPERS, Group, Tensor

SHAPES = [(5,), (1,), (3, 7), (9, 2), (1, 4), (2, 3, 5), (2, 2, 3, 5)]
STEPS = 20


def make_groups(name, shapes=SHAPES, others=OTHERS, **hypers):
    """Two groups with hyper-parameters of their own."""
    rng = np.random.default_rng(0)
    first = {**HYPERS[name], **hypers}
    return [
        Group(h, [Tensor(np.asarray(rng.standard_normal(shape))) for shape in shapes])
        for h in (first, {**first, **others.get(name, {}), **hypers})
    ]


def set_gradients(groups, step, rng):
    """Those of a quadratic function, and noise; they grow with time."""
    for group in groups:
        for index, tensor in enumerate(group.tensors):
            noise = rng.standard_normal(tensor.param.shape)
            tensor.grad = np.asarray((tensor.param - index + 0.3 * noise) * (1 + 0.2 * step))


def to_torch(groups, arguments, dtype=torch.float64):
    """Groups of parameters as an optimizer of torch takes them."""
    return [
        {
            "params": [torch.nn.Parameter(torch.tensor(t.param, dtype=dtype)) for t in g.tensors],
            **arguments(g.hypers),
        }
        for g in groups
    ]


def run_beside(name, options, make, arguments, steps=STEPS, groups=None):
    """The groups of the paper's equations, and those of torch, after some steps
    with the same gradients."""
    groups = make_groups(name) if groups is None else copy.deepcopy(groups)
    theirs = to_torch(groups, arguments)
    optimizer = make(theirs)
    rng, memory = np.random.default_rng(1), {}
    for step in range(steps):
        set_gradients(groups, step, rng)
        for group, other in zip(groups, theirs, strict=True):
            for tensor, param in zip(group.tensors, other["params"], strict=True):
                param.grad = torch.tensor(tensor.grad)
        PAPERS[name](groups, options, memory)
        optimizer.step()
    return groups, theirs, optimizer


def furthest(groups, theirs):
    """The largest difference between parameters, in units of the largest one."""
    return max(
        float(np.abs(param.detach().numpy() - tensor.param).max() / np.abs(tensor.param).max())
        for group, other in zip(groups, theirs, strict=True)
        for tensor, param in zip(group.tensors, other["params"], strict=True)
    )
