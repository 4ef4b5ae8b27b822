# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pairs of optimizers, ours and torch's, on the same numbers."""

from pathlib import Path

import pytest
import stepc.torch
import torch

FRONTEND = Path(__file__).resolve().parents[2] / "frontend"
ZOO = FRONTEND / "optimizers"

# Releases of torch before 2.10 have no table by which the extension reads tensors.
needs_table = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="torch has no exchange table"
)
# How parameters and gradients are re-read, see the fixture.
each_way = pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=needs_table) for way in ("direct", "objects")] + ["python"],
    indirect=True,
)
SHAPES = [(), (1,), (0,), (7,), (3, 5), (2, 3, 4), (130,), (33, 129)]


def make_params(shapes=SHAPES, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
        for shape in shapes
    ]


def clone_params(params):
    """Copies with the same strides."""
    return [
        torch.nn.Parameter(torch.empty_like(p, requires_grad=False).copy_(p.detach()))
        for p in params
    ]


def set_grads(*lists, seed=0):
    """The same fresh gradients for parameters at the same place of each list."""
    generator = torch.Generator().manual_seed(1000 + seed)
    for row in zip(*lists, strict=True):
        grad = torch.randn(row[0].shape, generator=generator, dtype=torch.float64)
        for param in row:
            param.grad = torch.empty_like(param, requires_grad=False).copy_(grad)


def distance(ours, theirs):
    """The largest difference, in units of the last place.

    An element's place is that of the larger of its value and the mean magnitude
    of all: where values cancel, small ones have the error of large ones.
    """
    eps = torch.finfo(theirs[0].dtype).eps
    left = torch.cat([t.detach().double().reshape(-1) for t in ours])
    right = torch.cat([t.detach().double().reshape(-1) for t in theirs])
    scale = torch.maximum(right.abs(), right.abs().mean())
    return float(((left - right).abs() / scale).max() / eps)


def states(optimizer, name):
    return [state[name] for state in optimizer.state.values() if name in state]


def train(optimizers, param_lists, steps, first=0):
    for step in range(first, first + steps):
        set_grads(*param_lists, seed=step)
        for optimizer in optimizers:
            optimizer.step()


class Written:
    """Formulas of an optimizer in plain torch, of groups, in a parameter's dtype and at least in
    float32: ``step_one(param, group, **state)`` returns what is kept."""

    defaults: dict = {}

    def __init__(self, params, **kwargs):
        groups = params if isinstance(params[0], dict) else [{"params": params}]
        self.param_groups = [{**self.defaults, **kwargs, **group} for group in groups]
        self.state = {}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.state[param] = self.step_one(param, group, **self.state.get(param, {}))


def canonical(vectors):
    """Columns, of which the component of the largest magnitude is positive."""
    place = vectors.abs().argmax(0, keepdim=True)
    return vectors * vectors.gather(0, place).sign()


def strided(value, how):
    """The same numbers in other memory."""
    if how == "transposed":
        return value.T.clone(memory_format=torch.contiguous_format).T
    if how == "sliced":
        wide = torch.zeros(2 * value.shape[0], 3 * value.shape[1], dtype=value.dtype)
        wide[::2, 1::3] = value
        return wide[::2, 1::3]
    return value.clone()


def bits_equal(a, b):
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.detach().equal(y.detach())
        for x, y in zip(a, b, strict=True)
    )


# What every class takes by keyword, behind the arguments of the original.
KEYWORDS = [
    ("static_grads", False),
    ("exclusive_writes", False),
    ("reproducible", False),
    ("fused_backward", False),
    ("clip", None),
    ("loss_scale", None),
    ("zero", 0),
    ("process_group", None),
    ("gradients", None),
    ("bucket_bytes", None),
    ("reduce_bucket_bytes", None),
    ("gather_bucket_bytes", None),
    ("reduce_dtype", None),
    ("predivide", False),
    ("overlap", True),
    ("flatten_parameters", False),
    ("layouts", None),
    ("timeout", None),
    ("check_every", None),
    ("average", None),
    ("accumulation_steps", None),
    ("skip_nonfinite", False),
    ("param_copy", None),
    ("master", None),
    ("state_dtype", None),
    ("rounding", None),
    ("seed", 0),
    ("place", None),
]

OURS = {"adamw": stepc.torch.AdamW, "sgd": stepc.torch.SGD, "lion": stepc.torch.Lion}
