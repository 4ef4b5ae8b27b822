# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Codes of 4 bits, of which an element has eight: as many elements as ranks have blocks of, and
another shape than the state's. Four ranks against one process."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from codes_on_ranks import (
    SHAPES,
    WIDE,
    compare,
    floats_of,
    give,
    grid,
    line,
    same_full,
    same_states,
    spread,
    stepped,
    zeroed,
)
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from torch.distributed.tensor import DTensor


def made(params, state_dtype="q4", **more):
    return st.AdamW(params, lr=0.05, state_dtype=state_dtype, **more)


@case
def rows_and_columns():
    compare("fsdp2", line(), made)
    compare("both", grid(), made, WIDE)
    mixed = {"exp_avg": "q8", "exp_avg_sq": "q4"}
    compare("columns", grid(), lambda ps: made(ps, mixed), WIDE)


@case
def owners():
    shapes = {"up": (64, 80), "down": (80, 64)}
    compare("fsdp2", line(), lambda ps: st.Muon(ps, lr=0.05, state_dtype="q4"), shapes)


@case
def every_way_that_a_checkpoint_goes():
    """Codes of 4 bits, of 8, and floats, each loaded where another is kept: as one process does."""
    for way, mesh, shapes in (("fsdp2", line(), SHAPES), ("columns", grid(), WIDE)):
        for first, kept in (("q4", "q8"), ("q8", "q4"), ("q4", None), (None, "q4"), ("q4", "q4")):
            values, grads = named_values(shapes, 1, 2)
            grads = [own[0] for own in grads]
            params = spread(way, mesh, values)
            optimizer = made(params, first)
            give(params, grads[0])
            optimizer.step()
            saved = optimizer.full_state_dict()
            now = {n: whole(p).detach().clone() for n, p in params}
            plain = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
            alone = made(plain, kept)
            alone.load_state_dict(saved)
            for name, param in plain:
                param.grad = grads[1][name].clone()
            alone.step()
            for state in (saved, optimizer.state_dict()):
                others = spread(way, mesh, now)
                other = made(others, kept)
                other.load_state_dict(state)
                give(others, grads[1])
                other.step()
                what = f"{way}, {first} where {kept} is kept"
                for (name, param), (_, single) in zip(others, plain, strict=True):
                    same_bits(whole(param), single, f"{what}, {name}")
                same_states(others, other, plain, alone, what)


@case
def ranges_of_elements():
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(made, values, grads)
    params, optimizer = zeroed(made, values, grads, after, "four bits")
    same_full(optimizer, plain, alone, "four bits")
    saved = optimizer.full_state_dict()
    for state in (saved, floats_of(saved, values)):
        again = made([(n, torch.nn.Parameter(p.detach().clone())) for n, p in plain],
                     zero=st.Zero(1, gradients="reduced"))  # fmt: skip
        again.load_state_dict(state)
        for (_, param), (name, _) in zip(
            [(None, p) for g in again.param_groups for p in g["params"]], plain, strict=True
        ):
            param.grad = grads[0][name].clone()
        again.step()
        last, one, _ = stepped(made, values, [*grads, grads[0]])
        same_full(again, last, one, "loaded")
    for number, (_, param) in enumerate(plain):
        own, state = optimizer.state_dict()["state"][number], alone.state[param]
        if "exp_avg.scale" in own:
            part = st.decode_state(own["exp_avg"], own["exp_avg.scale"], param.shape)
            of = st.decode_state(state["exp_avg"], state["exp_avg.scale"], param.shape)
            begin, end = part.place.split("[")[1].split(")")[0].split(",")
            assert torch.equal(part.plain(), of.view(-1)[int(begin) : int(end)])
            boxes = [
                of[tuple(slice(a, a + s) for a, s in zip(at, size, strict=True))].reshape(-1)
                for at, size in part.boxes
            ]
            assert not boxes or torch.equal(part.plain(), torch.cat(boxes))


@case
def parts_as_floats():
    """Of DTensors, rows of several dims too."""
    for way, mesh, shapes in (("fsdp2", line(), SHAPES), ("both", grid(), WIDE)):
        params, optimizer, values, _ = compare(way, mesh, made, shapes)
        full = optimizer.full_state_dict()["state"]
        for number, (_, param) in enumerate(params):
            own = optimizer.state[param]
            if "exp_avg.scale" not in own:
                continue
            found = st.decode_state(own["exp_avg"], own["exp_avg.scale"], param.shape)
            assert isinstance(found, DTensor) and found.shape == param.shape
            of = full[number]
            wanted = st.decode_state(of["exp_avg"], of["exp_avg.scale"], param.shape)
            same_bits(whole(found), wanted, f"{way}, {number}")


@case
def a_distributed_checkpoint():
    values, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    plain, alone, after = stepped(made, values, grads)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    params, optimizer = zeroed(made, values, grads[:2], after, "before")
    dcp.save({"optim": optimizer.state_dict()["state"]}, checkpoint_id=folder[0])
    others = spread("fsdp2", line(), {n: p.detach() for n, p in params})
    again = made(others)
    give(others, grads[0])
    again.step()  # so that there are states to load into
    values = spread("fsdp2", line(), {n: p.detach() for n, p in params})
    with torch.no_grad():
        for (_, param), (_, own) in zip(others, values, strict=True):
            param.copy_(own)
    packed = again.state_dict()
    dcp.load({"optim": packed["state"]}, checkpoint_id=folder[0])
    again.load_state_dict(packed)
    give(others, grads[2])
    again.step()
    for name, param in others:
        same_bits(whole(param), after[2][name], f"loaded, {name}")
    same_full(again, plain, alone, "loaded")


if __name__ == "__main__":
    main()
