# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes have the same codes, whatever ranks have of the parameters: on
four ranks against one process, to the bit."""

import stepc.torch as st
import torch
from codes_on_ranks import (
    SHAPES,
    WIDE,
    adamw,
    compare,
    floats_of,
    grid,
    line,
    refused,
    same_full,
    stepped,
    zeroed,
)
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from torch.distributed.tensor import Shard, distribute_tensor


@case
def rows_that_ranks_share():
    compare("fsdp2", line(), adamw)
    compare("hsdp", grid(("replicate", "shard")), adamw)
    compare("fsdp2", line(), lambda ps: st.Lion(ps, lr=0.05, state_dtype="q8"))
    compare("fsdp2", line(), lambda ps: st.Adagrad(ps, initial_accumulator_value=0.5,
                                                   state_dtype={"sum": "q8"}))  # fmt: skip


@case
def small_states_and_a_least_number_of_elements():
    """It is of the whole, of which no rank has so many."""
    shapes = {"few": (8, 64), "more": (16, 64), "odd": (10, 100)}
    small = st.Codes("q8", min_size=1000)
    make = lambda ps, **more: st.AdamW(ps, lr=0.05, state_dtype=small, **more)  # noqa: E731
    params, optimizer, values, grads = compare("fsdp2", line(), make, shapes)
    kept = {n: optimizer.state[p]["exp_avg"].dtype is torch.uint8 for n, p in params}
    assert kept == {"few": False, "more": True, "odd": True}, kept
    plain, alone, after = stepped(make, values, grads)
    _, optimizer = zeroed(make, values, grads, after, "small")
    same_full(optimizer, plain, alone, "small")


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


@case
def elements_that_zero_shares_out():
    """Cuts are where blocks begin."""
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    for more in ({}, {"bucket_bytes": 20_000}):
        _, optimizer = zeroed(adamw, values, grads, after, str(more), **more)
        same_full(optimizer, plain, alone, str(more))
    saved = optimizer.full_state_dict()
    floats = floats_of(saved, values)
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
def gradients_that_cross_in_the_backward_pass():
    """All ranks have the same, whose mean over four ranks is exact."""
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    for more in ({}, {"fused_backward": True}):
        params = [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]
        optimizer = adamw(params, zero=st.Zero(2, bucket_bytes=20_000), **more)
        for step, own in enumerate(grads):
            sum((param * own[name]).sum() for name, param in params).backward()
            optimizer.step()
            optimizer.zero_grad()
            for name, param in params:
                same_bits(param, after[step][name], f"{more}, {name} after step {step}")
        same_full(optimizer, plain, alone, str(more))


@case
def a_group_that_is_added():
    """It is cut apart from the others."""
    values, grads = named_values(SHAPES, 1, 2)
    grads = [own[0] for own in grads]
    first = {n: v for n, v in values.items() if n != "up"}
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in first.items()]
    optimizer = adamw(params, zero=st.Zero(1, gradients="reduced"))
    single = [(n, torch.nn.Parameter(v.clone())) for n, v in first.items()]
    alone = adamw(single)
    for step, own in enumerate(grads):
        if step == 1:
            for pairs, one in ((params, optimizer), (single, alone)):
                pairs.append(("up", torch.nn.Parameter(values["up"].clone())))
                one.add_param_group({"params": [pairs[-1]]})
        for pairs, one in ((params, optimizer), (single, alone)):
            for name, param in pairs:
                param.grad = own[name].clone()
            one.step()
        for (name, param), (_, other) in zip(params, single, strict=True):
            same_bits(param, other, f"{name} after step {step}")
    same_full(optimizer, single, alone, "added")


@case
def zero_over_rows_and_columns():
    """States of equal parts, of rows that TP has cut, are shared out by rows; and again when
    something is added."""
    shares_rows_and_columns({"up": (70, 256), "down": (64, 128)})


@case
def zero_over_rows_and_columns_that_cut_blocks():
    shares_rows_and_columns({"up": (70, 352), "down": (64, 96), "few": (6, 1000)})


def shares_rows_and_columns(shapes):
    values, grads = named_values(shapes, 1, 4)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    mesh = grid(("zero", "tp"))
    for way in ("columns", "rows"):

        def placed(value, way=way):
            return distribute_tensor(value.clone(), mesh["tp"], [Shard(way == "columns")])

        params = [(n, torch.nn.Parameter(placed(v))) for n, v in values.items()]
        how = st.Zero(1, gradients="reduced", process_group=mesh["zero"].get_group())
        optimizer = adamw(params, zero=how)
        for step, own in enumerate(grads):
            if step == 2:
                saved = optimizer.full_state_dict()
                optimizer.load_state_dict(optimizer.state_dict())
            if step == 3:
                again = adamw(params, zero=st.Zero(1, gradients="reduced",
                                                   process_group=how.process_group))  # fmt: skip
                again.load_state_dict(optimizer.full_state_dict())
                optimizer = again
            for name, param in params:
                param.grad = placed(own[name])
            optimizer.step()
            for name, param in params:
                same_bits(whole(param), after[step][name], f"{way}, {name} after step {step}")
        assert any(str(n).endswith(".scale") for n in saved["state"][0])
        same_full(optimizer, plain, alone, way)


@case
def rows_are_not_cut_inside():
    """A part of several dims of which not the first is shared out is no range of a row."""
    values, grads = named_values({"conv": (64, 16, 4, 4)}, 1, 1)
    params = [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), line(), [Shard(2)])))
        for n, v in values.items()
    ]
    refused(adamw, params, grads[0][0], "shared out along a dim inside of them")


if __name__ == "__main__":
    main()
