# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``percentile_clipping`` takes the norm of the whole gradient, whatever ranks have of it: on four
ranks against one process, to the bit."""

import contextlib

import stepc.torch as st
import torch
import torch.distributed as dist
from codes_on_ranks import give, grid, line, spread, stepped
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc.errors import StepcError
from torch.distributed.tensor import DTensor, Partial

SHAPES = {"query": (66, 128), "up": (70, 100), "norm": (7,)}


def adamw(params, **more):
    return st.bitsandbytes.AdamW8bit(params, lr=0.05, percentile_clipping=20, **more)


def values_of(steps=8):
    """Gradients of lengths that differ from step to step."""
    values, grads = named_values(SHAPES, 1, steps)
    lengths = [1.0, 4.0, 0.5, 2.0, 0.25, 3.0, 1.5, 0.125]
    return values, [
        {n: length * g for n, g in own[0].items()}
        for length, own in zip(lengths[:steps], grads, strict=True)
    ]


def norms_of(saved):
    return {n: own["gnorm_vec"] for n, own in saved["state"].items()}


@case
def parts_that_ranks_have():
    values, grads = values_of()
    plain, alone, after = stepped(adamw, values, grads)
    expected = norms_of(alone.state_dict())
    shapes = {"columns": ["query"], "fsdp2": list(SHAPES), "hsdp": list(SHAPES)}
    for way, names in shapes.items():
        mesh = line() if way == "fsdp2" else grid()
        params = spread(way, mesh, {n: values[n] for n in names})
        optimizer = adamw(params)
        for step, own in enumerate(grads):
            give(params, own)
            optimizer.step()
            for name, param in params:
                same_bits(whole(param), after[step][name], f"{way}, {name} after step {step}")
        for saved in (optimizer.state_dict(), optimizer.full_state_dict()):
            found = norms_of(saved)
            for number, name in enumerate(names):
                same_bits(found[number], expected[number], f"{way}, norms of {name}")
        assert len(found) == len(names)


@case
def a_gradient_that_some_ranks_have():
    """Of what the others have the norm is; all ranks go on with the same ones."""
    values, grads = values_of()
    for way, mesh in (("fsdp2", line()), ("hsdp", grid())):
        given = [{n: g.clone() for n, g in own.items()} for own in grads]
        for name, g in given[2].items() if way == "fsdp2" else ():
            rows = -(-g.shape[0] // 4)
            given[2][name][rows : 2 * rows] = 0  # of rank 1; along replicas others have them
        expected = norms_of(stepped(adamw, values, given)[1].state_dict())
        params = spread(way, mesh, values)
        optimizer = adamw(params)
        for step, own in enumerate(grads):
            give(params, own)
            for _, param in params if step == 2 and mesh.get_local_rank(0) == 1 else ():
                param.grad = None
            optimizer.step()
        for number, own in norms_of(optimizer.state_dict()).items():
            same_bits(own, expected[number], f"{way}, norms of parameter {number}")


@case
def states_that_zero_shares_out():
    """Gradients are whole on every rank, as DistributedDataParallel leaves them. Norms are in what
    each rank saves, of parameters too of which it has no state."""
    values, grads = values_of()
    plain, alone, after = stepped(adamw, values, grads)
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]
    optimizer = adamw(params, zero=st.Zero(1, gradients="reduced"))
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = own[name].clone()
        if step == 4:
            saved = optimizer.state_dict()
            assert len(norms_of(saved)) == len(SHAPES)
            optimizer = adamw(params, zero=st.Zero(1, gradients="reduced"))
            optimizer.load_state_dict(saved)
        optimizer.step()
        for name, param in params:
            same_bits(param, after[step][name], f"{name} after step {step}")
    full = norms_of(optimizer.full_state_dict())
    for number, own in norms_of(alone.state_dict()).items():
        same_bits(full[number], own, "norms")


@contextlib.contextmanager
def fails(kind, words):
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


@case
def gradients_that_the_step_sums():
    """They are refused, and nothing has changed."""
    values, grads = values_of(1)
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]
    for name, param in params:
        param.grad = grads[0][name].clone()
    optimizer = adamw(params, zero=st.Zero(1, gradients="local"))
    with fails(StepcError, "percentile_clipping=20 is not for zero with gradients='local'"):
        optimizer.step()
    mesh = line()
    spread_out = spread("fsdp2", mesh, values)
    optimizer = adamw(spread_out)
    for name, param in spread_out:
        param.grad = DTensor.from_local(grads[0][name].clone(), mesh, [Partial()], run_check=False)
    with fails(ValueError, "it is to be summed first"):
        optimizer.step()
    for (name, param), (_, other) in zip(params, spread_out, strict=True):
        same_bits(param, values[name], name)
        same_bits(whole(other), values[name], name)
    assert not optimizer.state and dist.is_initialized()


if __name__ == "__main__":
    main()
