# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What one rank may have otherwise from some step on, for later_cases.py: ways to lie on ranks,
and changes. Changes of numbers and options are found in the optimizer's own groups, so that
one that is added is tried by itself."""

from pathlib import Path

import stepc.torch as st
import torch
from agreement_kinds import LAMB, named, plain, spread, zero
from torch.distributed.tensor import Replicate, Shard
from zoo import ALL

COUNT = "steps taken"
SQUARE = Path(__file__).parent / "definitions" / "square.mlir"


def _adam(params, **more):
    """Elementwise, with numbers that belong to no group."""
    clip = st.ClipByValue(0.75)
    return st.AdamW(params, lr=1e-2, clip=clip, accumulation_steps=2, loss_scale=4.0, **more)


def _laid_out(mesh, make, placement, **grad):
    """Plain parts, by ``layouts``."""
    whole = [(name, tensor.chunk(4)[0] if grad == {} else tensor) for name, tensor in named()]
    return make(plain(whole), layouts=[(".*", st.Layout(mesh, [placement], **grad))])


def _in_bfloat16(mesh):
    tensors = named(dtype=torch.bfloat16)
    layouts = [(".*", st.Layout(mesh, [Replicate()], grad="partial"))]
    return _adam(plain(tensors), layouts=layouts)


# What is made of a mesh of four ranks, the same on all.
WAYS = {
    "DTensor": lambda m: LAMB(spread(named(), m)),
    "DTensor, scaled": lambda m: st.AdamW(
        spread(named(), m), clip=st.ClipByNorm(1.0), loss_scale=st.DynamicLossScale()
    ),
    "DTensor, elementwise": lambda m: _adam(spread(named(), m), check_every=1),
    "layouts": lambda m: _laid_out(m, LAMB, Shard(0)),
    "layouts, partial": lambda m: _laid_out(m, _adam, Replicate(), grad="partial"),
    "layouts, partial in bfloat16": _in_bfloat16,
    "zero=1": lambda m: zero(m, make=_adam),
    "zero=1 with rounds": lambda m: zero(m, make=LAMB),
    "zero=1, reduced": lambda m: zero(m, 1, "reduced", make=_adam),
    "zero=1, reduced, flat": lambda m: zero(m, 1, "reduced", make=_adam, flatten_parameters=True),
    "zero=1, reduced, one by one": lambda m: zero(m, 1, "reduced", bucket_bytes=64, overlap=False),
    "zero=1, reduced, with rounds": lambda m: zero(m, 1, "reduced", make=ALL["AdamW, clipped"]),
    "zero=2": lambda m: zero(m, 2, make=_adam, bucket_bytes=100),
    "owners": lambda m: st.Optimizer(spread(named([(8, 8), (4, 4), (12, 12)]), m), SQUARE, lr=1e-3),
    "DDP": lambda m: _adam(plain(named()), check_every=1),
    "DDP with a scale": lambda m: st.AdamW(
        plain(named()), loss_scale=st.DynamicLossScale(), check_every=1
    ),
}
# In these every rank is to have the same gradients.
SAME_GRADIENTS = {way for way in WAYS if "reduced" in way or "DDP" in way}


def params_of(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]


def _other(value):
    """Of the same kind."""
    if isinstance(value, bool):
        return not value
    return value / 2 + 0.125


def _of_groups(optimizer):
    """Each number and option of a group that a step reads, as what sets it otherwise."""
    group = optimizer.param_groups[0]

    def read():
        return optimizer._read_hypers(group), optimizer._read_settings(group)

    def put(key, value):
        group[key] = value

    for key, value in list(group.items()):
        others = {}
        if isinstance(value, bool | float):
            others = {_other(value): _other(value)}
        elif isinstance(value, tuple) and all(isinstance(v, float) for v in value):
            others = {
                _other(v): (*value[:i], _other(v), *value[i + 1 :]) for i, v in enumerate(value)
            }
        for number, other in others.items():
            before = read()
            group[key] = other
            is_read = read() != before
            group[key] = value
            if is_read:
                yield (
                    f"{key}, {number}",
                    f"{key}={str(number).lower()}" if isinstance(value, bool) else f"={number}",
                    lambda key=key, other=other: put(key, other),
                    lambda key=key, value=value: put(key, value),
                )


def _of_features(optimizer):
    for feature in optimizer._features:
        for hyper, name in feature._hypers.items():
            value = getattr(feature, name)
            yield (
                f"{name} of {type(feature).__name__}",
                f"{hyper}=",
                lambda f=feature, n=name, v=value: setattr(f, n, v / 2),
                lambda f=feature, n=name, v=value: setattr(f, n, v),
            )


def _of_scalars(optimizer):
    for name, value in optimizer.scalars.items():
        first = value[0] if isinstance(value, list) else value
        yield (
            f"scalar {name}",
            f"scalar {name}=",
            lambda name=name, first=first: optimizer.set_scalar(name, first + 1.0),
            lambda name=name, first=first: optimizer.set_scalar(name, first),
        )


def _of_parameters(optimizer):
    param = params_of(optimizer)[1]

    def freeze(on):
        param.requires_grad_(not on)

    def count(by):
        state = optimizer.state_dict()
        own = next(iter(state["state"].values()))
        own["step"] = own["step"] + by
        optimizer.load_state_dict(state)

    yield "a frozen parameter", "frozen", lambda: freeze(True), lambda: freeze(False)
    if any("step" in own for own in optimizer.state.values()):
        yield COUNT, " steps", lambda: count(1), lambda: count(-1)


def changes(optimizer):
    """Of an optimizer that has stepped: a name, what is said of it, what makes the change, and what
    undoes it."""
    for of in (_of_groups, _of_features, _of_scalars, _of_parameters):
        yield from of(optimizer)
