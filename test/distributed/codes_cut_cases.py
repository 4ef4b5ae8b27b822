# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that cut rows inside of blocks of codes have the codes that one process has."""

import copy
import os
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from codes_on_ranks import (
    adamw,
    compare,
    floats_of,
    give,
    grid,
    line,
    refused,
    same_full,
    same_states,
    spread,
    step_alike,
    stepped,
)
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc import errors
from stored_cases import file_in, in_a_pass, refusal_of
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

CUT = {"up": (70, 352), "down": (44, 96), "narrow": (512, 40), "whole": (33, 512)}


@case
def columns_that_ranks_cut_anywhere():
    compare("columns", grid(), adamw, CUT)
    compare("both", grid(), adamw, CUT)
    compare("last", line(), adamw, CUT)


@case
def a_dim_that_two_axes_cut():
    compare("twice", grid(), adamw, {**CUT, "odd": (50, 333)})


@case
def rows_of_several_dims():
    shapes = {"conv": (64, 16, 4, 4), "other": (24, 22, 3, 3), "few": (90, 6, 7, 7)}
    compare("first of a row", line(), adamw, shapes)


@case
def other_definitions_and_formats():
    def mixed(params):
        kinds = {"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"}
        return st.AdamW(params, lr=0.05, state_dtype=kinds)

    def lamb(params):
        return st.apex.FusedLAMB(params, lr=0.05, reproducible=True, state_dtype="q8")

    compare("last", line(), mixed, CUT)
    compare("last", line(), lamb, CUT)

    def adafactor(params):
        return st.hf.Adafactor(params, lr=0.05, beta1=0.9, relative_step=False,
                               reproducible=True, state_dtype={"exp_avg": "q8"})  # fmt: skip

    compare("last", line(), adafactor, CUT)
    compare("columns", grid(), lambda ps: st.Lion(ps, lr=0.05, state_dtype="q8"), CUT)


@case
def tensors_that_an_owner_steps():
    """It has the whole, and the others codes and scales of their parts."""
    muon = lambda ps: st.Muon(ps, lr=0.05, state_dtype="q8")  # noqa: E731
    for way, mesh in (("columns", grid()), ("both", grid()), ("last", line())):
        compare(way, mesh, muon, {"up": (64, 80), "down": (80, 100)})


@case
def a_step_that_is_skipped():
    """It changes nothing on any rank, and the next one is as without it."""
    make = lambda ps: adamw(ps, skip_nonfinite=True)  # noqa: E731
    params, optimizer, values, grads = compare("last", line(), make, CUT)
    plain, alone, after = stepped(make, values, [*grads, grads[1]])
    bad = {name: own.clone() for name, own in grads[0].items()}
    bad["down"][3, 50] = float("inf")
    give(params, bad)
    optimizer.step()
    assert float(optimizer.state[params[0][1]]["step"]) == 3
    give(params, grads[1])
    optimizer.step()
    for name, param in params:
        same_bits(whole(param), after[-1][name], name)
    same_states(params, optimizer, plain, alone, "after a skipped step")


@case
def a_model_in_parts():
    """By tensor parallelism, of which a layer is stepped as its gradient comes; one has none in
    the second step."""
    torch.manual_seed(3)
    layers = torch.nn.Linear(96, 352), torch.nn.Tanh(), torch.nn.Linear(352, 96, bias=False)
    made = torch.nn.Sequential(*layers)
    ways = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    for more in ({}, {"fused_backward": True}):
        alone, shared = (copy.deepcopy(made) for _ in range(2))
        parallelize_module(shared, line(), ways)
        optimizers = [adamw(own.named_parameters(), **more) for own in (alone, shared)]
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            for own, optimizer in zip((alone, shared), optimizers, strict=True):
                generator.manual_seed(step)
                loss = 0
                for name, param in own.named_parameters():
                    if step == 1 and name == "2.weight":
                        continue
                    grad = torch.randn(param.shape, generator=generator)
                    if isinstance(param, DTensor):
                        grad = distribute_tensor(grad, param.device_mesh, param.placements)
                        loss = loss + (param * grad).to_local().sum()
                    else:
                        loss = loss + (param * grad).sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        params = list(shared.named_parameters())
        for (name, param), single in zip(params, alone.parameters(), strict=True):
            same_bits(whole(param), single, f"{more}, {name}")
        same_states(params, optimizers[1], list(alone.named_parameters()), optimizers[0], more)


@case
def states_on_disk_are_not_cut():
    folder = tempfile.mkdtemp()
    values, grads = named_values({"up": (2048, 352)}, 1, 1)
    params = spread("last", line(), values)
    make = lambda ps: adamw(ps, place=st.Place(states="disk", path=folder))  # noqa: E731
    refused(make, params, grads[0][0], "those that are cut have to be in memory")


BESIDE_FILES = {"down": CUT["down"], "big": (2048, 512), "up": CUT["up"]}  # "big" is in the file


def beside_files(path, **more):
    values, grads = named_values(BESIDE_FILES, 1, 2)
    params = spread("last", line(), values)
    place = st.Place("disk", path=path, window_bytes=1 << 16)
    return params, adamw(params, place=place, **more), values, [own[0] for own in grads]


def heard_of_all(optimizer, rank):
    error = refusal_of(optimizer)
    assert (f"rank {rank}: " in str(error)) == (dist.get_rank() != rank), error
    assert error.torn, error
    try:
        optimizer.step()
    except errors.StatusError as refusal:
        assert "load a state to go on" in str(refusal), refusal
    else:
        raise AssertionError("it went on")
    return error


@case
def a_file_that_fails_beside_codes_that_are_cut():
    """All ranks say so in that step, and none waits for the codes of the one."""
    for fused in (False, True):
        folder = tempfile.mkdtemp()
        params, optimizer, values, grads = beside_files(folder, fused_backward=fused)
        bring = in_a_pass if fused else lambda optimizer, *given: give(*given)
        bring(optimizer, params, grads[0])
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        if dist.get_rank() == 2:
            os.truncate(file_in(folder), 1 << 16)
        bring(optimizer, params, grads[1])
        assert "has become shorter" in str(heard_of_all(optimizer, 2))
        # From where it was, with parameters of then, as one process.
        plain, alone, after = stepped(adamw, values, grads)
        optimizer.load_state_dict(saved)
        _, _, first = stepped(adamw, values, grads[:1])
        for name, param in params:
            param.data.copy_(distribute_tensor(first[0][name], param.device_mesh, [Shard(1)]))
        bring(optimizer, params, grads[1])
        optimizer.step()
        for name, param in params:
            same_bits(whole(param), after[1][name], f"fused {fused}, {name}")
        same_full(optimizer, plain, alone, f"fused {fused}")


@case
def a_file_that_one_rank_cannot_make_beside_codes_that_are_cut():
    """Within a backward pass, in which the others step."""
    folder = tempfile.mkdtemp()
    own = folder if dist.get_rank() != 1 else f"{folder}/none"
    params, optimizer, values, grads = beside_files(own, fused_backward=True)
    saved = copy.deepcopy(optimizer.state_dict())
    in_a_pass(optimizer, params, grads[0])
    assert "no file for states can be made in" in str(heard_of_all(optimizer, 1))
    os.makedirs(own, exist_ok=True)
    optimizer.load_state_dict(saved)
    for name, param in params:
        param.data.copy_(distribute_tensor(values[name], param.device_mesh, [Shard(1)]))
    in_a_pass(optimizer, params, grads[0])
    optimizer.step()
    plain, alone, after = stepped(adamw, values, grads[:1])
    for name, param in params:
        same_bits(whole(param), after[0][name], name)
    same_full(optimizer, plain, alone, "made")


@case
def a_nan_on_one_rank():
    """All of the block is NaN, on every rank that has a part of it."""
    values, grads = named_values(CUT, 1, 1)
    bad = {name: own.clone() for name, own in grads[0][0].items()}
    bad["up"][5, 90] = float("nan")  # of four ranks the second has it, the first shares its block
    bad["up"][7, 5] = float("-inf")
    plain, alone, _ = stepped(adamw, values, [bad])
    params = spread("last", line(), values)
    optimizer = adamw(params)
    give(params, bad)
    optimizer.step()
    same_states(params, optimizer, plain, alone, "a NaN")
    state = optimizer.full_state_dict()["state"][0]
    decoded = st.decode_state(state["exp_avg"], state["exp_avg.scale"])
    assert decoded[5, 64:128].isnan().all() and not decoded[5, :64].isnan().any()


@case
def parts_of_any_size():
    """That layouts describe, of which no rank knows where others are cut."""
    mesh, ends = line(), [0, 5, 101, 102, 222]
    values, grads = named_values({"up": (70, 222), "down": (60, 222)}, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    at = slice(*ends[dist.get_rank() : dist.get_rank() + 2])
    params = [(n, torch.nn.Parameter(v[:, at].clone())) for n, v in values.items()]
    layout = st.Layout(mesh, [Shard(1)])
    optimizer = adamw(params, layouts=[(".*", layout)])
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = own[name][:, at].clone()
        optimizer.step()
        for name, param in params:
            same_bits(param, after[step][name][:, at], f"{name} after step {step}")
    same_full(optimizer, plain, alone, "any size")
    folder = shared_folder()
    dcp.save({"optim": optimizer.state_dict()["state"]}, checkpoint_id=folder)
    others = [(n, torch.nn.Parameter(v[:, at].clone())) for n, v in values.items()]
    again = adamw(others, layouts=[(".*", layout)])
    for state in (optimizer.full_state_dict(), floats_of(optimizer.full_state_dict(), values)):
        again.load_state_dict(state)
        for name, param in others:
            param.grad = grads[0][name][:, at].clone()
        again.step()
    packed = again.state_dict()
    dcp.load({"optim": packed["state"]}, checkpoint_id=folder)
    again.load_state_dict(packed)
    same_full(again, plain, alone, "loaded")


@case
def parts_that_cut_where_equal_shares_do_not():
    """On all ranks alike, also those of whole blocks; of what an owner steps it makes none."""
    mesh, ends = line(), [0, 64, 124, 192, 256]
    values, grads = named_values({"up": (70, 256)}, 1, 2)
    at = slice(*ends[dist.get_rank() : dist.get_rank() + 2])
    own = values["up"][:, at].clone()
    made = {
        "AdamW": adamw,
        "LAMB": lambda ps, **more: st.apex.FusedLAMB(ps, lr=0.05, state_dtype="q8", **more),
        "q4": lambda ps, **more: st.AdamW(ps, lr=0.05, state_dtype="q4", **more),
    }
    words = "rank 1 has [64, 124) of 256 in dim 1, which cuts a block where equal shares do not"
    for name, make in made.items():
        param = torch.nn.Parameter(own.clone())
        optimizer = make([("up", param)], layouts=[(".*", st.Layout(mesh, [Shard(1)]))])
        param.grad = grads[0][0]["up"][:, at].clone()
        for _ in range(2):
            try:
                optimizer.step()
            except errors.TensorError as error:
                assert words in str(error) and "of parameter 'up'" in str(error), error
            else:
                raise AssertionError(f"{name} is not refused")
        same_bits(param, own, name)
    muon = lambda ps, **more: st.Muon(ps, lr=0.05, state_dtype="q8", **more)  # noqa: E731
    grads = [one[0] for one in grads]
    plain, alone, after = stepped(muon, values, grads)
    param = torch.nn.Parameter(own.clone())
    optimizer = muon([("up", param)], layouts=[(".*", st.Layout(mesh, [Shard(1)]))])
    for step, grad in enumerate(grads):
        param.grad = grad["up"][:, at].clone()
        optimizer.step()
        same_bits(param, after[step]["up"][:, at], f"after step {step}")
    same_full(optimizer, plain, alone, "an owner's")


@case
def checkpoints_of_any_layout():
    """Whole ones, of codes and of floats, into each layout and format; and of parts."""
    params, optimizer, values, grads = compare("last", line(), adamw, CUT)
    saved, now = optimizer.full_state_dict(), {n: whole(p).detach().clone() for n, p in params}
    folder = shared_folder()
    dcp.save({"optim": named(optimizer, params)}, checkpoint_id=folder)
    for way, mesh in (("last", line()), ("columns", grid()), ("fsdp2", line())):
        for kept, state in (("q8", saved), ("q8", floats_of(saved, values)), ("f8_e4m3", saved),
                            (None, saved), ("q8", folder)):  # fmt: skip
            plain = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
            parts = spread(way, mesh, now)
            alone, other = (st.AdamW(ps, lr=0.05, state_dtype=kept) for ps in (plain, parts))
            if state is folder:
                alone.load_state_dict(saved)
                give(parts, grads[0])
                other.step()  # so that there are states to load into
                for (_, part), value in zip(parts, now.values(), strict=True):
                    part.data.copy_(distribute_tensor(value, mesh, part.placements))
                packed = named(other, parts)
                dcp.load({"optim": packed}, checkpoint_id=folder)
                loaded = other.state_dict()
                loaded["state"] = dict(enumerate(packed.values()))
                other.load_state_dict(loaded)
            else:
                alone.load_state_dict(state)
                other.load_state_dict(state)
            for name, param in plain:
                param.grad = grads[0][name].clone()
            give(parts, grads[0])
            alone.step()
            other.step()
            what = f"{way}, {kept}, {'parts' if state is folder else 'whole'}"
            for (name, param), (_, single) in zip(parts, plain, strict=True):
                same_bits(whole(param), single, f"{what}, {name}")
            if kept:
                same_states(parts, other, plain, alone, what)


@case
def checkpoints_by_their_own_reader():
    """Floats of the whole become the codes that they were."""
    params, optimizer, values, grads = compare("last", line(), adamw, CUT)
    now, folder = {n: whole(p).detach().clone() for n, p in params}, shared_folder()
    states = {"state": named(optimizer, params), "param_groups": [{"params": [*CUT]}]}
    dcp.save({"optim": states}, checkpoint_id=folder)
    plain, alone, _ = stepped(adamw, values, [*grads, grads[0]])
    for way, mesh in (("last", line()), ("columns", grid())):
        parts = spread(way, mesh, now)
        other = adamw(parts)
        st.checkpoint.load(other, folder)
        give(parts, grads[0])
        other.step()
        same_states(parts, other, plain, alone, way)


@case
def own_checkpoints_where_others_are_kept():
    """Of the same layout, whose parts are put together where codes are of another format."""
    params, optimizer, values, grads = compare("last", line(), adamw, CUT)
    full, now = optimizer.full_state_dict(), {n: whole(p).detach().clone() for n, p in params}
    for kept in ("q8", "f8_e4m3", None):
        plain = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
        parts = spread("last", line(), now)
        alone, other = (st.AdamW(ps, lr=0.05, state_dtype=kept) for ps in (plain, parts))
        alone.load_state_dict(full)
        other.load_state_dict(optimizer.state_dict())
        step_alike(parts, other, plain, alone, grads[0], f"{kept}")


def named(optimizer, params):
    states = optimizer.state_dict()["state"]
    return {name: states[number] for number, (name, _) in enumerate(params)}


def shared_folder():
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    return folder[0]


if __name__ == "__main__":
    main()
