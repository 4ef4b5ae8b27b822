# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes have the same codes, whatever ranks have of the parameters: on
four ranks against one process, to the bit."""

import stepc.torch as st
import torch
from named_values import named_values
from on_ranks import case, main, same_bits, whole
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
    }[way]


def spread(way, mesh, values):
    return [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), mesh, placements(way, v.shape))))
        for n, v in values.items()
    ]


def give(params, own):
    for name, param in params:
        param.grad = distribute_tensor(own[name].clone(), param.device_mesh, param.placements)


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


def same_states(params, optimizer, plain, alone, what):
    """Codes and scales are DTensors, whose wholes one process has."""
    full, found = optimizer.full_state_dict()["state"], 0
    for number, ((name, param), (_, single)) in enumerate(zip(params, plain, strict=True)):
        own, theirs = optimizer.state[param], alone.state[single]
        assert set(own) == set(theirs), f"{what}, {name}: {set(own)} and {set(theirs)}"
        for key, state in own.items():
            assert isinstance(state, DTensor) == (key != "step"), f"{what}, {name}, {key}"
            same_bits(full[number][key], theirs[key], f"{what}, {key} of {name}")
            found += theirs[key].dtype is torch.uint8
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


@case
def rows_that_ranks_share():
    compare("fsdp2", line(), adamw)
    compare("hsdp", grid(("replicate", "shard")), adamw)
    compare("fsdp2", line(), lambda ps: st.Lion(ps, lr=0.05, state_dtype="q8"))
    compare("fsdp2", line(), lambda ps: st.Adagrad(ps, initial_accumulator_value=0.5,
                                                   state_dtype={"sum": "q8"}))  # fmt: skip


@case
def columns_that_ranks_share_by_whole_blocks():
    compare("columns", grid(), adamw, WIDE)
    compare("both", grid(), adamw, WIDE)


@case
def a_state_that_is_needed_again_behind_a_round():
    """LAMB writes its moments before the norms are known, and reads them behind."""
    make = lambda ps: st.apex.FusedLAMB(ps, lr=0.05, reproducible=True, state_dtype="q8")  # noqa: E731
    compare("fsdp2", line(), make)
    make = lambda ps: st.LARS(ps, lr=0.05, momentum=0.9, state_dtype="q8", reproducible=True)  # noqa: E731
    compare("fsdp2", line(), make)


@case
def tensors_that_an_owner_steps():
    shapes = {"up": (64, 80), "down": (80, 64)}
    group = {"rank": 16, "update_proj_gap": 2}
    compare("fsdp2", line(), lambda ps: st.Muon(ps, lr=0.05, state_dtype="q8"), shapes)
    make = lambda ps: st.GaLoreAdamW(  # noqa: E731
        [{"params": ps, **group}], lr=0.05, state_dtype={"exp_avg": "q8", "exp_avg_sq": "q8"}
    )
    compare("fsdp2", line(), make, {"up": (300, 280), "down": (280, 300)})


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


@case
def elements_that_zero_shares_out():
    """Cuts are where blocks begin."""
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    for more in ({}, {"bucket_bytes": 20_000}):
        _, optimizer = zeroed(adamw, values, grads, after, str(more), **more)
        same_full(optimizer, plain, alone, str(more))
    saved, floats = optimizer.full_state_dict(), {"param_groups": [], "state": {}}
    floats["param_groups"] = saved["param_groups"]
    for number, own in saved["state"].items():
        made = floats["state"][number] = dict(own)
        for key in [key for key in own if f"{key}.scale" in own]:
            made[key] = st.decode_state(own[key], made.pop(f"{key}.scale"))
    now = {n: p.detach().clone() for n, p in plain}
    last, again, later = stepped(adamw, values, [*grads, grads[0]])
    for state in (saved, floats):
        params = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
        optimizer = adamw(params, zero=st.Zero(1, gradients="reduced"))
        optimizer.load_state_dict(state)
        for name, param in params:
            param.grad = grads[0][name].clone()
        optimizer.step()
        for name, param in params:
            same_bits(param, later[-1][name], name)
        same_full(optimizer, last, again, "loaded")
    # And codes where floats are kept.
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
    wide = st.AdamW(params, lr=0.05, zero=st.Zero(1, gradients="reduced"))
    wide.load_state_dict(saved)
    ordinary = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
    single = st.AdamW(ordinary, lr=0.05)
    single.load_state_dict(floats)
    for optimizer, own in ((wide, params), (single, ordinary)):
        for name, param in own:
            param.grad = grads[0][name].clone()
        optimizer.step()
    for (name, param), (_, other) in zip(params, ordinary, strict=True):
        same_bits(param, other, f"{name} of floats")
    same_full(wide, ordinary, single, "floats")


@case
def matrices_that_zero_gives_to_owners():
    shapes = {"up": (64, 80), "down": (80, 64), "norm": (128, 64)}

    def muon(params, **more):
        return st.Muon(params, lr=0.05, state_dtype="q8", **more)

    values, grads = named_values(shapes, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(muon, values, grads)
    _, optimizer = zeroed(muon, values, grads, after, "muon")
    same_full(optimizer, plain, alone, "muon")


@case
def a_checkpoint_of_either_kind_loads():
    """Codes in another layout, and floats, which become the codes that they would have."""
    params, optimizer, values, grads = compare("fsdp2", line(), adamw)
    saved = optimizer.full_state_dict()
    now = {n: whole(p).detach().clone() for n, p in params}
    floats = {"param_groups": saved["param_groups"], "state": {}}
    for number, own in saved["state"].items():
        made = floats["state"][number] = dict(own)
        for key in [key for key in own if f"{key}.scale" in own]:
            made[key] = st.decode_state(own[key], made.pop(f"{key}.scale"))
    plain, alone, after = stepped(adamw, values, [*grads, grads[0]])
    for state in (saved, floats):
        for way, mesh in (("hsdp", grid(("replicate", "shard"))), ("fsdp2", line())):
            params = spread(way, mesh, now)
            optimizer = adamw(params)
            optimizer.load_state_dict(state)
            give(params, grads[0])
            optimizer.step()
            for name, param in params:
                same_bits(whole(param), after[-1][name], f"{way}, {name}")
            same_states(params, optimizer, plain, alone, way)


@case
def a_cut_inside_of_a_block_is_refused():
    values, grads = named_values({"up": (70, 100)}, 1, 1)
    params = spread("columns", grid(), values)
    optimizer = adamw(params)
    give(params, grads[0][0])
    try:
        optimizer.step()
    except Exception as error:
        assert "cuts a block" in str(error), error
    else:
        raise AssertionError("not refused")


if __name__ == "__main__":
    main()
