# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``zero`` with rules that need whole matrices: one rank steps each and has its states, beside
parameters that are cut. On four ranks against one process, to the bit."""

import io
import itertools
import tempfile
from pathlib import Path
from zlib import crc32

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from named_values import named_values
from on_ranks import case, main, same_bits
from samples import BREADTH

DEFINITION = Path(__file__).parent / "definitions" / "matrices.mlir"
MATRICES = {"up": (10, 6), "down": (6, 10), "query": (9, 9), "row": (1, 7), "gate": (1, 1)}
SHAPES = {**MATRICES, "norm": (7,), "bias": (33,), "conv": (3, 2, 2), "scale": ()}
STEPS = 3


def muon(named, **more):
    return st.Muon(named, lr=0.05, **more)


def mixed(named, **more):
    return st.Optimizer(named, DEFINITION, lr=0.05, **more)


def galore(named, kind=st.GaLoreAdamW, **more):
    """Groups with a rank and without."""
    low = [(n, p) for n, p in named if n in MATRICES]
    rest = [(n, p) for n, p in named if n not in MATRICES]
    groups = [{"params": rest}, {"params": low, "rank": 2, "update_proj_gap": 2}]
    return kind(groups, lr=0.05, **more)


def galore_adafactor(named, **more):
    return galore(named, st.GaLoreAdafactor, relative_step=False, beta1=0.9, **more)


def apollo(named, **more):
    return galore(named, st.APOLLOAdamW, **more)


def dion(named, **more):
    groups = [
        {"params": [(n, p) for n, p in named if (n in MATRICES) == own], "algorithm": algorithm}
        for own, algorithm in ((False, "adamw"), (True, "dion"))
    ]
    return st.Dion(groups, rank_fraction=0.3, lr=0.05, **more)


def soap(named, **more):
    return st.SOAP(named, lr=0.05, precondition_frequency=2, max_precond_dim=9, **more)


def jordan(named, **more):
    """Groups of both kinds."""
    groups = [
        {"params": [(n, p) for n, p in named if (n in MATRICES) == own], "use_muon": own}
        for own in (False, True)
    ]
    return st.muon.SingleDeviceMuonWithAuxAdam(groups, **more)


VIEWED = {
    "conv": ((3, 2, 2, 4), "o i h w -> o (i h w)"),
    "qkv": ((18, 7), "(3 n) m -> 3 n m"),
    "bias": ((33,), "n -> 1 n"),
    "gate": ((5, 4), None),
    "experts": ((3, 4, 6), None),
}


def viewed(named, **more):
    """By a rule of whole matrices and by one of elements."""
    groups = [{"params": [(n, p)], "use_muon": n != "bias", "view": VIEWED[n][1]} for n, p in named]
    return st.muon.SingleDeviceMuonWithAuxAdam(groups, **more)


def viewed_factors(named, **more):
    """By a rule of rows and columns, whose averages have the dims that it sees."""
    groups = [{"params": [(n, p)], "view": VIEWED[n][1]} for n, p in named]
    return st.hf.Adafactor(groups, lr=0.01, relative_step=False, scale_parameter=False, **more)


# Each stepped as several tensors: of several sizes, or where rules take one matrix.
BLOCKS = {
    "gate": ((5, 4), None),
    "experts": ((3, 4, 6), "e n m -> e n m"),
    "grouped": ((20, 7), "(3 n + n + n) m -> (3 n) m + n m + n m"),
    "qkv": ((18, 7), "(3 n) m -> 3 n m"),
}


def blocks(named, kind=st.SOAP, settings=None, **more):
    groups = [{"params": [(n, p)], "view": BLOCKS[n][1]} for n, p in named]
    return kind(groups, lr=0.05, **(settings or {"precondition_frequency": 2}), **more)


def blocks_of_elements(named, **more):
    """By rules of elements, whose parameters of one part are cut."""
    return blocks(named, st.AdamW, {"eps": 1e-6}, **more)


def blocks_of_a_file(named, **more):
    groups = [{"params": [(n, p)], "view": BLOCKS[n][1]} for n, p in named]
    return st.Optimizer(groups, DEFINITION, lr=0.05, **more)


def blocks_of_fractions(named, **more):
    return blocks(named, st.Dion, {"rank_fraction": 0.4}, **more)


def moonlight(named, **more):
    matrices = [(n, p) for n, p in named if n in MATRICES]
    others = [(n, p) for n, p in named if n not in MATRICES]
    return st.moonlight.Muon(muon_params=matrices, adamw_params=others, lr=0.05, **more)


def shampoo(named, **more):
    settings = {"precondition_frequency": 2, "grafting_type": "adam", "momentum": 0.5}
    return st.Shampoo(named, lr=0.05, max_preconditioner_dim=9, **settings, **more)


MAKES = {
    "muon": (muon, MATRICES),
    "mixed": (mixed, SHAPES),
    "soap": (soap, {**MATRICES, "bias": (33,), "scale": ()}),
    "shampoo": (shampoo, {**MATRICES, "bias": (33,), "scale": ()}),
    "galore": (galore, {name: SHAPES[name] for name in reversed(SHAPES)}),
}
# Their rules are not unlike these: one of the ways.
OTHERS = {
    "galore adafactor": (galore_adafactor, {name: SHAPES[name] for name in reversed(SHAPES)}),
    "dion": (dion, {name: SHAPES[name] for name in reversed(SHAPES)}),
    "apollo": (apollo, {name: SHAPES[name] for name in reversed(SHAPES)}),
    "jordan": (jordan, {name: SHAPES[name] for name in reversed(SHAPES)}),
    "moonlight": (moonlight, SHAPES),
    "viewed": (viewed, {name: shape for name, (shape, _) in VIEWED.items()}),
    "viewed factors": (viewed_factors, {name: shape for name, (shape, _) in VIEWED.items()}),
    "blocks": (blocks, {name: shape for name, (shape, _) in BLOCKS.items()}),
    "blocks of elements": (blocks_of_elements, {n: shape for n, (shape, _) in BLOCKS.items()}),
    "blocks of a file": (blocks_of_a_file, {n: shape for n, (shape, _) in BLOCKS.items()}),
    "blocks of fractions": (blocks_of_fractions, {n: shape for n, (shape, _) in BLOCKS.items()}),
}


def fresh(made, dtype):
    return [(name, torch.nn.Parameter(value.to(dtype))) for name, value in made.items()]


def mean(grads, name, dtype):
    return (sum(own[name].double() for own in grads) / len(grads)).to(dtype)


def alone(kind, steps=STEPS, dtype=torch.float32, absent=(), **more):
    """One process that has the mean of all gradients."""
    make, shapes = (MAKES | OTHERS)[kind]
    made, grads = named_values(shapes, dist.get_world_size(), steps)
    named = fresh(made, dtype)
    opt = make(named, **more)
    for of_step in grads:
        for name, param in named:
            param.grad = None if name in absent else mean(of_step, name, dtype)
        opt.step()
    return opt, named


def train(opt, named, grads, stage, mode, absent=(), fused=False):
    """The steps of one rank. ``fused``: within the backward pass."""
    rank = dist.get_rank()
    for of_step in grads:
        opt.zero_grad()
        own = {
            name: mean(of_step, name, p.dtype) if mode == "reduced" else of_step[rank][name]
            for name, p in named
            if name not in absent
        }
        if fused or stage == 2:
            sum((p * own[n].to(p.dtype)).sum() for n, p in named if n in own).backward()
        else:
            for name, param in named:
                param.grad = own[name].to(param.dtype) if name in own else None
        if fused and mode == "local":
            assert all(param.grad is None for _, param in named)
        opt.step()


def shared(
    kind, stage, mode, steps=STEPS, dtype=torch.float32, absent=(), zero=None, fused=False, **more
):
    make, shapes = (MAKES | OTHERS)[kind]
    made, grads = named_values(shapes, dist.get_world_size(), steps)
    named = fresh(made, dtype)
    opt = make(named, zero=st.Zero(stage, mode, **(zero or {})), fused_backward=fused, **more)
    train(opt, named, grads, stage, mode, absent, fused)
    return opt, named


def compare(kind, stage, mode, zero=None, fused=False, **more):
    expected, others = alone(kind, **more)
    opt, named = shared(kind, stage, mode, zero=zero, fused=fused, **more)
    for (name, param), (_, other) in zip(named, others, strict=True):
        same_bits(param, other, f"{kind} zero={stage} {mode}: {name}")
    full, whole = opt.full_state_dict()["state"], expected.state_dict()["state"]
    assert list(full) == list(whole), (list(full), list(whole))
    for number, states in whole.items():
        assert set(full[number]) == set(states), (number, set(full[number]), set(states))
        for name, state in states.items():
            if isinstance(state, torch.Tensor):
                same_bits(full[number][name], state, f"{kind}: state {name} of {number}")
    return opt, named


WAYS = [(1, "reduced"), (1, "local"), (2, "local")]


def some(name):
    """Of the kinds each, with another of the ways: which, follows from the case's name. With
    STEPC_BREADTH=1 each kind with each way."""
    if BREADTH:
        return list(itertools.product(MAKES, WAYS))
    first = crc32(name.encode())
    return [(kind, WAYS[(first + i) % len(WAYS)]) for i, kind in enumerate(MAKES)]


@case
def of_all_kinds_and_stages():
    for kind, (stage, mode) in some("of_all_kinds_and_stages"):
        compare(kind, stage, mode)
    for kind, (stage, mode) in zip(OTHERS, itertools.cycle(WAYS), strict=False):
        compare(kind, stage, mode)


@case
def within_the_backward_pass():
    """Also in small buckets, where a rank has nothing of some, with clipping, which needs all
    gradients, and without a gradient."""
    for kind, (stage, mode) in some("within_the_backward_pass"):
        compare(kind, stage, mode, fused=True)
        compare(kind, stage, mode, fused=True, zero={"bucket_bytes": 300})
        compare(kind, stage, mode, fused=True, absent={"up"})
        compare(kind, stage, mode, fused=True, dtype=torch.bfloat16, master="f32")
        compare(kind, stage, mode, fused=True, clip=st.ClipByNorm(0.5), reproducible=True)


@case
def views():
    """Within the backward pass, in flat memory, with what is behind 16 bits; a state that is
    loaded, and one of parts."""
    for kind, (stage, mode) in zip(("viewed", "viewed factors"), WAYS[1:], strict=True):
        compare(kind, stage, mode, fused=True, zero={"bucket_bytes": 300})
        compare(kind, stage, mode, zero={"flatten_parameters": True})
        compare(kind, stage, mode, dtype=torch.bfloat16, master="f32")
        goes_on(kind, stage, mode)
    opt, _ = shared("viewed", 1, "local")
    saved_in_parts(opt)
    assert "view 'o i h w -> o (i h w)'" in opt.describe_layouts(), opt.describe_layouts()


@case
def views_of_several_tensors():
    """All of a parameter's are one rank's. As with other views; and some without a gradient."""
    for kind, (stage, mode) in zip(("blocks", "blocks of elements"), WAYS[1:], strict=True):
        compare(kind, stage, mode, fused=True, zero={"bucket_bytes": 300})
        compare(kind, stage, mode, zero={"flatten_parameters": True})
        compare(kind, stage, mode, dtype=torch.bfloat16, master="f32")
        compare(kind, stage, mode, absent={"grouped"}, average=st.EMA(0.5))
        compare(kind, stage, mode, fused=True, clip=st.ClipByNorm(0.5), reproducible=True)
        goes_on(kind, stage, mode)
    opt, named = shared("blocks", 1, "local")
    saved_in_parts(opt)
    words = opt.describe_layouts()
    assert "of that over zero, as it is stepped as several tensors" in words, words
    assert set(owners_of(opt, named)) == set(BLOCKS), owners_of(opt, named)
    assert len(set(owners_of(opt, named).values())) > 2


@case
def own_states_load_with_another_view():
    """And with none, and from a state without: of ranges of elements, and of one rank's matrix."""
    texts = None, "(3 n) m -> 3 n m", "(2 n) m -> 2 n m"
    made, grads = named_values({"qkv": (18, 7)}, dist.get_world_size(), 2)

    def trained(kind, text, own_grads, state=None):
        named = fresh(made, torch.float32)
        groups = [{"params": named} | ({} if text is None else {"view": text})]
        opt = kind(groups, zero=st.Zero(1, "local"))
        if state is not None:
            opt.load_state_dict(state)
        train(opt, named, own_grads, 1, "local")
        return opt, named

    for kind in (st.AdamW, st.Muon):
        for before, after in itertools.permutations(texts, 2):
            first, _ = trained(kind, before, grads[:1])
            state, full = first.state_dict(), first.full_state_dict()["state"][0]
            again, _ = trained(kind, after, (), state)
            for name, value in again.full_state_dict()["state"][0].items():
                same_bits(value, full[name], f"{kind.__name__}: {name}, {before} and {after}")
            seen = before or after  # a saved view is the group's
            assert again.param_groups[0]["view"] == seen
            (_, [(_, param)]), (_, [(_, other)]) = (
                trained(kind, seen, grads[1:], own) for own in (state, first.full_state_dict())
            )
            same_bits(param, other, f"{kind.__name__}, stepped: {before} and {after}")


@case
def each_matrix_and_its_states_are_one_ranks():
    opt, named = shared("mixed", 1, "local")
    have = [None] * dist.get_world_size()
    own = [name for name, p in named if name in MATRICES and "gram" in opt.state[p]]
    dist.all_gather_object(have, own)
    assert sorted(itertools.chain.from_iterable(have)) == sorted(MATRICES), have
    assert len(max(have, key=len)) < len(MATRICES), have
    for name, param in named:
        for state, value in opt.state[param].items():
            if name in MATRICES and state != "step":
                rows = param.shape[0]
                expected = (rows, rows) if state == "gram" else tuple(param.shape)
                assert tuple(value.shape) == expected, (name, state, value.shape)
    words = opt.describe_layouts()
    assert "of that over zero, as its rule needs whole matrices" in words, words


@case
def small_buckets_and_flat_memory():
    for kind, (stage, mode) in some("small_buckets_and_flat_memory"):
        compare(kind, stage, mode, zero={"bucket_bytes": 300})
        compare(kind, stage, mode, zero={"flatten_parameters": True})
        compare(kind, stage, mode, zero={"overlap": False})


@case
def clipped_with_masters_and_averages():
    clip = {"clip": st.ClipByNorm(0.5), "reproducible": True}
    for kind, (stage, mode) in some("clipped_with_masters_and_averages"):
        compare(kind, stage, mode, **clip)
        compare(kind, stage, mode, average=st.EMA(0.5))
        compare(kind, stage, mode, dtype=torch.bfloat16, master="f32")


@case
def a_gradient_that_no_rank_has():
    for kind, (stage, mode) in some("a_gradient_that_no_rank_has"):
        compare(kind, stage, mode, absent={"up"})


@case
def it_goes_on_from_what_was_saved():
    """From a rank's own state, the whole, and a checkpoint of parts."""
    for kind, (stage, mode) in some("it_goes_on_from_what_was_saved"):
        goes_on(kind, stage, mode)


def goes_on(kind, stage, mode):
    _, others = alone(kind, 2 * STEPS)
    make, shapes = (MAKES | OTHERS)[kind]
    world = dist.get_world_size()
    made, grads = named_values(shapes, world, 2 * STEPS)
    before = fresh(made, torch.float32)
    first = make(before, zero=st.Zero(stage, mode))
    train(first, before, grads[:STEPS], stage, mode)
    full, own = first.full_state_dict(), io.BytesIO()
    torch.save(first.state_dict(), own)
    own.seek(0)
    kept = {"own": torch.load(own, weights_only=True), "full": full}
    for how, state in kept.items():
        named = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in before]
        opt = make(named, zero=st.Zero(stage, mode))
        opt.load_state_dict(state)
        train(opt, named, grads[STEPS:], stage, mode)
        for (name, param), (_, other) in zip(named, others, strict=True):
            same_bits(param, other, f"{kind} zero={stage} {mode} from {how}: {name}")


def by_name(packed):
    return {
        f"{number}.{name}": value
        for number, states in packed["state"].items()
        for name, value in states.items()
        if isinstance(value, torch.Tensor)
    }


def saved_in_parts(opt):
    """That a checkpoint of the ranks' parts has the whole states."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save(by_name(opt.state_dict()), checkpoint_id=folder[0])
    wholes = by_name(opt.full_state_dict())
    read = {name: torch.zeros_like(value) for name, value in wholes.items()}
    dcp.load(read, checkpoint_id=folder[0])
    for name, value in wholes.items():
        same_bits(read[name], value, name)


@case
def a_checkpoint_of_parts_loads():
    opt, _ = shared("mixed", 1, "local")
    saved_in_parts(opt)


def of_matrices(opt, named, states):
    """The names of matrices of which there are states other than counts."""
    numbers = {id(p): n for n, p in enumerate(p for g in opt.param_groups for p in g["params"])}
    own = {name: states.get(numbers[id(p)], {}) for name, p in named if name in MATRICES}
    return {name for name, items in own.items() if set(items) - {"step"}}


@case
def whole_states_that_are_loaded_stay_with_their_owner_alone():
    """Before the first step none is saved beside the owner's, and with it they are gone there."""
    for kind, (stage, mode) in some("whole_states_that_are_loaded_stay_with_their_owner_alone"):
        make, shapes = (MAKES | OTHERS)[kind]
        first, before = shared(kind, stage, mode)
        owned = of_matrices(first, before, first.state_dict()["state"])
        _, grads = named_values(shapes, dist.get_world_size(), STEPS)
        named = [(n, torch.nn.Parameter(p.detach().clone())) for n, p in before]
        opt = make(named, zero=st.Zero(stage, mode))
        opt.load_state_dict(first.full_state_dict())
        assert of_matrices(opt, named, opt.state_dict()["state"]) == owned, (kind, stage)
        saved_in_parts(opt)
        train(opt, named, grads, stage, mode)
        held = {name for name, p in named if name in MATRICES and set(opt.state[p]) - {"step"}}
        assert held == owned, (kind, stage, held, owned)
        saved_in_parts(opt)


DEAR = {"square": (16, 16), "wide": (8, 32), "large": (17, 16)}


def owners_of(opt, named):
    """By name the rank that has states of a parameter."""
    have = [None] * dist.get_world_size()
    dist.all_gather_object(have, [n for n, p in named if set(opt.state[p]) - {"step"}])
    return {name: rank for rank, names in enumerate(have) for name in names}


@case
def the_dearest_is_the_first_ranks():
    """Of as many elements, or fewer, the wide one has more FLOPs, for SOAP's basis of its columns.
    Parameters that are added, or frozen at first, go to who has least; owners stay when options
    change, of which the costs are."""
    ranks, steps = dist.get_world_size(), 4
    made, grads = named_values(DEAR | {"added": (4, 4), "frozen": (5, 5)}, ranks, steps)
    for stage, mode in WAYS:
        runs = []
        for zero in (None, st.Zero(stage, mode)):
            named = fresh(made, torch.float32)
            params = dict(named)
            params["frozen"].requires_grad_(False)
            first = [(n, p) for n, p in named if n != "added"]
            more = {} if zero is None else {"zero": zero}
            opt = st.SOAP(first, lr=0.05, precondition_frequency=2, max_precond_dim=64, **more)
            for number, of_step in enumerate(grads):
                if number == 2:
                    params["frozen"].requires_grad_(True)
                    opt.add_param_group({"params": [("added", params["added"])]})
                known = ("added", "frozen") if number < 2 else ()
                way = (1, "reduced") if zero is None else (stage, mode)
                train(opt, named, [of_step], *way, absent=known)
                if zero is not None and number == 0:
                    assert owners_of(opt, named) == {"wide": 0, "large": 1, "square": 2}
            runs.append((opt, named))
        (_, others), (opt, named) = runs
        for (name, param), (_, other) in zip(named, others, strict=True):
            same_bits(param, other, f"zero={stage} {mode}: {name}")
        owners = owners_of(opt, named)
        assert owners == {"wide": 0, "large": 1, "square": 2, "frozen": 3, "added": 3}, owners


@case
def a_matrix_without_elements():
    named = [
        ("none", torch.nn.Parameter(torch.zeros(0, 4))),
        ("some", torch.nn.Parameter(torch.ones(4, 4))),
    ]
    opt = mixed(named, zero=st.Zero(1, "reduced"))
    for _, param in named:
        param.grad = torch.ones_like(param)
    opt.step()
    assert not named[1][1].equal(torch.ones(4, 4))


if __name__ == "__main__":
    main()
