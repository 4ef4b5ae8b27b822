# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain parameters that are parts of larger tensors, by ``layouts``, on four ranks."""

import math
import re
from pathlib import Path

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL

SHAPES = {"up": (10, 6), "down": (6, 10), "bias": (10,), "norm": (6,)}


def values(seed=0, steps=3):
    generator = torch.Generator().manual_seed(seed)
    made = {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}
    grads = [
        {n: torch.randint(-8, 9, s, generator=generator) / 16.0 for n, s in SHAPES.items()}
        for _ in range(steps)
    ]
    return made, grads


def named(tensors):
    return [(name, torch.nn.Parameter(tensor.clone())) for name, tensor in tensors.items()]


def reference(make, made, grads):
    params = named(made)
    optimizer = make(params)
    for own in grads:
        for name, param in params:
            param.grad = own[name].clone()
        optimizer.step()
    return dict(params), optimizer


def megatron(mesh):
    """up by rows and down by columns, as Megatron-LM cuts a feed-forward layer; the
    norm's gradient is still to be summed, as with sequence parallelism."""
    return [
        ("up|bias", st.Layout(mesh, [Shard(0)])),
        ("down", st.Layout(mesh, [Shard(1)])),
        ("norm", st.Layout(mesh, [Replicate()], grad="partial", grad_divisor=2.0)),
    ]


def parts(made, rank, world):
    cut = {"up": 0, "bias": 0, "down": 1}
    return {
        name: tensor if name not in cut else tensor.chunk(world, cut[name])[rank].clone()
        for name, tensor in made.items()
    }


@case
def tensor_parallel_as_megatron_cuts_it():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    rank = dist.get_rank()
    for name in ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "AdamW, clipped"):
        made, grads = values()
        whole, _ = reference(ALL[name], made, grads)
        params = named(parts(made, rank, 4))
        optimizer = ALL[name](params, layouts=megatron(mesh))
        for own in grads:
            for key, param in params:
                param.grad = parts(own, rank, 4)[key].clone()
                if key == "norm":
                    param.grad /= 2  # four ranks, divided by two: exact
            given = [param.grad.clone() for _, param in params]
            optimizer.step()
            for (key, param), then in zip(params, given, strict=True):
                same_bits(param.grad, then, f"the gradient of {key}")
        expected = parts({k: p.detach() for k, p in whole.items()}, rank, 4)
        for key, param in params:
            same_bits(param, expected[key], f"{name}, {key}")


@case
def random_bits_are_those_of_the_whole():
    """Stochastic rounding of rows and of columns, in both spaces and in states too."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    rank = dist.get_rank()
    for kind in (st.AdamW, st.came.CAME):

        def make(params, kind=kind, **keywords):
            keywords |= {"state_dtype": torch.bfloat16, "seed": 7}
            return kind(params, lr=1e-2, rounding="stochastic", **keywords)

        made, grads = values()
        made = {name: tensor.bfloat16() for name, tensor in made.items()}
        grads = [{name: tensor.bfloat16() for name, tensor in own.items()} for own in grads]
        whole, _ = reference(make, made, grads)
        params = named(parts(made, rank, 4))
        cut = [*megatron(mesh)[:2], ("norm", st.Layout(mesh, [Replicate()]))]
        optimizer = make(params, layouts=cut)
        for own in grads:
            for key, param in params:
                param.grad = parts(own, rank, 4)[key].clone()
            optimizer.step()
        expected = parts({k: p.detach() for k, p in whole.items()}, rank, 4)
        for key, param in params:
            same_bits(param, expected[key], f"{kind.__name__}, {key}")


@case
def random_bits_of_a_tensor_at_two_places_are_refused():
    """They are of its place among the parameters, which stages may not have alike."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    params = [("own", torch.nn.Parameter(torch.zeros(3).bfloat16()))]
    own = ("own", st.Layout(mesh, ["distinct"]))
    st.SGD(params, lr=0.1, rounding="stochastic", layouts=[own])
    for tied in (st.Layout(mesh, [Replicate()]), None):
        try:
            st.SGD(params, lr=0.1, rounding="stochastic", layouts=[("tied", tied), own])
        except ValueError as error:
            assert "layouts has 'tied' for tensors that ranks share" in str(error), error
        else:
            raise AssertionError("it was not refused")


@case
def pipeline_stages_and_tensor_parallel():
    """Two stages of two ranks: each has other tensors, clipping sees all of them once."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    stage, at = mesh.get_local_rank("pp"), mesh.get_local_rank("tp")
    for name in ("AdamW, clipped", "AdamW, inf norm", "FusedLamb"):
        stages = [values(seed) for seed in range(2)]
        joined = {f"{s}.{k}": v for s, (made, _) in enumerate(stages) for k, v in made.items()}
        steps = [
            {f"{s}.{k}": v for s, (_, grads) in enumerate(stages) for k, v in grads[t].items()}
            for t in range(3)
        ]
        whole, alone = reference(ALL[name], joined, steps)
        made, grads = stages[stage]
        params = named(parts(made, at, 2))
        layouts = [
            ("up|bias", st.Layout(mesh, ["distinct", Shard(0)])),
            ("down", st.Layout(mesh, ["distinct", Shard(1)])),
            (".*", st.Layout(mesh, ["distinct", Replicate()])),
        ]
        optimizer = ALL[name](params, layouts=layouts)
        for own in grads:
            for key, param in params:
                param.grad = parts(own, at, 2)[key].clone()
            optimizer.step()
        if optimizer.clip:
            ours, theirs = optimizer.last_step.grad_norm, alone.last_step.grad_norm
            assert math.isclose(ours, theirs, rel_tol=2**-48), (ours, theirs)
        mine = {k: whole[f"{stage}.{k}"].detach() for k in made}
        for key, param in params:
            same_bits(param, parts(mine, at, 2)[key], f"{name}, {key} of stage {stage}")


@case
def an_embedding_that_two_stages_share_counts_once():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    rank = dist.get_rank()
    tied = torch.randn(5, 4)
    own = [torch.randn(3, 2) for _ in range(4)]
    grads = [torch.randn(5, 4), *(torch.randn(3, 2) for _ in range(4))]
    whole = [torch.nn.Parameter(t.clone()) for t in (tied, *own)]
    alone = st.SGD(whole, lr=0.1, clip=st.ClipByNorm(0.3))
    for param, grad in zip(whole, grads, strict=True):
        param.grad = grad.clone()
    alone.step()
    # The first and the last stage have it; counted is the first.
    params = {"own": own[rank], **({"tied": tied} if rank in (0, 3) else {})}
    params = named(params)
    layouts = [
        ("tied", st.Layout(mesh, [Replicate()])),
        ("own", st.Layout(mesh, ["distinct"])),
    ]
    optimizer = st.SGD(params, lr=0.1, clip=st.ClipByNorm(0.3), layouts=layouts)
    for key, param in params:
        param.grad = grads[0].clone() if key == "tied" else grads[1 + rank].clone()
    optimizer.step()
    for key, param in params:
        same_bits(param, whole[0] if key == "tied" else whole[1 + rank], key)


@case
def the_norm_of_gradients_that_lie_in_every_way():
    """Two meshes, whole tensors, stages and two optimizers: as of one vector."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    stage, at = grid.get_local_rank("pp"), grid.get_local_rank("tp")
    made, _ = values()
    stages = [values(seed)[1][0] for seed in range(2)]
    spread = torch.randn(7, 5)
    everything = [g for grads in stages for g in grads.values()] + [2 * spread, spread[0]]
    plain = [torch.nn.Parameter(torch.zeros_like(g)) for g in everything]
    dtensors = [
        torch.nn.Parameter(distribute_tensor(torch.zeros(7, 5), grid["tp"], [Shard(0)])),
        torch.nn.Parameter(torch.zeros(5)),
    ]
    layouts = [
        ("up|bias", st.Layout(grid, ["distinct", Shard(0)])),
        ("down", st.Layout(grid, ["distinct", Shard(1)])),
        (".*", st.Layout(grid, ["distinct", Replicate()])),
    ]
    params = named(parts(made, at, 2))
    optimizer = st.AdamW(params, layouts=layouts)
    for norm_type in (2.0, math.inf):
        for param, grad in zip(plain, everything, strict=True):
            param.grad = grad.clone()
        for key, param in params:
            param.grad = parts(stages[stage], at, 2)[key].clone()
        dtensors[0].grad = distribute_tensor(2 * spread, grid["tp"], [Shard(0)])
        dtensors[1].grad = spread[0].clone()
        wide = torch.cat([p.grad.double().flatten() for p in plain])
        expected = torch.linalg.vector_norm(wide, norm_type)
        # Both stages have the DTensor and the plain tensor: they count once.
        norm = st.clip_grad_norm_([optimizer, *dtensors], 0.5, norm_type)
        assert math.isclose(float(norm), float(expected), rel_tol=2**-45), (norm, expected)
        coefficient = 0.5 / (float(expected) + 1e-6)
        for key, param in params:
            wanted = parts(stages[stage], at, 2)[key] * coefficient
            assert torch.allclose(param.grad, wanted, rtol=1e-6, atol=0), key
    for _, param in params:
        param.grad.fill_(float("nan") if dist.get_rank() == 3 else 1.0)
    assert st.clip_grad_norm_(optimizer, 1.0, math.inf).isnan()


HELD = {"first and last": (0, 3), "second and last": (1, 3), "third alone": (2,)}


def tied(mesh, holders, tied_layout, name="tied"):
    """A tensor that some stages have, one that all have, and one of each stage's own; the same
    as one process has them."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    sizes = [(5, 4), (6,), *[(3, 2)] * 4]
    values, grads = ([torch.randn(s, generator=generator) for s in sizes] for _ in range(2))
    own = {"whole": 1, "own": 2 + rank} | ({name: 0} if rank in holders else {})
    params = named({key: values[place] for key, place in own.items()})
    for key, param in params:
        param.grad = grads[own[key]].clone()
    layouts = [
        ("tied.*", tied_layout),
        ("whole", None),
        ("own", st.Layout(mesh, ["distinct"])),
    ]
    everything = [torch.nn.Parameter(v.clone()) for v in values]
    for param, grad in zip(everything, grads, strict=True):
        param.grad = grad.clone()
    return params, layouts, own, everything


@case
def the_norm_counts_what_stages_have_in_common_once():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    for words, holders in HELD.items():
        shared = None if holders[0] == 0 else "pp"
        for norm_type in (2.0, math.inf):
            how = st.Layout(mesh, [Replicate()], shared_over=shared)
            params, layouts, own, everything = tied(mesh, holders, how)
            optimizer = st.SGD(params, lr=0.1, layouts=layouts)
            # Beside them one that the stages have cut.
            whole = torch.nn.Parameter(torch.zeros(8, 2))
            whole.grad = torch.arange(16.0).view(8, 2) / 8
            cut = torch.nn.Parameter(distribute_tensor(whole.detach(), mesh, [Shard(0)]))
            cut.grad = distribute_tensor(whole.grad, mesh, [Shard(0)])
            everything.append(whole)
            norm = st.clip_grad_norm_([optimizer, cut], 0.3, norm_type)
            expected = torch.nn.utils.clip_grad_norm_(everything, 0.3, norm_type)
            assert math.isclose(norm, expected, rel_tol=1e-6), (words, norm, expected)
            for key, param in params:
                assert torch.allclose(param.grad, everything[own[key]].grad), (words, key)


@case
def the_norm_in_the_step_counts_what_later_stages_share_once():
    """Also under another name on each stage."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    for words, holders in HELD.items():
        how = st.Layout(mesh, [Replicate()], shared_over="pp")
        name = f"tied.{dist.get_rank()}"
        params, layouts, own, everything = tied(mesh, holders, how, name)
        clip = {"lr": 0.1, "clip": st.ClipByNorm(0.3)}
        alone, optimizer = st.SGD(everything, **clip), st.SGD(params, **clip, layouts=layouts)
        alone.step()
        optimizer.step()
        ours, theirs = optimizer.last_step.grad_norm, alone.last_step.grad_norm
        assert math.isclose(ours, theirs, rel_tol=2**-48), (words, ours, theirs)
        for key, param in params:
            same_bits(param, everything[own[key]], f"{words}, {key}")


@case
def stages_sum_the_gradient_of_what_they_share():
    """Each has its own of two tensors, in another order, that some stages have; where a stage
    has none of one, the others' counts. Also beside tensor parallelism, and on one stage."""
    grid = init_device_mesh("cpu", (4, 1), mesh_dim_names=("pp", "tp"))
    held = {"a": (0, 2, 3), "b": (2, 3), "c": (1,)}
    rank = dist.get_rank()
    how = st.Layout(grid, [Replicate()] * 2, "partial", grad_divisor=2.0, shared_over="pp")
    layouts = [("([abc])", how), (".*", st.Layout(grid, ["distinct", Replicate()]))]
    own = [torch.randint(-8, 9, (3, 4)) / 16.0 for _ in range(4)]
    for name, stage in [("AdamW, clipped", 0), ("CAME", 0), ("CAME", 1), ("AdamW", 2)]:
        group = grid["tp"].get_group()
        zero = {"zero": stage, "gradients": "local", "process_group": group} if stage else {}
        names = [n for n in sorted(held, reverse=rank == 3) if rank in held[n]]
        made = {n: torch.full((3, 4), 0.5) for n in [*names, f"own{rank}"]}
        params = named(made)
        optimizer = ALL[name](params, layouts=layouts, **zero)
        every = ["a", "b", "c", *(f"own{r}" for r in range(4))]
        plain = named({n: torch.full((3, 4), 0.5) for n in every})
        alone = ALL[name](plain)
        for step in range(3):
            for n, param in plain:
                holders = [r for r in held.get(n, ()) if (step, n, r) != (1, "a", 2)]
                param.grad = sum(own[r] for r in holders) / 2 if n in held else own[int(n[3])]
            optimizer.zero_grad()
            for n, param in params:
                param.grad = None if (step, n, rank) == (1, "a", 2) else own[rank].clone()
            alone.step()
            optimizer.step()
            for n, param in params:
                same_bits(param, dict(plain)[n], f"{name}, zero={stage}, step {step}, {n}")
    one = init_device_mesh("cpu", (1, 4), mesh_dim_names=("pp", "tp"))
    how = st.Layout(one, [Replicate()] * 2, shared_over="pp")
    stepped(named({"tied": torch.ones(3)}), layouts=[("tied", how)])


@case
def what_stages_sum_is_to_be_alike():
    """Also where ranks have other numbers of process groups."""
    if dist.get_rank() == 3:
        dist.new_group([3], use_local_synchronization=True)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    how = st.Layout(mesh, [Replicate()], "partial", shared_over="pp")
    shape = (3, 4) if dist.get_rank() == 3 else (4, 3)
    names = {"tied": torch.ones(shape)} if dist.get_rank() in (0, 3) else {}
    params = named({**names, f"own{dist.get_rank()}": torch.ones(2)})
    layouts = [("tied", how), (".*", st.Layout(mesh, ["distinct"]))]
    if names:
        refused(errors.CommunicationError, "exchanges other things than rank",
                lambda: stepped(params, layouts=layouts))  # fmt: skip
    else:
        stepped(params, layouts=layouts)


@case
def a_tensor_that_no_rank_counts_is_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    words = "parameter 'tied' of rank 1 is whole along ranks 0, 1, 2, 3, of which rank 0"
    for how in (st.Layout(mesh, [Replicate()]), None):
        params, layouts, own, everything = tied(mesh, (1, 3), how)
        before = [param.detach().clone() for _, param in params]
        clipped = st.SGD(params, lr=0.1, clip=st.ClipByNorm(0.3), layouts=layouts)
        refused(errors.TensorError, words, clipped.step)
        for (key, param), then in zip(params, before, strict=True):
            same_bits(param, then, key)
        plain = st.SGD(params, lr=0.1, layouts=layouts)
        refused(errors.TensorError, words, lambda own=plain: st.clip_grad_norm_(own, 1.0))
        plain.step()  # counts nothing
        for param, value in zip(everything, everything, strict=True):
            value.data -= 0.1 * param.grad
        for key, param in params:
            assert torch.allclose(param, everything[own[key]]), key
    both = named({"tied.0": torch.ones(2), "tied.1": torch.ones(2)})
    for _, param in both:
        param.grad = torch.ones(2)
    how = st.Layout(mesh, [Replicate()], shared_over="pp")
    one = st.SGD(both, lr=0.1, layouts=[("tied.*", how)])
    refused(errors.TensorError, "'tied.0' and parameter 'tied.1' of rank 0 are of one layout",
            one.step)  # fmt: skip
    st.SGD(both, lr=0.1, layouts=[(r"tied\.(.*)", how)]).step()


def refused(kind, words, function):
    try:
        function()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


@case
def a_norm_of_gradients_still_to_be_summed_is_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    for partial in ({"grad": "partial"}, {"grad_divisor": 2.0}):
        params = named({"norm": torch.ones(6)})
        params[0][1].grad = torch.ones(6)
        layouts = [(".*", st.Layout(mesh, [Replicate()], **partial))]
        optimizer = st.AdamW(params, layouts=layouts)
        refused(ValueError, "is to be summed or divided by its optimizer's step first",
                lambda own=optimizer: st.clip_grad_norm_(own, 1.0))  # fmt: skip
        same_bits(params[0][1].grad, torch.ones(6), "the gradient")
    local = st.AdamW([torch.nn.Parameter(torch.ones(2))], zero=1, gradients="local")
    refused(ValueError, "an optimizer with gradients='local' takes their mean in its step",
            lambda: st.clip_grad_norm_(local, 1.0))  # fmt: skip


def stepped(params, **arguments):
    for _, param in params:
        param.grad = torch.ones_like(param)
    st.AdamW(params, **arguments).step()


def described(optimizer):
    """The cells of each line."""
    return [re.split(r"  +", line) for line in optimizer.describe_layouts().splitlines()]


@case
def layouts_in_words():
    """Of one rank, while the others do something else; as docs/distributed.md shows it. What
    only they know, the shape of the whole, is there from the first step on."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    made = {"up.weight": (5, 6), "norm.weight": (6,), "head.weight": (6, 4)}
    params = named({name: torch.ones(shape) for name, shape in made.items()})
    norm = st.Layout(mesh, ["distinct", Replicate()], grad="partial", grad_divisor=2)
    layouts = [
        ("up.*", st.Layout(mesh, ["distinct", Shard(0)])),
        ("norm.*", norm),
        ("head.*", st.Layout(mesh, [Replicate(), Replicate()], shared_over="pp")),
    ]
    optimizer = st.AdamW(params, layouts=layouts)
    if dist.get_rank() == 3:
        found = described(optimizer)
        assert found[3][:4] == ["up.weight", "?", "(5, 6)", "others along pp, dim 0 over tp"], found
        assert [line[-1] for line in found[3:]] == ["-"] * 3, found
    stepped_with(optimizer, params)
    if dist.get_rank() == 3:
        page = (Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text()
        shown = page.partition("Of rank 3 of a mesh")[2].split("```")[1].strip()
        said = optimizer.describe_layouts()
        assert said == shown, said


@case
def dtensors_and_zero_in_words():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    param = torch.nn.Parameter(distribute_tensor(torch.ones(12, 6), mesh["tp"], [Shard(0)]))
    params = [("up", param), ("whole", torch.nn.Parameter(torch.ones(5, 4)))]
    group = mesh["dp"].get_group()
    optimizer = st.came.CAME(params, lr=0.1, zero=1, gradients="local", process_group=group)
    stepped_with(optimizer, params)
    if dist.get_rank() == 2:
        found = described(optimizer)
        assert found[:2] == [["tp: ranks 2, 3"], ["zero: ranks 0, 2"]], found
        up, whole = (line[:5] for line in found[3:])
        assert up[:3] == ["up", "(12, 6)", f"{tuple(optimizer.state[param]['exp_avg'].shape)}"], up
        assert up[3] == "dim 0 over tp, rows [5, 6) of that over zero", up
        assert up[4] == "in any placements, mean over zero", up
        assert re.fullmatch(r"elements \[\d+, \d+\) of that over zero", whole[3]), whole
        assert whole[4] == "mean over zero", whole
    plain = st.AdamW([torch.nn.Parameter(torch.ones(3))])
    cells = ["parameter 0 of group 0", "(3,)", "(3,)", "whole", "reduced", "-"]
    assert described(plain)[1:] == [cells]
    unmatched = st.AdamW([("b", torch.nn.Parameter(torch.ones(3)))], layouts=[("a", None)])
    refused(errors.TensorError, "is matched by none of 1 layouts", unmatched.describe_layouts)


def stepped_with(optimizer, params):
    for _, param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()


@case
def layouts_that_are_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    made, _ = values()
    unmatched = [("up", st.Layout(mesh, [Shard(0)]))]
    refused(errors.TensorError, "parameter 'down' is matched by none of 1 layouts",
            lambda: stepped(named(made), layouts=unmatched))  # fmt: skip
    unnamed = [torch.nn.Parameter(torch.ones(2))]
    unnamed[0].grad = torch.ones(2)
    refused(errors.TensorError, "has no name; layouts needs named parameters",
            lambda: st.AdamW(unnamed, layouts=unmatched).step())  # fmt: skip
    refused(ValueError, "the layout has 2 placements, its mesh has 1 dims",
            lambda: st.Layout(mesh, [Shard(0), Shard(1)]))  # fmt: skip
    refused(ValueError, "placement 'rows' is none of Shard(d), Replicate() and 'distinct'",
            lambda: st.Layout(mesh, ["rows"]))  # fmt: skip
    refused(ValueError, "grad is 'summed', expected 'reduced' or 'partial'",
            lambda: st.Layout(mesh, [Shard(0)], grad="summed"))  # fmt: skip
    refused(ValueError, "shared_over is 'pp', expected one of the mesh's dims: tp",
            lambda: st.Layout(mesh, [Replicate()], shared_over="pp"))  # fmt: skip
    refused(ValueError, "shared_over is 'tp', whose placement is S(0), expected Replicate()",
            lambda: st.Layout(mesh, [Shard(0)], shared_over="tp"))  # fmt: skip
    refused(TypeError, "layouts has 'up', expected a regular expression and a Layout",
            lambda: st.AdamW(named(made), layouts=["up"]))  # fmt: skip
    refused(TypeError, "layouts has 3 for 'up', expected a Layout or None",
            lambda: st.AdamW(named(made), layouts=[("up", 3)]))  # fmt: skip


@case
def what_cannot_be_compiled_is_not_stepped_by_torch():
    """torch's AdamW would take a rank's part for the whole: nothing is stepped instead."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    here, there = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3).to("meta"))
    named = [("here", here), ("there", there)]
    optimizer = st.AdamW(named, layouts=[(".*", st.Layout(mesh, [Shard(0)]))])
    here.grad = torch.ones(3)
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "device 'meta'" in str(error), error
    else:
        raise AssertionError("it was stepped")
    assert torch.equal(here, torch.ones(3)) and not optimizer.state


if __name__ == "__main__":
    main()
