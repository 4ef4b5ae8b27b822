# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a row of works.py is trained: every optimizer of the table under the layout, against the
same steps of the whole in one process, or refused as the row says.

Three steps with other learning rates, of one micro-batch, of two, and of two of which the
gradients of the first are left out of the reduction.
"""

import contextlib
import functools
import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
import works_ways as ways
from named_values import named_values
from stepc import errors
from works import OPTIMIZERS, ROWS
from zoo import ALL

PASSES = (1, 2, 2)


def galore(params, **arguments):
    """Matrices with a projection, which is made anew in each second step, and other parameters; of
    one group a stage may have none."""
    low, others = [], []
    for param in params:
        tensor = param[1] if isinstance(param, tuple) else param
        (low if tensor.dim() == 2 else others).append(param)
    names = {"param_names": []} if isinstance(params[0], tuple) else {}
    projected = {"rank": 2, "update_proj_gap": 2, "scale": 0.25, "proj_type": "std"}
    groups = [
        {"params": own, **({} if own else names), **more}
        for own, more in ((low, projected), (others, {}))
    ]
    return st.colossal.DistGaloreAwamW(groups, lr=1e-2, nbits=32, **arguments)


MAKES = {
    "AdamW": ALL["AdamW"],
    "Adafactor": ALL["hf.Adafactor"],
    "CAME": ALL["CAME"],
    "Lamb": lambda params, **k: st.colossal.Lamb(params, lr=1e-2, weight_decay=0.1, **k),
    "GaLore": galore,
}


def train(kind, make, what):
    made, grads = named_values(ways.SHAPES, dist.get_world_size(), sum(PASSES))
    plain = {name: torch.nn.Parameter(value.clone()) for name, value in made.items()}
    reference, way = make(list(plain.items())), kind(make, made)
    passes = iter(grads)
    for step, number in enumerate(PASSES):
        for group in (*reference.param_groups, *way.optimizer.param_groups):
            group["lr"] *= 0.5
        way.zero_grad()
        own = list(itertools.islice(passes, number))
        for place, of_pass in enumerate(own, 1):
            synced = step < 2 or place == number
            with contextlib.nullcontext() if synced else way.without_sync():
                way.backward(of_pass)
        for name, param in plain.items():
            param.grad = sum(way.mean(name, of_pass) for of_pass in own)
        reference.step()
        way.step()
        way.same_as(plain, f"{what}, step {step}")


def row(function):
    """Of a function that returns a way: trains it as the row of its name says."""

    @functools.wraps(function)
    def check():
        check_row(function.__name__, function())

    return check


def check_row(key, kind):
    found = ROWS[key]
    assert dist.get_world_size() == found.ranks, key
    assert set(MAKES) == set(OPTIMIZERS)
    assert bool(found.no_sync) == (kind.without_sync is not ways.Way.without_sync), key
    for name in OPTIMIZERS:
        if name not in found.refused:
            train(kind, MAKES[name], f"{found.name}, {name}")
            continue
        try:
            train(kind, MAKES[name], f"{found.name}, {name}")
        except errors.TensorError as error:
            assert found.refused[name] in str(error), error
        else:
            raise AssertionError(f"{found.name}, {name}: it was not refused")
