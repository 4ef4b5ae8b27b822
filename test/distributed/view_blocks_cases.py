# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters on ranks that a view has stepped as several tensors, against one process that has a
parameter for each: to the bit."""

import math
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from owners_cases import give, grid, line
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# By blocks, each a tensor to the plan: the sizes in which a parameter's rows are those.
BLOCKS = {
    "experts": ((3, 6, 4), "e n m -> e n m", [(6, 4)] * 3),
    "qkv": ((18, 7), "(3 n) m -> 3 n m", [(6, 7)] * 3),
    "grouped": ((20, 5), "(3 n + n + n) m -> (3 n) m + n m + n m", [(12, 5), (4, 5), (4, 5)]),
    "heads": ((18, 6), "(4 n + n + n) m -> 4 n m + n m + n m", [(3, 6)] * 6),
    "conv": ((6, 5, 2, 3), "o i h w -> o (i h w)", [(6, 30)]),
}
LOW = {"rank": 2, "update_proj_gap": 2}
BY_BLOCKS = {
    "soap": (st.SOAP, {"precondition_frequency": 2, "max_precond_dim": 9}),
    "shampoo": (st.Shampoo, {"grafting_type": "adam", "momentum": 0.5}),
    "dion": (st.Dion, {"rank_fraction": 0.4}),
    "galore": (lambda groups, **more: st.GaLoreAdamW([g | LOW for g in groups], **more), {}),
    "apollo": (lambda groups, **more: st.APOLLOAdamW([g | LOW for g in groups], **more), {}),
    "muon": (st.Muon, {"lr": 0.1}),
}


def pieces(tensor, shapes):
    """Those of a block each."""
    tensor = whole(tensor).detach().reshape(-1)
    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(shape) for part, shape in zip(tensor.split(sizes), shapes, strict=True)]


SAME = ("clip", "average", "master", "rounding", "seed")


def blocks_alike(kind, spread, give_to, steps=4, of=BLOCKS, dtype=torch.float32, **more):
    """Parameters on ranks, which ``spread`` makes of whole ones, beside one process that has a
    parameter for each block: to the bit, states too. Returns what can go on."""
    make, settings = BY_BLOCKS[kind]
    named = {n: own for n, own in of.items() if kind != "muon" or n in ("grouped", "heads")}
    made, grads = named_values({n: shape for n, (shape, *_) in named.items()}, 1, steps)
    made = {n: value.to(dtype) for n, value in made.items()}
    grads = [[{n: grad.to(dtype) for n, grad in own.items()} for own in step] for step in grads]
    plain = {n: [torch.nn.Parameter(b.clone()) for b in pieces(v, named[n][2])]
             for n, v in made.items()}  # fmt: skip
    params = [(n, torch.nn.Parameter(spread(n, v.clone()))) for n, v in made.items()]
    same = {name: value for name, value in more.items() if name in SAME}
    alone = make([{"params": own} for own in plain.values()], **settings, **same)
    groups = [{"params": [(n, p)], "view": named[n][1]} for n, p in params]
    optimizer = make(groups, **settings, **more)

    def step(own):
        for name, parts in plain.items():
            for part, grad in zip(parts, pieces(own[name], named[name][2]), strict=True):
                part.grad = grad.clone()
        give_to(params, own)
        alone.step()
        optimizer.step()

    for number, (of_step,) in enumerate(grads):
        step(of_step)
        for name, param in params:
            expected = torch.cat([b.detach().reshape(-1) for b in plain[name]])
            own = spread(name, expected.view(named[name][0]))
            same_bits(here(param), here(own), f"{kind}, {name} after step {number}")
    full = optimizer.full_state_dict()["state"]
    for number, (name, _) in enumerate(params):
        of_blocks = [alone.state[block] for block in plain[name]]
        assert set(full[number]) == set().union(*of_blocks), (kind, name)
        for key, state in full[number].items():
            own = [items[key].reshape(-1) for items in of_blocks if key in items]
            expected = own[0] if key == "step" else torch.cat(own)
            same_bits(state.reshape(-1), expected, f"{kind}, {key} of {name}")
    return optimizer, params, alone, plain, step, grads


def here(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def placed(mesh, *placements):
    return lambda name, value: distribute_tensor(value, mesh, list(placements))


@case
def cut_by_rows():
    """In any place, of experts and of the rows of a block."""
    for kind in BY_BLOCKS:
        optimizer, *_ = blocks_alike(kind, placed(line(), Shard(0)), give)
        words = optimizer.describe_layouts()
        assert "it is stepped as several tensors by view '(3 n + n + n)" in words, words


@case
def cut_in_two_dims_and_whole():
    mesh = grid()
    both, none = (Shard(0), Shard(1)), (Replicate(), Replicate())
    for kind, own in (("soap", both), ("apollo", both), ("dion", none), ("galore", none)):
        blocks_alike(kind, placed(mesh, *own), give, 3)


# Experts and heads of which each rank has as many; and what an owner has beside them.
SHARED = {
    "before": ((7, 4), "n m -> n m", [(7, 4)]),
    "many": ((8, 4, 6), "e n m -> e n m", [(4, 6)] * 8),
    "layers": ((4, 3, 5, 4), "l e n m -> l e n m", [(5, 4)] * 12),
    "heads": ((24, 5), "(8 n) m -> 8 n m", [(3, 5)] * 8),
    "rows": ((8, 2, 3, 4), "e i n m -> (e i) n m", [(3, 4)] * 16),
    "behind": ((5, 4), "n m -> n m", [(5, 4)]),
}


@case
def experts_and_heads_stay_where_they_are():
    """Each rank steps its own, with the random numbers that they have anywhere."""
    mesh = grid()
    for kind, spread, name, ranks in (
        ("apollo", placed(line(), Shard(0)), "projection", 4),
        ("soap", placed(mesh, Replicate(), Shard(0)), "Q_0", 2),
        ("dion", placed(mesh, Shard(0), Replicate()), "Q", 2),
        ("galore", placed(line(), Shard(0)), "projection", 4),
    ):
        more = {"clip": st.ClipByNorm(0.5)} if kind == "soap" else {}
        optimizer, params, *_ = blocks_alike(kind, spread, give, 3, SHARED, **more)
        words = optimizer.describe_layouts()
        assert "steps the whole" in words and "several tensors" not in words, words
        state = optimizer.state[dict(params)["many"]][name]
        assert state.shape[0] == 8 and state.to_local().shape[0] == 8 // ranks
        full = {"soap": "exp_avg", "dion": "momentum"}.get(kind)
        if full is not None:
            state, heads = optimizer.state[dict(params)["rows"]][full], dict(params)["rows"]
            assert state.shape == heads.shape and state.placements == heads.placements
    # In two dims of a mesh, or within a head: an owner has all.
    for spread, shape, text in (
        (placed(mesh, Shard(0), Shard(1)), (8, 4, 6), "e n m -> e n m"),
        (placed(line(), Shard(0)), (24, 6), "(6 n) m -> 6 n m"),
    ):
        shapes = [(4, 6)] * (math.prod(shape) // 24)
        optimizer, *_ = blocks_alike("apollo", spread, give, 2, {"w": (shape, text, shapes)})
        assert "several tensors" in optimizer.describe_layouts()


@case
def experts_go_on_in_other_placements():
    """Of experts and of heads that are rows, behind a step without a gradient."""
    for name in ("many", "heads"):
        mesh, (shape, text, shapes) = line(), SHARED[name]
        made, grads = named_values({"w": shape}, 1, 5)
        plain = [torch.nn.Parameter(b.clone()) for b in pieces(made["w"], shapes)]
        param = torch.nn.Parameter(distribute_tensor(made["w"].clone(), mesh, [Shard(0)]))
        optimizer = st.Dion([{"params": [("w", param)], "view": text}], rank=2)
        alone = st.Dion(plain, rank=2)
        for step, (own,) in enumerate(grads):
            for block, of_block in zip(plain, pieces(own["w"], shapes), strict=True):
                block.grad = None if step == 1 else of_block.clone()
            if step in (3, 4):
                saved, to = optimizer.full_state_dict(), Shard(4 - step)
                value = whole(param).detach().clone()
                param = torch.nn.Parameter(distribute_tensor(value, mesh, [to]))
                optimizer = st.Dion([{"params": [("w", param)], "view": text}], rank=2)
                optimizer.load_state_dict(saved)
            param.grad = distribute_tensor(own["w"].clone(), mesh, param.placements)
            if step == 1:
                param.grad = None
            alone.step()
            optimizer.step()
            expected = torch.cat([block.detach().reshape(-1) for block in plain])
            same_bits(whole(param).reshape(-1), expected, f"{name}, after step {step}")
        assert float(optimizer.state[param]["step"]) == 4
        assert optimizer.state[param]["Q"].to_local().shape[0] == 2


@case
def experts_within_the_backward_pass():
    made, _ = named_values({"w": SHARED["many"][0]}, 1, 1)
    params = [torch.nn.Parameter(distribute_tensor(made["w"].clone(), line(), [Shard(0)]))
              for _ in range(2)]  # fmt: skip
    for param, fused in zip(params, (True, False), strict=True):
        group = {"params": [param], "view": SHARED["many"][1]}
        optimizer = st.SOAP([group], fused_backward=fused)
        for _ in range(3):
            optimizer.zero_grad()
            param.square().sum().backward()
            optimizer.step()
    same_bits(whole(params[0]), whole(params[1]), "in the backward pass")
    assert not torch.equal(whole(params[0]), made["w"])


@case
def with_norms_and_averages():
    more = {"clip": st.ClipByNorm(0.5), "average": st.EMA(0.5)}
    blocks_alike("dion", placed(line(), Shard(0)), give, 3, **more)
    blocks_alike("soap", placed(line(), Shard(0)), give, 3, SHARED, **more)


@case
def sixteen_bits():
    for more in ({"master": "f32"}, {"rounding": "stochastic", "seed": 3}):
        for of in (BLOCKS, SHARED):
            blocks_alike("galore", placed(line(), Shard(0)), give, 3, of, torch.bfloat16, **more)


@case
def loaded():
    """Into other placements, from a checkpoint of parts and the whole; and into one process."""
    for kind, of in (("galore", BLOCKS), ("shampoo", SHARED)):
        optimizer, params, _, plain, step, grads = blocks_alike(
            kind, placed(line(), Shard(0)), give, 3, of
        )
        make, settings = BY_BLOCKS[kind]
        full = optimizer.full_state_dict()
        model = torch.nn.ParameterDict(dict(params))
        kept = {"optim": get_optimizer_state_dict(model, optimizer)}
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        dcp.save(kept, checkpoint_id=folder[0])
        now = {n: whole(p).detach().clone() for n, p in params}
        cut = placed(grid(), Replicate(), Shard(1))
        again = [(n, torch.nn.Parameter(cut(n, v.clone()))) for n, v in now.items()]
        single = [(n, torch.nn.Parameter(v.clone())) for n, v in now.items()]
        other, alone = (
            make([{"params": [(n, p)], "view": of[n][1]} for n, p in own], **settings)
            for own in (again, single)
        )
        model = torch.nn.ParameterDict(dict(again))
        read = {"optim": get_optimizer_state_dict(model, other)}
        dcp.load(read, checkpoint_id=folder[0])
        set_optimizer_state_dict(model, other, read["optim"])
        alone.load_state_dict(full)
        (own,) = grads[0]
        step(own)
        give(again, own)
        for name, param in single:
            param.grad = own[name].clone()
        other.step()
        alone.step()
        for (name, p), (_, q) in zip(again, single, strict=True):
            expected = torch.cat([b.detach().reshape(-1) for b in plain[name]])
            for got in (whole(p), q):
                same_bits(got.reshape(-1), expected, f"{kind}, {name}, loaded")


@case
def plain_parts():
    """By layouts: rows of which blocks are no multiple, columns, whole ones of two stages."""
    mesh = grid(("pp", "tp"))
    at = mesh.get_local_rank("tp")

    def part(name, value):
        if name in ("heads", "conv"):
            return value.clone()
        rows = -(-value.shape[0] // 2) + (name == "qkv")
        return (value.split([rows, value.shape[0] - rows])[at] if name != "grouped"
                else value.chunk(2, 1)[at]).clone()  # fmt: skip

    def to(params, own):
        for name, param in params:
            param.grad = part(name, own[name])

    layouts = [
        ("heads|conv", st.Layout(mesh, ["distinct", Replicate()])),
        ("grouped", st.Layout(mesh, ["distinct", Shard(1)])),
        (".*", st.Layout(mesh, ["distinct", Shard(0)])),
    ]
    for kind in ("soap", "galore"):
        optimizer, params, *_ = blocks_alike(kind, part, to, 3, layouts=layouts)
        saved = optimizer.state_dict()
        make, settings = BY_BLOCKS[kind]
        groups = [{"params": [(n, p)], "view": BLOCKS[n][1]} for n, p in params]
        again = make(groups, layouts=layouts, **settings)
        again.load_state_dict(saved)
        twins = {n: p.detach().clone() for n, p in params}
        made, ((own,),) = named_values({n: shape for n, (shape, *_) in BLOCKS.items()}, 1, 1)
        after = []
        for each in (optimizer, again):
            for name, param in params:
                param.data.copy_(twins[name])
            to(params, own)
            each.step()
            after.append({n: p.detach().clone() for n, p in params})
        for name in made:
            same_bits(after[0][name], after[1][name], f"{kind}, {name} loaded")


@case
def zero_of_parts():
    """Over ranks that have the same part of what tensor parallelism has cut."""
    mesh = grid(("dp", "tp"))
    at = mesh.get_local_rank("tp")

    def part(name, value):
        return value.clone() if name == "conv" else value.chunk(2, int(name == "qkv"))[at].clone()

    def to(params, own):
        for name, param in params:
            param.grad = part(name, own[name])

    layouts = [
        ("conv", st.Layout(mesh["tp"], [Replicate()])),
        ("qkv", st.Layout(mesh["tp"], [Shard(1)])),
        (".*", st.Layout(mesh["tp"], [Shard(0)])),
    ]
    group = {"process_group": mesh["dp"].get_group(), "gradients": "reduced"}
    for kind in ("shampoo", "muon"):
        blocks_alike(kind, part, to, 3, layouts=layouts, zero=1, **group)
    blocks_alike("dion", placed(mesh["tp"], Shard(0)), give, 3, SHARED, zero=1, **group)


@case
def a_missing_gradient():
    """Missing on one rank it counts as zero there; on all, nothing is stepped."""
    mesh, shape = line(), (20, 5)
    made, grads = named_values({"w": shape}, 1, 3)
    plain = [torch.nn.Parameter(b.clone()) for b in pieces(made["w"], BLOCKS["grouped"][2])]
    param = torch.nn.Parameter(distribute_tensor(made["w"].clone(), mesh, [Shard(0)]))
    optimizer = st.Dion([{"params": [("w", param)], "view": BLOCKS["grouped"][1]}], rank=2)
    alone = st.Dion(plain, rank=2)
    for step, (own,) in enumerate(grads):
        grad = own["w"].clone()
        if step == 0:
            grad[5:10] = 0  # rank 1's
        for block, of_block in zip(plain, pieces(grad, BLOCKS["grouped"][2]), strict=True):
            block.grad = None if step == 1 else of_block.clone()
        param.grad = distribute_tensor(own["w"].clone(), mesh, [Shard(0)])
        if step == 1 or (step == 0 and dist.get_rank() == 1):
            param.grad = None
        alone.step()
        optimizer.step()
        expected = torch.cat([block.detach() for block in plain])
        same_bits(whole(param), expected, f"after step {step}")
    assert float(optimizer.state[param]["step"]) == 2


if __name__ == "__main__":
    main()
