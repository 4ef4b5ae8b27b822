# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tests of files that outlive their process share."""

import stepc.torch as st
import torch
from stepc.torch.tensors.stored import in_memory
from stored_common import make_params, same

SHAPES = [(130, 140), (64, 1030), (7, 9), (40000,)]
NARROW = {"dtype": torch.bfloat16}
# By name: what the optimizer is made with, and the parameters.
WAYS = {
    "adamw": ({}, {}),
    "masters": ({"master": "f32"}, NARROW),
    "remainders": ({"master": "remainder"}, NARROW),
    "codes": ({"state_dtype": {"exp_avg": "q8", "exp_avg_sq": "q4"}}, {}),
    "average": ({"average": st.EMA(0.9)}, {}),
}


def make(way, place=None, **more):
    options, of_params = WAYS[way]
    params = make_params(SHAPES, **of_params)
    return params, st.AdamW(params, lr=0.01, place=place, **options, **more)


def step(params, optimizer, number):
    """Step ``number``, from 1 on, with a learning rate of its own; of one parameter in some."""
    torch.manual_seed(1000 + number)
    for place, param in enumerate(params):
        grad = torch.randn(param.shape).to(param.dtype)
        param.grad = None if place == number % 3 else grad
    optimizer.param_groups[0]["lr"] = 0.01 / number
    optimizer.step()


def image(params, optimizer):
    """All that belongs to a step, as it is in memory."""
    found = {("lr",): torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64)}
    for place, param in enumerate(params):
        found[place, "param"] = param.detach().clone()
        for name, value in optimizer.state[param].items():
            found[place, name] = in_memory(value).clone()
    return found


def is_same(one, other):
    return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)


def images(way, steps):
    """Of steps 0 to ``steps``, of states in memory."""
    params, optimizer = make(way)
    found = [image(params, optimizer)]
    for number in range(1, steps + 1):
        step(params, optimizer, number)
        found.append(image(params, optimizer))
    return found
