# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters on ranks whose small dims are merged and whose long ones are cut, against one process:
to the bit. test/frontend/test_cut_views.py has these beside parameters of their own."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from owners_cases import give, grid, line
from stepc import errors
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

# 2 x 2 blocks and a remainder; rows alone; a kernel; a vector; what stays one.
SHAPES = {"both": (10, 13), "rows": (13, 4), "conv": (6, 2, 3), "norm": (11,), "one": (4, 5)}
CUT = {"max_preconditioner_dim": 6, "target_parameter_dimensionality": 1}
KINDS = {
    "shampoo": (st.Shampoo, {"grafting_type": "adam", "momentum": 0.5, **CUT}),
    "soap": (
        st.SOAP,
        {"precondition_frequency": 2, "max_precond_dim": 12, "merge_dims": True, "block_size": 6},
    ),
    "muon": (lambda p, **more: st.Muon([{"params": p, "view": "blocks(6)"}], **more), {"lr": 0.1}),
}


def shapes_of(kind):
    return {n: s for n, s in SHAPES.items() if kind != "muon" or n in ("both", "rows", "one")}


def alike(kind, spread, give_to, steps=4, ranks=1, **more):
    """Parameters that ``spread`` puts on ranks beside those of one process. Returns what can go
    on."""
    make, settings = KINDS[kind]
    made, grads = named_values(shapes_of(kind), ranks, steps)
    plain = [(n, torch.nn.Parameter(v.clone())) for n, v in made.items()]
    params = [(n, torch.nn.Parameter(spread(n, v.clone()))) for n, v in made.items()]
    same = {key: more[key] for key in ("clip", "average") if key in more}
    alone, optimizer = make(plain, **settings, **same), make(params, **settings, **more)
    for number, of_step in enumerate(grads):
        for name, param in plain:
            param.grad = sum(own[name] for own in of_step) / ranks
        optimizer.zero_grad()
        give_to(params, of_step[dist.get_rank() % ranks])
        alone.step()
        optimizer.step()
        for (name, param), (_, other) in zip(params, plain, strict=True):
            own = spread(name, other.detach())
            own, param = (getattr(t, "_local_tensor", t) for t in (own, param))
            same_bits(param, own, f"{kind}, {name} after step {number}")
    full = optimizer.full_state_dict()["state"]
    for number, (name, param) in enumerate(plain):
        assert set(full[number]) == set(alone.state[param]), (kind, name)
        for key, state in alone.state[param].items():
            assert full[number][key].shape == state.shape, (kind, name, key)
            same_bits(full[number][key], state, f"{kind}, {key} of {name}")
    return optimizer, params, alone, plain, grads


def placed(mesh, *placements):
    """Each dim that there is."""

    def put(name, value):
        own = [p if getattr(p, "dim", 0) < value.dim() else Replicate() for p in placements]
        return distribute_tensor(value, mesh, own)

    return put


@case
def cut_by_rows_and_in_two_dims():
    for kind in KINDS:
        optimizer, *_ = alike(kind, placed(line(), Shard(0)), give)
        words = optimizer.describe_layouts()
        assert "it is stepped as several tensors by view '" in words, words
    for kind, own in (("shampoo", (Shard(0), Shard(1))), ("soap", (Replicate(), Shard(1)))):
        alike(kind, placed(grid(), *own), give, 3, clip=st.ClipByNorm(0.5), average=st.EMA(0.5))


@case
def whole_on_every_rank():
    for kind in KINDS:
        alike(kind, placed(grid(), Replicate(), Replicate()), give, 3)


def plainly(params, own):
    for name, param in params:
        param.grad = own[name].clone()


def backward(params, own):
    sum((param * own[name]).sum() for name, param in params).backward()


@case
def zero():
    """What is cut along columns goes to an owner by rows; the others as what is not cut."""
    for kind in KINDS:
        alike(kind, lambda name, value: value, plainly, 3, zero=st.Zero(1, "reduced"))
        ranks = dist.get_world_size()
        optimizer, params, _, _, grads = alike(
            kind, lambda name, value: value, plainly, 3, ranks, zero=st.Zero(1, "local")
        )
        alike(kind, lambda name, value: value, backward, 3, ranks, zero=st.Zero(2, "local"))
        make, settings = KINDS[kind]
        twins = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in params]
        again = make(twins, **settings, zero=st.Zero(1, "local"))
        again.load_state_dict(optimizer.state_dict())
        for number, own in enumerate((params, twins)):
            plainly(own, grads[0][dist.get_rank()])
            (optimizer, again)[number].step()
        for (name, param), (_, twin) in zip(params, twins, strict=True):
            same_bits(param, twin, f"{kind}, {name} loaded")


@case
def the_backward_pass_is_refused():
    """Of columns, by the view's name; blocks of rows are stepped within it."""
    more = {"zero": st.Zero(2), "fused_backward": True}
    made, ((grads,),) = named_values({"rows": (13, 4)}, 1, 1)
    for text in ("blocks(6)", "blocks(3)"):
        param = torch.nn.Parameter(made["rows"].clone())
        optimizer = st.AdamW([{"params": [param], "view": text}], **more)
        try:
            backward([("rows", param)], grads)
            optimizer.step()
        except errors.TensorError as error:
            assert text == "blocks(3)", error
            assert "by view 'blocks(3)' its blocks have strides, so that one rank" in str(error)
        else:
            assert text == "blocks(6)"


@case
def plain_parts():
    """By layouts: rows of which blocks are no multiple, and columns."""
    mesh = grid(("pp", "tp"))
    at = mesh.get_local_rank("tp")

    def part(name, value):
        if name in ("norm", "conv"):
            return value.clone()
        return value.chunk(2, int(name == "both"))[at].clone()

    def to(params, own):
        for name, param in params:
            param.grad = part(name, own[name])

    layouts = [
        ("norm|conv", st.Layout(mesh, ["distinct", Replicate()])),
        ("both", st.Layout(mesh, ["distinct", Shard(1)])),
        (".*", st.Layout(mesh, ["distinct", Shard(0)])),
    ]
    for kind in KINDS:
        alike(kind, part, to, 3, layouts=layouts)


@case
def loaded():
    """Into other placements, from a checkpoint of parts; and the whole into one process."""
    for kind in ("shampoo", "soap"):
        make, settings = KINDS[kind]
        optimizer, params, alone, plain, grads = alike(kind, placed(line(), Shard(0)), give, 3)
        full = optimizer.full_state_dict()
        kept = {"optim": get_optimizer_state_dict(torch.nn.ParameterDict(dict(params)), optimizer)}
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        dcp.save(kept, checkpoint_id=folder[0])
        cut = placed(grid(), Replicate(), Shard(1))
        again = [(n, torch.nn.Parameter(cut(n, whole(p).detach().clone()))) for n, p in params]
        single = [(n, torch.nn.Parameter(whole(p).detach().clone())) for n, p in params]
        other, one = make(again, **settings), make(single, **settings)
        model = torch.nn.ParameterDict(dict(again))
        read = {"optim": get_optimizer_state_dict(model, other)}
        dcp.load(read, checkpoint_id=folder[0])
        set_optimizer_state_dict(model, other, read["optim"])
        one.load_state_dict(full)
        (own,) = grads[0]
        give(again, own)
        for own_params in (plain, single):
            plainly(own_params, own)
        for each in (other, one, alone):
            each.step()
        for (name, p), (_, q), (_, r) in zip(again, single, plain, strict=True):
            same_bits(whole(p), r.detach(), f"{kind}, {name}, loaded on ranks")
            same_bits(q.detach(), r.detach(), f"{kind}, {name}, loaded in one process")


@case
def states_of_one_element_are_refused():
    param = torch.nn.Parameter(distribute_tensor(torch.ones(10, 13), line(), [Shard(0)]))
    optimizer = st.NAdam([{"params": [param], "view": "blocks(6)"}])
    param.grad = torch.ones_like(param)
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "its state 'mu_product' is of all of it" in str(error), error
    else:
        raise AssertionError("it was stepped")
    assert bool((whole(param) == 1).all())


if __name__ == "__main__":
    main()
