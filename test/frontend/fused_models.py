# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose parameters are stepped within the backward pass and, the twin, behind it."""

import stepc.torch as st
import torch
from common import bits_equal as lists_equal
from torch_table import NAMES


def bits_equal(a, b):
    """Of tensors, and of states that are numbers."""
    if not isinstance(a, torch.Tensor):
        return a == b
    return lists_equal([a], [b])


OTHERS = {
    "hf.Adafactor": lambda params, **k: st.hf.Adafactor(params, lr=1e-2, relative_step=False, **k),
    "CAME": lambda params, **k: st.came.CAME(params, lr=1e-2, **k),
    "FusedLamb": lambda params, **k: st.deepspeed.FusedLamb(params, lr=1e-2, **k),
    "LARS": lambda params, **k: st.LARS(params, lr=1e-2, **k),
    "Lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "SM3": lambda params, **k: st.SM3(params, lr=1e-2, **k),
    "clipped by value": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByValue(1e-3), loss_scale=8.0, **k
    ),
    "masters": lambda params, **k: st.AdamW(params, lr=1e-2, master="f32", **k),
    "own": lambda params, **k: st.Optimizer(params, "frontend/optimizers/sgd.mlir", lr=1e-2, **k),
}
MAKERS = {
    **{
        name: lambda params, name=name, **k: getattr(st, name)(params, lr=1e-2, **k)
        for name in NAMES
        if name != "Muon"
    },
    **OTHERS,
}


def model_of(dtype=torch.float32, layers=3):
    torch.manual_seed(0)
    inner = [m for _ in range(layers) for m in (torch.nn.Linear(6, 6), torch.nn.Tanh())]
    return torch.nn.Sequential(*inner, torch.nn.Linear(6, 4)).to(dtype)


def loss_of(model, number):
    torch.manual_seed(number)
    return model(torch.randn(5, 6).to(model[0].weight.dtype)).float().square().mean()


def train(model, optimizer, steps=3, first=0):
    """With the model's gradients; a rate that changes from step to step."""
    for number in range(first, first + steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (number + 1)
        optimizer.scale(loss_of(model, number)).backward()
        optimizer.step()
        optimizer.zero_grad()


def same(model, twin, optimizer=None, other=None):
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert bits_equal(a, b), name
        if optimizer is not None:
            left, right = optimizer.state[a], other.state[b]
            assert left.keys() == right.keys()
            assert all(bits_equal(left[key], right[key]) for key in left), name
