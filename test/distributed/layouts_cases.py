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


def refused(kind, words, function):
    try:
        function()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


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
        assert up[3] == "dim 0 over tp, rows [3, 6) of that over zero", up
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
