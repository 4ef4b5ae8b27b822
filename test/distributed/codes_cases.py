# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes have the same codes, whatever ranks have of the parameters: on
four ranks against one process, to the bit."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc.torch.step.codes_of_others import decoded_groups
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


def floats_of(saved):
    """A checkpoint of float32 of one with codes."""
    made = {"param_groups": saved["param_groups"], "state": {}}
    for number, own in saved["state"].items():
        of = made["state"][number] = dict(own)
        for key in [key for key in own if f"{key}.scale" in own]:
            of[key] = st.decode_state(of[key], of.pop(f"{key}.scale"))
    return made


def same_states(params, optimizer, plain, alone, what):
    """Codes and scales are DTensors, whose wholes one process has."""
    full, found = optimizer.full_state_dict()["state"], 0
    for number, ((name, param), (_, single)) in enumerate(zip(params, plain, strict=True)):
        own, theirs = optimizer.state[param], alone.state[single]
        assert set(own) == set(theirs), f"{what}, {name}: {set(own)} and {set(theirs)}"
        for key, state in own.items():
            assert isinstance(state, DTensor) == (key != "step"), f"{what}, {name}, {key}"
            same_bits(full[number][key], theirs[key], f"{what}, {key} of {name}")
            found += theirs[key].dtype in (torch.uint8, torch.int8)
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
            for name, param in plain:
                param.grad = grads[0][name].clone()
            give(parts, grads[0])
            alone.step()
            other.step()
            for (name, param), (_, single) in zip(parts, plain, strict=True):
                same_bits(whole(param), single, f"{way}, {kept}, {name}")
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
    saved = optimizer.full_state_dict()
    floats = floats_of(saved)
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
def a_checkpoint_of_either_kind_loads():
    """Codes in another layout, and floats, which become the codes that they would have."""
    params, optimizer, values, grads = compare("fsdp2", line(), adamw)
    saved = optimizer.full_state_dict()
    now = {n: whole(p).detach().clone() for n, p in params}
    floats = floats_of(saved)
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
            part = st.decode_state(own["exp_avg"], own["exp_avg.scale"])
            state = alone.state[param]
            of = st.decode_state(state["exp_avg"], state["exp_avg.scale"]).view(-1)
            assert torch.equal(part.plain(), of[_range(own["exp_avg"])])


def _range(part):
    begin, end = part.place.split("[")[1].split(")")[0].split(",")
    return slice(int(begin), int(end))


@case
def zero_over_rows_and_columns():
    """States of equal parts, of rows that TP has cut, are shared out by rows; and again when
    something is added."""
    values, grads = named_values({"up": (70, 256), "down": (64, 128)}, 1, 4)
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
def rows_of_several_dims_are_not_cut():
    values, grads = named_values({"conv": (64, 16, 4, 4)}, 1, 1)
    params = [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), line(), [Shard(1)])))
        for n, v in values.items()
    ]
    refused(adamw, params, grads[0][0], "several dims, of which the first is shared out")


@case
def an_owner_does_not_cut_blocks_either():
    values, grads = named_values({"up": (64, 80), "down": (80, 100)}, 1, 1)
    params = spread("columns", grid(), values)

    def muon(ps):
        return st.Muon(ps, lr=0.05, state_dtype="q8")

    refused(muon, params, grads[0][0], "cut inside of blocks of 64 elements")
    shapes = {"up": (64, 128), "down": (80, 256)}
    compare("columns", grid(), muon, shapes)
    compare("both", grid(), muon, shapes)


@case
def a_cut_inside_of_a_block_is_refused():
    values, grads = named_values({"up": (70, 100)}, 1, 1)
    refused(adamw, spread("columns", grid(), values), grads[0][0], "cuts a block")


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
