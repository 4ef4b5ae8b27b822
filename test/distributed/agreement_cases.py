# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks must have alike: each kind of difference is named on every rank, with the rank
and the first item, before anything has moved. And what they need not: who has a gradient."""

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits, whole
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL

ODD = 2  # the rank that differs
LAMB = ALL["FusedLamb"]
SHAPES = [(8, 4), (8,), (4, 8)]


def odd(there, here):
    return there if dist.get_rank() == ODD else here


def named(shapes=SHAPES, names=("w0", "w1", "w2"), dtype=torch.float32):
    return [(n, torch.ones(s, dtype=dtype)) for n, s in zip(names, shapes, strict=True)]


def spread(tensors, mesh, placements=None):
    """DTensors by dim 0, or as ``placements`` has it by name."""
    found = []
    for name, tensor in tensors:
        own = [(placements or {}).get(name, Shard(0))]
        # Ranks may have other tensors: nothing is sent.
        local = distribute_tensor(tensor, mesh, own, src_data_rank=None)
        found.append((name, torch.nn.Parameter(local)))
    return found


def here(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def plain(tensors):
    return [(name, torch.nn.Parameter(tensor)) for name, tensor in tensors]


def stepped(optimizer):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param) if param.requires_grad else None
    optimizer.step()


def grouped(make, params, *starts):
    """Groups that begin at these places."""
    ends = [*starts[1:], len(params)]
    return make([{"params": params[a:b]} for a, b in zip(starts, ends, strict=True)])


def frozen(params, index):
    params[index][1].requires_grad_(dist.get_rank() != ODD)
    return params


def with_lr(make, params, lr, group=0):
    optimizer = make(params)
    optimizer.param_groups[group]["lr"] = lr
    return optimizer


def stepped_before(make, params, steps):
    """A state in which a parameter has taken some steps."""
    optimizer = make(params)
    for _, param in params:
        local = {n: torch.zeros_like(param) for n in ("exp_avg", "exp_avg_sq")}
        optimizer.state[param] = {"step": torch.tensor(float(steps)), **local}
    return optimizer


def of_parts(mesh, layout, **more):
    """A plain part of a larger tensor, by ``layouts``."""
    return LAMB(plain([("w", torch.ones(4, 4))]), layouts=[("w", layout(mesh))], **more)


def clipped(*norm):
    return lambda params: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(*norm))


def scaled(scale):
    return lambda params: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(1.0), loss_scale=scale)


def zero(mesh, stage=1, gradients="local", make=ALL["AdamW"], tensors=None, **more):
    """Elementwise, so that the ranks have no rounds."""
    more = {"process_group": mesh.get_group(), "gradients": gradients, **more}
    return make(plain(tensors or named()), zero=stage, **more)


# A kind: the optimizer that a rank has, and what the others are told of the odd one, after
# "there". What the odd one is told is after "here".
KINDS = {
    "definition": (
        lambda m: odd(ALL["hf.Adafactor"], LAMB)(spread(named(), m)),
        "definition 'adafactor'",
    ),
    "option": (
        lambda m: st.deepspeed.FusedLamb(spread(named(), m), bias_correction=odd(False, True)),
        "bias_correction=false",
    ),
    "a fragment": (
        lambda m: odd(ALL["AdamW, clipped"], clipped(0.5))(spread(named(), m)),
        "definition 'adamw'",
    ),
    "another fragment": (
        lambda m: clipped(0.5, odd(float("inf"), 2.0))(spread(named(), m)),
        "definition 'adamw' with",
    ),
    "groups": (
        lambda m: grouped(LAMB, spread(named(), m), 0, *odd((1, 2), (1,))),
        "3 parameter groups",
    ),
    "the group of a parameter": (
        lambda m: grouped(LAMB, spread(named(), m), 0, odd(2, 1)),
        "parameter 'w1' of group 0",
    ),
    "fewer parameters": (lambda m: LAMB(spread(named(), m)[: odd(2, 3)]), "nothing"),
    "more parameters": (lambda m: LAMB(spread(named(), m)[: odd(3, 2)]), "parameter 'w2' of group"),
    "their order": (lambda m: LAMB(spread(named(), m)[:: odd(-1, 1)]), "parameter 'w2' of group 0"),
    "a name": (
        lambda m: LAMB(spread(named(names=("w0", odd("other", "w1"), "w2")), m)),
        "parameter 'other'",
    ),
    "a shape": (
        lambda m: LAMB(spread(named([(8, 4), (odd(12, 8),), (4, 8)]), m)),
        "of shape (12,)",
    ),
    "a dtype": (
        lambda m: LAMB(spread(named(dtype=odd(torch.bfloat16, torch.float32)), m)),
        "bfloat16",
    ),
    "the dim that is cut": (
        lambda m: LAMB(spread(named(), m, {"w2": Shard(odd(1, 0))})),
        "of S(1)",
    ),
    "cut or whole": (
        lambda m: LAMB(spread(named(), m, {"w1": odd(Replicate(), Shard(0))})),
        "of R over",
    ),
    "all whole": (
        lambda m: LAMB(
            spread(
                named(names=("x", "y", "z")),
                m,
                dict.fromkeys(("x", "y", "z"), odd(Replicate(), Shard(0))),
            )
        ),
        "of R over",
    ),
    "a frozen parameter": (lambda m: LAMB(frozen(spread(named(), m), 1)), "'w1' of group 0"),
    "a hyper-parameter": (lambda m: with_lr(LAMB, spread(named(), m), odd(2e-3, 1e-3)), "0.002"),
    "a hyper-parameter of a fragment": (
        lambda m: clipped(odd(0.25, 0.5))(spread(named(), m)),
        "0.25",
    ),
    "steps taken": (
        lambda m: stepped_before(LAMB, spread(named(), m), odd(7, 3)),
        "'w0' after 7 steps",
    ),
    "the dim of a plain part": (
        lambda m: of_parts(m, lambda mesh: st.Layout(mesh, [Shard(odd(1, 0))])),
        "layout S(1)",
    ),
    "a plain part's gradient": (
        lambda m: of_parts(
            m,
            lambda mesh: st.Layout(mesh, [Shard(0)], grad_divisor=odd(2.0, None)),
        ),
        "divided by 2.0",
    ),
    "zero's stage": (lambda m: zero(m, odd(2, 1)), "zero=2"),
    "zero's gradients": (
        lambda m: zero(m, gradients=odd("reduced", "local")),
        "gradients='reduced'",
    ),
    "bucket_bytes": (lambda m: zero(m, 2, bucket_bytes=odd(2000, 1000)), "bucket_bytes=2000"),
    "reduce_dtype": (
        lambda m: zero(m, reduce_dtype=odd(torch.bfloat16, None)),
        "reduce_dtype=torch.bfloat16",
    ),
    "master": (
        lambda m: zero(m, tensors=named(dtype=torch.bfloat16), master=odd("f32", "remainder")),
        "master='f32'",
    ),
    "state_dtype": (
        lambda m: zero(m, state_dtype=odd({"exp_avg": torch.bfloat16}, None)),
        "state_dtype={'exp_avg': torch.bfloat16}",
    ),
    "reproducible": (
        # Under names on which the ranks have not agreed before.
        lambda m: st.deepspeed.FusedLamb(
            spread(named(names=("r0", "r1", "r2")), m), reproducible=odd(True, False)
        ),
        "reproducible=True",
    ),
    "overlap": (lambda m: zero(m, overlap=odd(False, True)), "overlap=False"),
    "reduce_dtype of a plain part": (
        lambda m: of_parts(
            m,
            lambda mesh: st.Layout(mesh, [Replicate()], grad="partial"),
            reduce_dtype=odd(torch.bfloat16, None),
        ),
        "reduce_dtype=torch.bfloat16",
    ),
    "zero's parameters": (
        lambda m: zero(m, tensors=named([(8, 4), (odd(9, 8),), (4, 8)])),
        "of shape (9,)",
    ),
    "zero's definition": (
        lambda m: zero(m, make=odd(ALL["Lion"], ALL["AdamW"])),
        "definition 'lion'",
    ),
}


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
    head = f"rank {0 if rank == ODD else ODD} exchanges other things than rank {rank}: here "
    ours, _, theirs = text.partition(", there ")
    return head in ours and words in (ours.partition(head)[2] if rank == ODD else theirs)


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


@case
def a_rate_that_one_rank_changes_later_is_named():
    """In the step in which it does; and it stays so until a state is loaded."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    optimizer = LAMB(spread(named(), mesh))
    stepped(optimizer)
    optimizer.param_groups[0]["lr"] *= odd(2.0, 1.0)
    try:
        stepped(optimizer)
    except errors.CommunicationError as error:
        assert "hyper-parameters 0.0" in str(error), error
    else:
        raise AssertionError("it was not refused")
    try:
        stepped(optimizer)
    except errors.StatusError as error:
        assert error.status == "STEPC_POISONED", error
    else:
        raise AssertionError("it went on")
    state = optimizer.state_dict()
    state["param_groups"][0]["lr"] = 1e-3
    optimizer.load_state_dict(state)
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
