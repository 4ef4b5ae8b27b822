# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks must have alike: each kind of difference is named on every rank, with the rank
and the first item, before anything has moved. And what they need not: who has a gradient."""

import stepc.torch as st
import torch
import torch.distributed as dist
from agreement_kinds import KINDS, LAMB, ODD, here, named, odd, plain, spread, stepped
from on_ranks import case, main, same_bits, whole
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL


def check(kind):
    """What is wrong: it is to be refused on all ranks, and those that are alike are to be
    told of the odd one."""
    make, words = KINDS[kind]
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    optimizer = make(mesh)
    before = [here(p).detach().clone() for g in optimizer.param_groups for p in g["params"]]
    try:
        stepped(optimizer)
    except errors.CommunicationError as error:
        text = str(error)
    else:
        text = "it was not refused"
    said: list = [None] * 4
    dist.all_gather_object(said, text)
    # A rank that exchanges nothing waits for nobody.
    spoken = [r for r in range(4) if r != ODD or kind != "all whole"]
    wrong = [f"{kind}, rank {r}: {said[r]}" for r in spoken if not names(r, said[r], words)]
    params = [p for g in optimizer.param_groups for p in g["params"]]
    for param, then in zip(params, before, strict=True) if kind != "all whole" else ():
        same_bits(here(param), then, kind)
    return wrong


def names(rank, text, words):
    """One of those that are alike, or all of them, to the odd one."""
    heads = [f"rank {ODD} exchanges"]
    if rank == ODD:
        heads = ["rank 0 exchanges", "ranks 0, 1, 3 exchange"]
    ours, _, theirs = text.partition(", there ")
    for head in heads:
        _, found, said = ours.partition(f"{head} other things than rank {rank}: here ")
        if found:
            return words in (said if rank == ODD else theirs)
    return False


@case
def every_kind_is_named():
    assert len(KINDS) >= 20
    wrong = [words for kind in KINDS if kind != "all whole" for words in check(kind)]
    assert not wrong, "\n".join(wrong)


@case
def ranks_that_are_alike_go_on_after_one_was_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    for make in (odd(ALL["hf.Adafactor"], LAMB), LAMB):
        optimizer = make(spread(named(names=("a", "b", "c")), mesh))
        try:
            stepped(optimizer)
        except errors.CommunicationError:
            assert make is not LAMB or dist.get_rank() != ODD
    stepped(optimizer)


# --- Gradients that some ranks have ----------------------------------------------


def missing(name, absent, steps=4):
    """``absent`` has triples of step, parameter and the ranks without a gradient, whose
    part of it then counts as zero."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    shapes = [(9, 6), (10,), (6, 7), (3, 4, 5)]
    made = [torch.randn(s) for s in shapes]
    whole_params = [torch.nn.Parameter(v.clone()) for v in made]
    params = [torch.nn.Parameter(distribute_tensor(v.clone(), mesh, [Shard(0)])) for v in made]
    reference, optimizer = ALL[name](whole_params), ALL[name](params)
    for k in range(steps):
        for i, shape in enumerate(shapes):
            without = next((set(r) for s, p, r in absent if (s, p) == (k, i)), set())
            local = distribute_tensor(torch.randn(shape), mesh, [Shard(0)])
            if dist.get_rank() in without:
                local.to_local().zero_()
            all_without = len(without) == 4
            whole_params[i].grad = None if all_without else whole(local)
            params[i].grad = None if dist.get_rank() in without else local
        reference.step()
        optimizer.step()
        for i, (a, b) in enumerate(zip(whole_params, params, strict=True)):
            same_bits(whole(b), a, f"{name}, step {k}, parameter {i}")
            assert bool(optimizer.state[b]) == bool(reference.state[a]), (name, k, i)
            for key, state in reference.state[a].items():
                same_bits(whole(optimizer.state[b][key]), state, f"{name}, step {k}, {key} of {i}")


@case
def a_gradient_that_some_ranks_have_is_zero_on_the_others():
    """And one that no rank has leaves parameter, state and count alone."""
    absent = [
        (0, 1, (2,)),
        (1, 0, (0, 1, 3)),
        (1, 3, (0, 1, 2, 3)),
        (2, 2, (3,)),
        (2, 0, (0, 1, 2, 3)),
        (3, 1, (0, 2)),
    ]
    for name in ("FusedLamb", "hf.Adafactor", "CAME", "AdamW, clipped", "LARS"):
        missing(name, absent)


def replicated(mesh, kind, tensors):
    """Tensors that all ranks have whole, beside one that is cut."""
    params, layouts = plain(tensors), None
    if kind == "DTensor":
        params = spread(tensors, mesh, {"w1": Replicate()})
    elif kind == "layouts":
        layouts = [("w1", st.Layout(mesh, [Replicate()])), (".*", st.Layout(mesh, [Shard(0)]))]
        params = plain([(n, t if n == "w1" else t.chunk(4)[dist.get_rank()]) for n, t in tensors])
    else:
        params = [*spread(tensors[:1], mesh), *plain(tensors[1:2]), *spread(tensors[2:], mesh)]
    return params, {} if layouts is None else {"layouts": layouts}


@case
def a_whole_gradient_that_some_ranks_have_is_stepped_by_all():
    """Ranks have whole tensors alike, and so they stay: with LAMB, whose collectives are of
    single tensors, where they are of a mesh; where the step has one of all tensors, all."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    kinds = [("FusedLamb", "DTensor"), ("FusedLamb", "layouts")]
    kinds += [("AdamW, clipped", kind) for kind in ("DTensor", "layouts", "plain")]
    for name, kind in kinds:
        params, layouts = replicated(mesh, kind, [(n, t * 2) for n, t in named()])
        optimizer, param = ALL[name](params, **layouts), params[1][1]
        for k, without in enumerate(((), (1,), (0, 1, 2, 3), (0, 2))):
            before = here(param).detach().clone()
            for n, p in params:
                absent = n == "w1" and dist.get_rank() in without
                p.grad = None if absent else torch.ones_like(p)
            optimizer.step()
            words = f"{name}, {kind}, without ranks {without}"
            assert (param.grad is None) == (dist.get_rank() in without), words
            assert torch.equal(here(param), before) == (len(without) == 4), words
            steps = optimizer.state[param]["step"]
            assert float(steps) == k + 1 - (k > 1), (words, steps)
            found = [torch.empty_like(before) for _ in range(4)]
            dist.all_gather(found, here(param).detach())
            for rank, theirs in enumerate(found):
                same_bits(here(param), theirs, f"{words}, of rank {rank}")


@case
def the_users_gradient_stays_missing():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    params = spread(named(), mesh)
    optimizer = LAMB(params)
    for name, param in params:
        param.grad = None if name == "w1" and dist.get_rank() == 1 else torch.ones_like(param)
    optimizer.step()
    assert (params[1][1].grad is None) == (dist.get_rank() == 1)


@case
def a_partial_gradient_that_some_ranks_have():
    """Summed over those that have one."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    layouts = [("w", st.Layout(mesh, [Replicate()], grad="partial"))]
    for have in ((0, 2), (3,), ()):
        (_, param), other = plain([("w", torch.ones(6))])[0], torch.nn.Parameter(torch.ones(6))
        optimizer, reference = st.AdamW([("w", param)], layouts=layouts), st.AdamW([other])
        param.grad = torch.full((6,), 0.5) if dist.get_rank() in have else None
        other.grad = torch.full((6,), 0.5 * len(have)) if have else None
        optimizer.step()
        reference.step()
        same_bits(param, other, f"of ranks {have}")


@case
def zero_that_was_told_of_equal_gradients_refuses_one_that_is_missing():
    params = plain(named())
    optimizer = LAMB(params, zero=1, gradients="reduced")
    stepped(optimizer)
    if dist.get_rank() == 2:
        params[1][1].grad = None
    try:
        optimizer.step()
    except errors.CommunicationError as error:
        assert "parameter 'w1' has a gradient on some ranks and none on others" in str(error), error
    else:
        raise AssertionError("it was not refused")


@case
def a_rank_that_exchanges_nothing_is_named():
    """The last: it has noted what it never compares."""
    wrong = check("all whole")
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main()
