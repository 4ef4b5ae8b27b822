# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters of groups with a ``view`` on ranks, against one process whose parameters are reshaped
by hand: to the bit. Cases are in owners_cases.py and owners_few_cases.py."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import same_bits, whole
from stepc import errors
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

VIEWED = {
    "conv": ((6, 5, 2, 3), "o i h w -> o (i h w)", (6, 30)),
    "qkv": ((18, 7), "(3 n) m -> 3 n m", (3, 6, 7)),
    "experts": ((5, 6, 4), None, (5, 6, 4)),
    "norm": ((10,), "n -> 1 n", (1, 10)),
}

KINDS = ("jordan", "soap", "adamw", "adafactor")


def give(params, own):
    for name, param in params:
        param.grad = distribute_tensor(own[name].clone(), param.device_mesh, param.placements)


def of_views(named, kind, views, **more):
    """An optimizer of each kind with a group for each parameter."""
    groups = [{"params": [(n, p)]} | ({"view": VIEWED[n][1]} if views else {}) for n, p in named]
    if kind == "jordan":
        groups = [g | {"use_muon": g["params"][0][0] != "norm"} for g in groups]
        return st.muon.SingleDeviceMuonWithAuxAdam(groups, **more)
    if kind == "soap":
        matrices = [g for g in groups if g["params"][0][0] in ("conv", "norm")]
        return st.SOAP(matrices, lr=0.05, **more)
    if kind == "adamw":
        return st.AdamW(groups, lr=0.05, **more)
    return st.hf.Adafactor(groups, lr=0.05, relative_step=False, scale_parameter=False, **more)


def seen_alike(kind, placed, steps=3, own=VIEWED, **more):
    """Parameters with a view, placed on ranks, and of one process, reshaped by hand without."""
    made, grads = named_values({n: shape for n, (shape, *_) in own.items()}, 1, steps)
    plain = [(n, torch.nn.Parameter(v.reshape(own[n][2]))) for n, v in made.items()]
    params = [(n, torch.nn.Parameter(distribute_tensor(v.clone(), *placed(n, v.shape))))
              for n, v in made.items()]  # fmt: skip
    alone = of_views(plain, kind, False, **more)
    optimizer = of_views(params, kind, True, **more)
    for step, (of_step,) in enumerate(grads):
        for name, param in plain:
            param.grad = of_step[name].reshape(own[name][2]).clone()
        give(params, of_step)
        alone.step()
        optimizer.step()
        for (name, param), (_, expected) in zip(params, plain, strict=True):
            seen = whole(param).reshape(own[name][2])
            same_bits(seen, expected, f"{kind}, {name} after step {step}")
    for (name, param), (_, expected) in zip(params, plain, strict=True):
        assert set(optimizer.state[param]) == set(alone.state[expected]), (kind, name)
        for key, state in alone.state[expected].items():
            held = whole(optimizer.state[param][key])
            shape = param.shape if state.shape == expected.shape else state.shape
            assert held.shape == (shape if key != "step" else ()), (kind, name, key, held.shape)
            same_bits(held.reshape(state.shape), state, f"{kind}, {key} of {name}")
    return optimizer, params, alone, plain, grads


def of_what_is_cut(line, grid):
    """In any dim, also one that the view merges or cuts, unevenly, and of what is replicated."""
    grids = [Replicate(), Shard(0)], [Replicate(), Replicate()], [Shard(0), Shard(1)]
    for kind in KINDS:
        optimizer = seen_alike(kind, lambda n, s: (line, [Shard(0)]), 2)[0]
        if kind == "jordan":
            words = "its rule has the whole in view '(3 n) m -> 3 n m', and it is cut; rank"
            assert words in optimizer.describe_layouts(), optimizer.describe_layouts()
        for dims in grids if kind in ("jordan", "adafactor") else grids[2:]:
            seen_alike(kind, lambda n, s, d=dims: (grid, d if len(s) > 1 else d[:1] * 2), 2)


def with_averages_and_norms(line):
    """Beside a view: what a step has of all tensors, and states of its own."""
    placed = line, [Shard(0)]
    more = {"average": st.EMA(0.5)}, {"clip": st.ClipByNorm(0.5), "reproducible": True}
    for kind, own in zip(("jordan", "adafactor"), more, strict=True):
        seen_alike(kind, lambda n, s: placed, **own)


def load(line, grid):
    """Into other placements, from a checkpoint of parts and the whole; and into one process."""
    placed = line, [Shard(0)]
    for kind in ("jordan", "adafactor"):
        optimizer, params, alone, plain, grads = seen_alike(kind, lambda n, s: placed)
        full = optimizer.full_state_dict()
        model = torch.nn.ParameterDict(dict(params))
        kept = {"optim": get_optimizer_state_dict(model, optimizer)}
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        dcp.save(kept, checkpoint_id=folder[0])
        again = [
            (n, torch.nn.Parameter(distribute_tensor(whole(p).detach().clone(), grid,
                                                     [Replicate(), Shard(0)])))
            for n, p in params
        ]  # fmt: skip
        other = of_views(again, kind, True)
        model = torch.nn.ParameterDict(dict(again))
        read = {"optim": get_optimizer_state_dict(model, other)}
        dcp.load(read, checkpoint_id=folder[0])
        set_optimizer_state_dict(model, other, read["optim"])
        assert [g["view"] for g in other.param_groups] == [v for _, v, _ in VIEWED.values()]
        one = [(n, torch.nn.Parameter(whole(p).detach().clone())) for n, p in params]
        single = of_views(one, kind, True)
        single.load_state_dict(full)
        (own,) = grads[0]
        for name, param in plain:
            param.grad = own[name].reshape(VIEWED[name][2]).clone()
        give(again, own)
        for name, param in one:
            param.grad = own[name].clone()
        for each in (alone, other, single):
            each.step()
        for (name, expected), (_, p), (_, q) in zip(plain, again, one, strict=True):
            for got in (whole(p), q):
                same_bits(got.reshape(expected.shape), expected, f"{kind}, {name}, loaded")


def _part(name, whole, at):
    """Of rows of which the view's three blocks are no multiple, and of columns; none is
    contiguous."""
    if name == "norm":
        return whole.clone()
    cut = whole.split([10, 8]) if name == "qkv" else whole.chunk(2, 1)
    return cut[at].mT.contiguous().mT


def _refuse_a_whole_that_does_not_fit(mesh):
    """Of which only the first step knows, on all ranks."""
    param = torch.nn.Parameter(torch.ones(5, 4))
    layouts = [("w", st.Layout(mesh, ["distinct", Shard(0)]))]
    optimizer = st.AdamW([{"params": [("w", param)], "view": "(3 n) m -> 3 n m"}], layouts=layouts)
    param.grad = torch.ones_like(param)
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "'w': view '(3 n) m -> 3 n m' does not fit the shape (10, 4)" in str(error), error
    else:
        raise AssertionError("a view was taken that does not fit")


def plain_parts(mesh):
    """By layouts: cut, whole and of pipeline stages."""
    at = mesh.get_local_rank("tp")
    made, grads = named_values({n: shape for n, (shape, *_) in VIEWED.items()}, 1, 3)
    for kind in ("jordan", "adafactor"):
        plain = [(n, torch.nn.Parameter(v.reshape(VIEWED[n][2]))) for n, v in made.items()]
        params = [(n, torch.nn.Parameter(_part(n, v, at))) for n, v in made.items()]
        layouts = [
            ("norm", st.Layout(mesh, ["distinct", Replicate()])),
            ("qkv", st.Layout(mesh, ["distinct", Shard(0)])),
            (".*", st.Layout(mesh, ["distinct", Shard(1)])),
        ]
        alone = of_views(plain, kind, False)
        optimizer = of_views(params, kind, True, layouts=layouts)
        for (own,) in grads:
            for name, param in plain:
                param.grad = own[name].reshape(VIEWED[name][2]).clone()
            for name, param in params:
                param.grad = _part(name, own[name], at)
            alone.step()
            optimizer.step()
        for (name, param), (_, expected) in zip(params, plain, strict=True):
            wanted = expected.detach().reshape(VIEWED[name][0])
            same_bits(param, _part(name, wanted, at), f"{kind}, {name}")
        saved = optimizer.state_dict()
        again = of_views(params, kind, True, layouts=layouts)
        again.load_state_dict(saved)
        # Before a step, in which ranks say how large theirs are.
        parts = again.state_dict()["state"]
        assert [set(own) for own in parts.values()] == [set(o) for o in saved["state"].values()]
    _refuse_a_whole_that_does_not_fit(mesh)


def a_state_that_lies_as_no_parameter(line):
    """Columns of ``[n, 1, m]`` have the parameter's shape and are whole on every rank: they load
    where no view was, which the saved group has."""
    shape, text = (6, 5), "n m -> n 1 m"
    made, grads = named_values({"w": shape}, 1, 2)

    def stepped(text, own, state=None):
        named = [("w", torch.nn.Parameter(distribute_tensor(made["w"].clone(), line, [Shard(0)])))]
        groups = [{"params": named} | ({} if text is None else {"view": text})]
        optimizer = st.hf.Adafactor(groups, lr=0.05, relative_step=False, scale_parameter=False)
        if state is not None:
            optimizer.load_state_dict(state)
        give(named, own)
        optimizer.step()
        return optimizer, named[0][1]

    (first,), (second,) = grads
    before, param = stepped(text, first)
    columns = before.state[param]["exp_avg_sq_col"]
    assert columns.shape == shape and columns.placements == (Replicate(),), columns
    saved = before.state_dict()
    (_, one), (_, other) = (stepped(own, second, saved) for own in (text, None))
    same_bits(whole(one), whole(other), "a parameter whose state was loaded")


def parts_of_any_memory(line):
    """A rank's part goes to an owner by its indices, so it need not be contiguous."""
    made, ((grads,),) = named_values({"w": (8, 6)}, 1, 1)
    text = "(2 n) m -> 2 n m"
    for kind in (st.AdamW, st.muon.SingleDeviceMuon):
        own = distribute_tensor(made["w"].clone(), line, [Shard(0)])
        local = own.to_local().mT.contiguous().mT
        assert not local.is_contiguous()
        cut = DTensor.from_local(local, line, [Shard(0)])
        param, plain = torch.nn.Parameter(cut), torch.nn.Parameter(made["w"].clone())
        optimizer, alone = (kind([{"params": [p], "view": text}]) for p in (param, plain))
        give([("w", param)], grads)
        plain.grad = grads["w"].clone()
        optimizer.step()
        alone.step()
        same_bits(whole(param), plain, f"{kind.__name__} of a part that is not contiguous")


def another_view_on_one_rank(line):
    """Is refused, by name."""
    param = torch.nn.Parameter(distribute_tensor(torch.ones(12, 6), line, [Shard(0)]))
    count = 2 if dist.get_rank() == 1 else 3
    optimizer = st.AdamW([{"params": [param], "view": f"({count} n) m -> {count} n m"}],
                         clip=st.ClipByNorm(1.0))  # fmt: skip
    param.grad = param.detach().clone()
    try:
        optimizer.step()
    except errors.DisagreementError as error:
        assert "n) m -> " in str(error) and " of group 0" in str(error), error
    else:
        raise AssertionError("another view on one rank was taken")
