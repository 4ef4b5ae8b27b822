# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that lie in files, one of each rank: on four ranks against one process with states in
memory, to the bit."""

import copy
import os
import shutil
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc import errors
from stepc.torch.tensors.stored import StoredState
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

SHAPES = {"up": (520, 192), "down": (192, 520), "conv": (264, 40, 4, 4), "norm": (7,)}
WAYS = {
    "fsdp2": [Shard(0)],
    "hsdp": [Replicate(), Shard(0)],
    "columns": [Replicate(), Shard(1)],
    "both": [Shard(0), Shard(1)],
}


def place():
    return st.Place("disk", path=tempfile.gettempdir(), window_bytes=1 << 16)


def mesh(way):
    if way == "fsdp2":
        return init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def adamw(params, **more):
    return st.AdamW(params, lr=0.05, **more)


def values_of(shapes=SHAPES, steps=3):
    values, grads = named_values(shapes, 1, steps)
    return values, [own[0] for own in grads]


def plain(values):
    return [(n, torch.nn.Parameter(v.clone())) for n, v in values.items()]


def stepped(make, values, grads):
    """One process with states in memory: the optimizer, and the parameters after each step."""
    params = plain(values)
    optimizer, after = make(params), []
    for own in grads:
        for name, param in params:
            param.grad = own[name].clone()
        optimizer.step()
        after.append({n: p.detach().clone() for n, p in params})
    return optimizer, after


def spread(how, over, values):
    return [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), over, how if v.dim() > 1 else [
            Replicate() if p.is_shard(1) else p for p in how])))
        for n, v in values.items()
    ]  # fmt: skip


def in_files(optimizer):
    held = [value for own in optimizer.state.values() for value in own.values()]
    return sum(isinstance(value, StoredState) for value in held)


def same_full(optimizer, alone, what):
    full, theirs = (one.full_state_dict()["state"] for one in (optimizer, alone))
    for number, own in theirs.items():
        assert set(full[number]) == set(own), what
        for key, value in own.items():
            same_bits(full[number][key], value, f"{what}, {key} of {number}")


def compare(way, make, shapes=SHAPES, least=2, **of_place):
    values, grads = values_of(shapes)
    alone, after = stepped(make, values, grads)
    params = spread(WAYS[way], mesh(way), values)
    optimizer = make(params, place=place(), **of_place)
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = distribute_tensor(own[name], param.device_mesh, param.placements)
        optimizer.step()
        for name, param in params:
            same_bits(whole(param), after[step][name], f"{way}, {name} after step {step}")
    assert in_files(optimizer) >= least
    same_full(optimizer, alone, way)
    return params, optimizer, alone, values, grads


@case
def parts_of_dims():
    for way in WAYS:
        compare(way, adamw)
    compare("fsdp2", lambda ps, **more: adamw(ps, state_dtype="q8", **more))


@case
def norms_that_cross_ranks():
    """LAMB's moments are written in one round of the step and read behind it."""
    compare("fsdp2", lambda ps, **more: st.apex.FusedLAMB(ps, reproducible=True, **more))
    compare("both", lambda ps, **more: st.hf.Adafactor(
        ps, lr=0.01, relative_step=False, scale_parameter=False, beta1=0.9, reproducible=True,
        **more), {"up": SHAPES["up"], "down": SHAPES["down"]})  # fmt: skip


@case
def codes_that_a_later_round_needs():
    """Their float32 lies in the file from one round to the next."""
    compare("fsdp2", lambda ps, **more: st.apex.FusedLAMB(
        ps, state_dtype="q8", reproducible=True, **more), least=6)  # fmt: skip


@case
def matrices_that_an_owner_steps():
    shapes = {"up": (320, 180), "down": (180, 320)}
    compare("fsdp2", lambda ps, **more: st.Muon(ps, lr=0.05, **more), shapes, 0)


@case
def what_zero_shares_out():
    values, grads = values_of()
    for stage, gradients in ((1, "reduced"), (2, "local")):
        alone, after = stepped(adamw, values, grads)
        params = plain(values)
        how = st.Zero(stage, gradients=gradients)
        optimizer = adamw(params, zero=how, place=place())
        for step, own in enumerate(grads):
            if gradients == "reduced":
                for name, param in params:
                    param.grad = own[name].clone()
            else:
                # Each rank has the same, whose mean it is.
                sum((param * own[name]).sum() for name, param in params).backward()
            optimizer.step()
            optimizer.zero_grad()
            for name, param in params:
                same_bits(param, after[step][name], f"zero {stage}, {name} after {step}")
        assert in_files(optimizer) >= 2
        same_full(optimizer, alone, f"zero {stage}")


@case
def checkpoints_of_parts():
    """Saved from files, loaded into files, and into memory."""
    params, optimizer, alone, values, grads = compare("fsdp2", adamw)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save(optimizer.state_dict(), checkpoint_id=os.path.join(folder[0], "a"))
    now = {n: whole(p).detach().clone() for n, p in params}
    single = adamw(plain(now))
    single.load_state_dict(alone.state_dict())
    for name, param in zip(now, single.param_groups[0]["params"], strict=True):
        param.grad = grads[0][name].clone()
    single.step()
    for more in ({"place": place()}, {}):
        own = spread(WAYS["fsdp2"], mesh("fsdp2"), now)
        other = adamw(own, **more)
        for name, param in own:  # states for DCP to load into
            param.grad = distribute_tensor(grads[1][name], param.device_mesh, param.placements)
        other.step()
        state = other.state_dict()
        dcp.load(state, checkpoint_id=os.path.join(folder[0], "a"))
        other.load_state_dict(state)
        with torch.no_grad():
            for name, param in own:
                param.copy_(distribute_tensor(now[name], param.device_mesh, param.placements))
                param.grad = distribute_tensor(grads[0][name], param.device_mesh, param.placements)
        other.step()
        for (name, param), theirs in zip(own, single.param_groups[0]["params"], strict=True):
            same_bits(whole(param), theirs, f"{name}, loaded {more}")


def give(params, own):
    for name, param in params:
        param.grad = distribute_tensor(own[name], param.device_mesh, param.placements)


def refusal_of(optimizer):
    try:
        optimizer.step()
    except errors.StoreError as error:
        return error
    raise AssertionError("it was stepped")


@case
def a_file_that_fails_on_one_rank():
    """All ranks say so in that step, whether or not it exchanges anything, and step no more."""
    values, grads = values_of()
    for kind in (adamw, lambda ps, **more: st.apex.FusedLAMB(ps, **more)):
        folder = tempfile.mkdtemp()
        params = spread(WAYS["both"], mesh("both"), values)
        optimizer = kind(params, place=st.Place("disk", path=folder, window_bytes=1 << 16))
        give(params, grads[0])
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())  # counts would move
        if dist.get_rank() == 2:
            os.truncate(file_in(folder), 1 << 16)
        give(params, grads[1])
        error = refusal_of(optimizer)
        assert error.torn or dist.get_rank() == 2, error
        assert "has become shorter" in str(error), error
        assert ("rank 2: " in str(error)) == (dist.get_rank() != 2), error
        for ask in (optimizer.step, optimizer.state_dict):
            try:
                ask()
            except errors.StatusError as refusal:
                assert "load a state to go on" in str(refusal), refusal
            else:
                raise AssertionError("it went on")
        optimizer.load_state_dict(saved)
        optimizer.step()


@case
def a_file_that_fails_on_one_rank_of_zero():
    """Others wait for that rank's parameters, bucket by bucket or behind the rounds of LAMB."""
    values, grads = values_of()
    for kind in (adamw, lambda ps, **more: st.apex.FusedLAMB(ps, **more)):
        for more in ({"zero": 1, "gradients": "reduced"}, {"zero": 2, "gradients": "local"}):
            folder = tempfile.mkdtemp()
            params = plain(values)
            place = st.Place("disk", path=folder, window_bytes=1 << 16)
            optimizer = kind(params, place=place, bucket_bytes=1 << 16, **more)
            for step in range(2):
                if step and dist.get_rank() == 2:
                    os.truncate(file_in(folder), 1 << 16)
                if more["zero"] == 2:
                    sum((param * grads[step][n]).sum() for n, param in params).backward()
                else:
                    for name, param in params:
                        param.grad = grads[step][name].clone()
                if step == 0:
                    optimizer.step()
            error = refusal_of(optimizer)
            assert error.torn and "has become shorter" in str(error), error
            assert ("rank 2: " in str(error)) == (dist.get_rank() != 2), error


def in_a_pass(optimizer, params, own):
    """Gradients come one by one, the last parameter's first."""
    give(params, own)
    came = [(param, param.grad) for _, param in reversed(params)]
    for param, _ in came:
        param.grad = None
    for param, grad in came:
        param.grad = grad
        optimizer._backward.came(param)
        assert param.grad is None


@case
def a_file_that_fails_on_one_rank_in_a_backward_pass():
    """It goes through the pass with the others, who hear of it behind that."""
    values, grads = values_of()
    for way in ("both", "fsdp2"):
        folder = tempfile.mkdtemp()
        params = spread(WAYS[way], mesh(way), values)
        place = st.Place("disk", path=folder, window_bytes=1 << 16)
        optimizer = adamw(params, place=place, fused_backward=True)
        for step in range(2):
            saved = copy.deepcopy(optimizer.state_dict())
            if step and dist.get_rank() == 2:
                os.truncate(file_in(folder), 1 << 16)
            in_a_pass(optimizer, params, grads[step])
            if step == 0:
                optimizer.step()
        error = refusal_of(optimizer)
        assert error.torn or dist.get_rank() == 2, error
        assert "has become shorter" in str(error), error
        assert ("rank 2: " in str(error)) == (dist.get_rank() != 2), error
        try:
            optimizer.step()
        except errors.StatusError as refusal:
            assert "load a state to go on" in str(refusal), refusal
        else:
            raise AssertionError("it went on")
        optimizer.load_state_dict(saved)
        in_a_pass(optimizer, params, grads[0])
        optimizer.step()


@case
def a_file_that_one_rank_cannot_make_in_a_backward_pass():
    values, grads = values_of()
    folder = tempfile.mkdtemp()
    params = spread(WAYS["fsdp2"], mesh("fsdp2"), values)
    path = folder if dist.get_rank() != 1 else f"{folder}/none"
    optimizer = adamw(params, place=st.Place("disk", path=path), fused_backward=True)
    in_a_pass(optimizer, params, grads[0])
    error = refusal_of(optimizer)
    assert ("rank 1: " in str(error)) == (dist.get_rank() != 1), error


@case
def a_file_that_fails_on_one_rank_of_zero_in_a_backward_pass():
    values, grads = values_of()
    for kind in (adamw, lambda ps, **more: st.apex.FusedLAMB(ps, **more)):
        folder = tempfile.mkdtemp()
        params = plain(values)
        place = st.Place("disk", path=folder, window_bytes=1 << 16)
        zero = st.Zero(2, bucket_bytes=1 << 16)
        optimizer = kind(params, place=place, zero=zero, fused_backward=True)
        for step in range(2):
            if step and dist.get_rank() == 2:
                os.truncate(file_in(folder), 1 << 16)
            sum((param * grads[step][n]).sum() for n, param in params).backward()
            if step == 0:
                optimizer.step()
        error = refusal_of(optimizer)
        assert error.torn and "has become shorter" in str(error), error
        assert ("rank 2: " in str(error)) == (dist.get_rank() != 2), error
        try:
            optimizer.step()
        except errors.StatusError as refusal:
            assert "load a state to go on" in str(refusal), refusal
        else:
            raise AssertionError("it went on")


@case
def a_file_that_one_rank_cannot_make():
    """No rank steps; and all do where it can."""
    values, grads = values_of()
    alone, after = stepped(adamw, values, grads)
    folder = tempfile.mkdtemp()
    own = os.path.join(folder, "none") if dist.get_rank() == 1 else folder
    params = spread(WAYS["fsdp2"], mesh("fsdp2"), values)
    optimizer = adamw(params, place=st.Place("disk", path=own, window_bytes=1 << 16))
    give(params, grads[0])
    for _ in range(2):
        error = refusal_of(optimizer)
        assert "no file for states can be made in" in str(error), error
        assert ("rank 1: " in str(error)) == (dist.get_rank() != 1), error
        assert error.unstepped and not optimizer.state
        for name, param in params:
            same_bits(whole(param), values[name], f"{name}, refused")
    if dist.get_rank() == 1:
        os.mkdir(own)
    dist.barrier()
    optimizer.step()
    for name, param in params:
        same_bits(whole(param), after[0][name], f"{name}, made")


def file_in(folder):
    for own in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{own}"
        if os.path.islink(path) and os.readlink(path).startswith(folder):
            return int(own)
    raise AssertionError("there is no file")


def shared_folder():
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    return folder[0]


def muon(params, **more):
    return st.Muon(params, lr=0.05, **more)


def recovered(make, way, place, values):
    params = spread(WAYS[way], mesh(way), values)
    optimizer = make(params, place=place)
    return params, optimizer, optimizer.recover()


@case
def files_that_outlive_their_process():
    """Ranks that have come to different steps go on with the one that all have."""
    for way, make, shapes in (
        ("both", adamw, SHAPES),
        ("fsdp2", muon, {"up": (520, 192), "down": (192, 520)}),
        ("hsdp", lambda ps, **more: st.apex.FusedLAMB(
            ps, state_dtype="q8", reproducible=True, **more), SHAPES),
    ):  # fmt: skip
        values, grads = values_of(shapes, 4)
        alone, after = stepped(make, values, grads)
        own = st.Place("disk", path=shared_folder(), window_bytes=1 << 16, durable=True)
        path = f"{own.path}/{own.name}.{dist.get_rank()}-of-4"
        params, optimizer, step = recovered(make, way, own, values)
        assert step == 0
        for number in range(3):
            give(params, grads[number])
            if number == 2 and dist.get_rank() == 2:
                shutil.copy(path, path + ".before")
            optimizer.step()
        del params, optimizer
        if dist.get_rank() == 2:
            os.replace(path + ".before", path)
        dist.barrier()
        params, optimizer, step = recovered(make, way, own, values)
        assert step == 2, step
        for name, param in params:
            same_bits(whole(param), after[1][name], f"{way}, {name}, recovered")
        for number in (2, 3):
            give(params, grads[number])
            optimizer.step()
            for name, param in params:
                same_bits(whole(param), after[number][name], f"{way}, {name} after {number}")
        same_full(optimizer, alone, way)


@case
def files_of_what_zero_shares_out():
    values, grads = values_of()
    for stage in (1, 2):
        alone, after = stepped(adamw, values, grads)
        own = st.Place("disk", path=shared_folder(), window_bytes=1 << 16, durable=True)
        for steps in ((0,), (1, 2)):  # by other processes
            params = plain(values)
            optimizer = adamw(params, zero=st.Zero(stage, gradients="local"), place=own)
            assert optimizer.recover() == steps[0]
            for step in steps:
                sum((param * grads[step][name]).sum() for name, param in params).backward()
                optimizer.step()
                optimizer.zero_grad()
                for name, param in params:
                    same_bits(param, after[step][name], f"zero {stage}, {name} after {step}")
            if steps != (0,):
                same_full(optimizer, alone, f"zero {stage}")
            del params, optimizer


@case
def files_of_steps_that_are_too_far_apart():
    values, grads = values_of()
    own = st.Place("disk", path=shared_folder(), window_bytes=1 << 16, durable=True)
    path = f"{own.path}/{own.name}.{dist.get_rank()}-of-4"
    params, optimizer, step = recovered(adamw, "fsdp2", own, values)
    for number in range(3):
        give(params, grads[number])
        optimizer.step()
        if number == 0 and dist.get_rank() == 1:
            shutil.copy(path, path + ".before")
    del params, optimizer
    if dist.get_rank() == 1:
        os.replace(path + ".before", path)
    dist.barrier()
    for harm in (None, b"x"):
        if harm and dist.get_rank() == 3:
            with open(path, "r+b") as file:
                file.write(harm)
        dist.barrier()
        params = spread(WAYS["fsdp2"], mesh("fsdp2"), values)
        optimizer = adamw(params, place=own)
        give(params, grads[0])
        for ask in (optimizer.recover, optimizer.step):
            try:
                ask()
            except errors.StoreError as error:
                words = "has step 3, and that of another rank has 1"
                words = ".3-of-4' is no file of states" if harm else words
                if ask == optimizer.step:
                    words = "is no file" if harm and dist.get_rank() == 3 else "of an earlier"
                assert words in str(error), error
            else:
                raise AssertionError("it went on")
        for name, param in params:
            same_bits(whole(param), values[name], name)


if __name__ == "__main__":
    main()
