# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What cases of states that are codes on ranks share."""

import stepc.torch as st
import torch
from named_values import named_values
from on_ranks import same_bits, whole
from stepc.torch.ranks.state_parts import StatePart
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# Rows of whole blocks and of a short one, of several dims, and too few elements for codes.
SHAPES = {
    "query": (66, 128),
    "up": (70, 100),
    "experts": (6, 20, 64),
    "conv": (64, 5, 4, 4),
    "norm": (7,),
    "small": (9, 9),
}
WIDE = {"down": (33, 512), "up": (70, 256)}  # of which ranks may share columns


def grid(names=("dp", "tp")):
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def line():
    return init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))


def placements(way, shape):
    return {
        "fsdp2": [Shard(0)],
        "hsdp": [Replicate(), Shard(0)],
        "columns": [Replicate(), Shard(len(shape) - 1)],
        "both": [Shard(0), Shard(len(shape) - 1)],
        "last": [Shard(len(shape) - 1)],
        "first of a row": [Shard(1)],
        "twice": [Shard(len(shape) - 1), Shard(len(shape) - 1)],
    }[way]


def spread(way, mesh, values):
    return [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), mesh, placements(way, v.shape))))
        for n, v in values.items()
    ]


def give(params, own):
    for name, param in params:
        param.grad = distribute_tensor(own[name].clone(), param.device_mesh, param.placements)


def step_alike(parts, other, plain, alone, own, label):
    """A step of an optimizer on ranks and of one in one process, with the same gradients."""
    for name, param in plain:
        param.grad = own[name].clone()
    give(parts, own)
    alone.step()
    other.step()
    for (name, param), (_, single) in zip(parts, plain, strict=True):
        same_bits(whole(param), single, f"{label}, {name}")


def stepped(make, values, grads):
    """One process: the parameters, the optimizer, and the parameters after each step."""
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]
    optimizer, after = make(params), []
    for own in grads:
        for name, param in params:
            param.grad = own[name].clone()
        optimizer.step()
        after.append({n: p.detach().clone() for n, p in params})
    return params, optimizer, after


def floats_of(saved, values):
    """A checkpoint of float32 of one with codes, of states of the parameters' shapes."""
    made = {"param_groups": saved["param_groups"], "state": {}}
    for number, own in saved["state"].items():
        of = made["state"][number] = dict(own)
        for key in [key for key in own if f"{key}.scale" in own]:
            shape = [*values.values()][number].shape
            of[key] = st.decode_state(of[key], of.pop(f"{key}.scale"), shape)
    return made


def same_states(params, optimizer, plain, alone, what):
    """Codes and scales are DTensors, or parts where ranks share blocks, whose wholes one process
    has."""
    full, found = optimizer.full_state_dict()["state"], 0
    for number, ((name, param), (_, single)) in enumerate(zip(params, plain, strict=True)):
        own, theirs = optimizer.state[param], alone.state[single]
        assert set(own) == set(theirs), f"{what}, {name}: {set(own)} and {set(theirs)}"
        for key, state in own.items():
            assert isinstance(state, DTensor | StatePart) == (key != "step"), (what, name, key)
            same_bits(full[number][key], theirs[key], f"{what}, {key} of {name}")
            found += theirs[key].dtype in (torch.uint8, torch.int8, torch.int32)
    return found


def compare(way, mesh, make, shapes=SHAPES, steps=3):
    values, grads = named_values(shapes, 1, steps)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(make, values, grads)
    params = spread(way, mesh, values)
    optimizer = make(params)
    for step, own in enumerate(grads):
        give(params, own)
        optimizer.step()
        for name, param in params:
            same_bits(whole(param), after[step][name], f"{way}, {name} after step {step}")
    assert same_states(params, optimizer, plain, alone, way)
    return params, optimizer, values, grads


def adamw(params, **more):
    return st.AdamW(params, lr=0.05, state_dtype="q8", **more)


def zeroed(make, values, grads, after, what, **zero):
    """With states shared out by elements: what they are put together to one process has."""
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]
    optimizer = make(params, zero=st.Zero(1, gradients="reduced", **zero))
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = own[name].clone()
        optimizer.step()
        for name, param in params:
            same_bits(param, after[step][name], f"{what}, {name} after step {step}")
    return params, optimizer


def same_full(optimizer, plain, alone, what):
    full = optimizer.full_state_dict()["state"]
    for number, (name, single) in enumerate(plain):
        theirs = alone.state[single]
        assert set(full[number]) == set(theirs), f"{what}, {name}"
        for key, state in theirs.items():
            same_bits(full[number][key], state, f"{what}, {key} of {name}")


def refused(make, params, own, words):
    optimizer = make(params)
    before = [whole(param).detach().clone() for _, param in params]
    give(params, own)
    try:
        optimizer.step()
    except Exception as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")
    for (name, param), value in zip(params, before, strict=True):
        same_bits(whole(param), value, name)
