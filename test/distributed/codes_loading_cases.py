# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes that are saved and loaded, as codes of another format or as floats: on four ranks against
one process."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from codes_on_ranks import (
    SHAPES,
    WIDE,
    adamw,
    compare,
    floats_of,
    give,
    grid,
    line,
    same_full,
    same_states,
    spread,
    step_alike,
    stepped,
    zeroed,
)
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc.torch.step.codes_of_others import decoded_groups
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


@case
def another_format():
    """And checkpoints of one, which load where another is kept as in one process."""
    mixed = {"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"}

    def made(params, state_dtype=mixed, **more):
        return st.AdamW(params, lr=0.05, state_dtype=state_dtype, **more)

    for way, mesh in (("fsdp2", line()), ("columns", grid())):
        shapes = SHAPES if way == "fsdp2" else WIDE
        params, optimizer, values, grads = compare(way, mesh, made, shapes)
        saved = optimizer.full_state_dict()
        now = {n: whole(p).detach().clone() for n, p in params}
        for kept in ("q8", "f8_e4m3", None):
            plain = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
            alone = made(plain, kept)
            alone.load_state_dict(saved)
            parts = spread(way, mesh, now)
            other = made(parts, kept)
            other.load_state_dict(optimizer.state_dict() if kept is None else saved)
            step_alike(parts, other, plain, alone, grads[0], f"{way}, {kept}")
            same_states(parts, other, plain, alone, f"{way}, {kept}")


@case
def another_format_of_ranges_and_owners():
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]

    def made(params, **more):
        return st.AdamW(params, lr=0.05, state_dtype="f8_e4m3", **more)

    plain, alone, after = stepped(made, values, grads)
    _, optimizer = zeroed(made, values, grads, after, "float8")
    same_full(optimizer, plain, alone, "float8")
    saved, now = optimizer.full_state_dict(), {n: p.detach().clone() for n, p in plain}
    single = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
    shared = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
    one, many = adamw(single), adamw(shared, zero=st.Zero(1, gradients="reduced"))
    for pairs, own in ((single, one), (shared, many)):
        own.load_state_dict(saved)
        for name, param in pairs:
            param.grad = grads[0][name].clone()
        own.step()
    for (name, param), (_, other) in zip(shared, single, strict=True):
        same_bits(param, other, f"{name} of codes of another format")
    same_full(many, single, one, "another format")
    shapes = {"up": (64, 80), "down": (80, 64)}
    compare("fsdp2", line(), lambda ps: st.Muon(ps, lr=0.05, state_dtype="f8_e4m3"), shapes)


@case
def a_distributed_checkpoint():
    """Of ranges of elements, and of rows."""
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    params, optimizer = zeroed(adamw, values, grads[:2], after, "before")
    dcp.save({"optim": optimizer.state_dict()["state"]}, checkpoint_id=folder[0])
    others = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in params]
    again = adamw(others, zero=st.Zero(1, gradients="reduced"))
    for name, param in others:
        param.grad = grads[0][name].clone()
    again.step()  # so that there are states to load into
    for (_, param), (_, own) in zip(others, params, strict=True):
        param.data.copy_(own)
    packed = again.state_dict()
    dcp.load({"optim": packed["state"]}, checkpoint_id=folder[0])
    again.load_state_dict(packed)
    for name, param in others:
        param.grad = grads[2][name].clone()
    again.step()
    for name, param in others:
        same_bits(param, after[2][name], f"loaded, {name}")
    same_full(again, plain, alone, "loaded")


@case
def a_checkpoint_of_either_kind_loads():
    """Codes in another layout, and floats, which become the codes that they would have."""
    params, optimizer, values, grads = compare("fsdp2", line(), adamw)
    saved = optimizer.full_state_dict()
    now = {n: whole(p).detach().clone() for n, p in params}
    floats = floats_of(saved, values)
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
def floats_where_codes_were():
    """Codes of any layout become floats of any."""
    shapes = {"up": (70, 256), "norm": (64, 128), "small": (9, 9)}
    values, grads = named_values(shapes, 1, 3)
    grads = [own[0] for own in grads]
    for wide, kept in (
        (lambda ps, **more: st.AdamW(ps, lr=0.05, **more), "q8"),
        (lambda ps, **more: st.Muon(ps, lr=0.05, **more), "q8"),
    ):
        coded = lambda ps, wide=wide, kept=kept: wide(ps, state_dtype=kept)  # noqa: E731
        plain, alone, _ = stepped(coded, values, grads[:2])
        now = {n: p.detach().clone() for n, p in plain}
        single = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
        expected = wide(single)
        expected.load_state_dict(alone.state_dict())
        for name, param in single:
            param.grad = grads[2][name].clone()
        expected.step()
        for way, mesh in (("fsdp2", line()), ("columns", grid()), ("both", grid())):
            params = spread(way, mesh, values)
            optimizer = coded(params)
            for own in grads[:2]:
                give(params, own)
                optimizer.step()
            saved = [optimizer.state_dict(), optimizer.full_state_dict()]
            for state in saved:
                others = spread(way, mesh, now)
                floats = wide(others)
                floats.load_state_dict(state)
                give(others, grads[2])
                floats.step()
                for (name, param), (_, other) in zip(others, single, strict=True):
                    same_bits(whole(param), other, f"{way}, {name}")
                    names = floats.state[param]
                    assert not any(str(n).endswith(".scale") for n in names), names


@case
def floats_where_zero_had_codes():
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(adamw, values, grads[:2])
    _, optimizer = zeroed(adamw, values, grads[:2], after, "codes")
    single = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in plain]
    expected = st.AdamW(single, lr=0.05)
    expected.load_state_dict(alone.state_dict())
    others = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in plain]
    floats = st.AdamW(others, lr=0.05, zero=st.Zero(1, gradients="reduced"))
    # A rank's own parts are of other ranges, as floats are cut anywhere: the whole is taken.
    floats.load_state_dict(optimizer.full_state_dict())
    for pairs, one in ((single, expected), (others, floats)):
        for name, param in pairs:
            param.grad = grads[2][name].clone()
        one.step()
    for (name, param), (_, other) in zip(others, single, strict=True):
        same_bits(param, other, name)
    same_full(floats, single, expected, "floats")
    for number, (_, param) in enumerate(plain):
        own = optimizer.state_dict()["state"][number]
        if "exp_avg.scale" in own:
            part = st.decode_state(own["exp_avg"], own["exp_avg.scale"], param.shape)
            state = alone.state[param]
            of = st.decode_state(state["exp_avg"], state["exp_avg.scale"], param.shape).view(-1)
            assert torch.equal(part.plain(), of[_range(own["exp_avg"])])


@case
def floats_of_dtensors_where_zero_shares_rows():
    """torch.optim's, of columns that end inside of blocks: ranks put them together to encode."""
    mesh = grid(("zero", "tp"))
    how = st.Zero(1, gradients="reduced", process_group=mesh["zero"].get_group())
    for shape in ((70, 352), (70, 333)):
        values, grads = named_values({"up": shape}, 1, 2)
        placed = lambda v: distribute_tensor(v.clone(), mesh["tp"], [Shard(1)])  # noqa: E731
        parts, again = ([torch.nn.Parameter(placed(values["up"]))] for _ in range(2))
        plain, alone_again = ([torch.nn.Parameter(values["up"].clone())] for _ in range(2))
        for params, others, put, more in (
            (parts, again, placed, {"zero": how}),
            (plain, alone_again, torch.clone, {}),
        ):
            floats = torch.optim.AdamW(params, lr=0.05)
            params[0].grad = put(grads[0][0]["up"])
            floats.step()
            made = adamw([("up", others[0])], **more)
            groups = made.state_dict()["param_groups"]
            made.load_state_dict({"state": floats.state_dict()["state"], "param_groups": groups})
            others[0].grad = put(grads[1][0]["up"])
            made.step()
            full = made.full_state_dict()["state"][0]
            if more:
                shared = full
        same_bits(whole(again[0]), alone_again[0], f"{shape}")
        assert full["exp_avg"].dtype is torch.uint8 and set(full) == set(shared)
        for key, state in full.items():
            same_bits(shared[key], state, f"{key} of {shape}")


@case
def codes_of_a_smaller_least_size():
    """They become floats in every layout, as in one process: of the whole and of own parts."""
    for format, shape, ways in (
        ("q8", (64, 100), ("rows", "columns", "range", "parts", "rows of columns", "owner")),
        ("q4", (64, 100), ("rows", "range", "owner")),
        ("q8", (64, 4, 5, 5), ("range",)),
    ):
        for way in ways:
            values, grads = named_values({"a": shape}, 1, 2)
            grads = [own[0]["a"] for own in grads]
            put, more = _where(way, shape)

            def stepped_once(value, grad, least, more=None, saved=None, way=way, format=format):
                params = [("a", torch.nn.Parameter(value.clone()))]
                kind = st.Muon if way == "owner" else st.AdamW
                codes = st.Codes(format, min_size=least)
                made = kind(params, lr=0.05, state_dtype=codes, **(more or {}))
                if saved is not None:
                    made.load_state_dict(saved)
                params[0][1].grad = grad
                made.step()
                return params[0][1], made

            first, alone = stepped_once(values["a"], grads[0], 4096)
            one, _ = stepped_once(first.detach(), grads[1], 65536, None, alone.state_dict())
            part, ours = stepped_once(put(values["a"]), put(grads[0]), 4096, more)
            state = ours.full_state_dict()["state"][0]
            assert sum(str(key).endswith(".scale") for key in state) == len(state) // 2
            for saved in (ours.full_state_dict(), ours.state_dict()):
                many, made = stepped_once(part.detach(), put(grads[1]), 65536, more, saved)
                names = set(made.state[many])
                assert not any(str(n).endswith(".scale") for n in names), f"{way}, {names}"
                wanted = put(one.detach())
                same_bits(whole(many), whole(wanted), f"{format}, {way}")
                full = made.full_state_dict()["state"][0]
                assert all(v.dtype is torch.float32 for v in full.values()), f"{format}, {way}"


def _where(way, shape):
    """What puts a tensor where it lies by the way, and arguments of an optimizer."""
    mesh, both = line(), grid(("zero", "tp"))
    own = {"rows": [Shard(0)], "owner": [Shard(0)], "columns": [Shard(1)]}
    if way in own:
        return (lambda v: distribute_tensor(v.clone(), mesh, own[way])), {}
    if way == "range":
        return torch.clone, {"zero": st.Zero(1, gradients="reduced")}
    if way == "rows of columns":
        how = st.Zero(1, gradients="reduced", process_group=both["zero"].get_group())
        return (lambda v: distribute_tensor(v.clone(), both["tp"], [Shard(1)])), {"zero": how}
    ends = [0, 5, 70, 71, shape[1]]
    at = slice(*ends[dist.get_rank() : dist.get_rank() + 2])
    return (lambda v: v[:, at].clone()), {"layouts": [(".*", st.Layout(mesh, [Shard(1)]))]}


def _range(part):
    begin, end = part.place.split("[")[1].split(")")[0].split(",")
    return slice(int(begin), int(end))


@case
def codes_of_flashoptim():
    """It keeps those of a rank's part, whose groups begin where that does, and shows DTensors."""
    mesh, shape = line(), (64, 33)
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(-127, 128, shape, generator=generator).to(torch.int8)
    squares = torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
    own = slice(16 * dist.get_rank(), 16 * (dist.get_rank() + 1))
    scales = torch.rand(17, generator=generator).half() + dist.get_rank()
    parts = {"exp_avg": codes[own], "exp_avg_sq": squares[own]}
    saved = {"step": torch.tensor(2.0)}
    for name, part in parts.items():
        for key, value in (("quantized", part), ("scales", scales)):
            saved[f"{name}::{key}"] = DTensor.from_local(value.clone(), mesh, [Shard(0)])
    params = spread("fsdp2", mesh, {"a": torch.ones(shape)})
    optimizer = st.AdamW(params, lr=0.05)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {0: saved}, "param_groups": groups})
    for name, part in parts.items():
        state = optimizer.state[params[0][1]][name]
        assert isinstance(state, DTensor) and state.shape == shape
        same_bits(state.to_local(), decoded_groups(part, scales), name)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    named = {"state": {"a": saved}, "param_groups": [{**groups[0], "params": ["a"]}]}
    dcp.save({"optim": named}, checkpoint_id=folder[0])
    other = st.AdamW(spread("fsdp2", mesh, {"a": torch.ones(shape)}), lr=0.05)
    st.checkpoint.load(other, folder[0])
    (loaded,) = other.state.values()
    for name in parts:
        same_bits(whole(loaded[name]), whole(optimizer.state[params[0][1]][name]), name)
    give(params, {"a": torch.ones(shape)})
    optimizer.step()


if __name__ == "__main__":
    main()
