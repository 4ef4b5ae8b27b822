# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DTensors and ``layouts=`` on devices of the double: the bits of the processor's engine."""

import stepc.torch as st
import torch
import torch.distributed as dist
from colossal_cases import SHAPES as WORKED
from colossal_cases import groups, part, working_of
from layouts_cases import megatron, parts, values
from named_values import named_values
from on_cuda import compare, contents
from on_ranks import case, main
from samples import sample
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from zoo import ALL

NAMES = ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "AdamW, clipped")


def as_megatron_cuts_it(name, **more):
    """The norm's gradient is still to be summed, and is there on two ranks alone once."""

    def train(place):
        made, grads = values()
        mesh = place.mesh((4,), mesh_dim_names=("tp",))
        rank = dist.get_rank()
        own = parts(made, rank, 4)
        params = [(n, torch.nn.Parameter(place.place(v))) for n, v in own.items()]
        optimizer = ALL[name](params, layouts=megatron(mesh), **more)
        for step, whole in enumerate(grads):
            for key, param in params:
                grad = parts(whole, rank, 4)[key] / 2
                gone = step == 1 and (key == "norm" and rank > 1)
                param.grad = None if gone else place.place(grad)
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def plain_parts():
    for name in sample(NAMES, "cuda megatron", 2):
        compare(as_megatron_cuts_it(name), name)


def stages(name):
    """Two stages of two ranks: each has other tensors, and one is of both."""

    def train(place):
        mesh = place.mesh((2, 2), mesh_dim_names=("pp", "tp"))
        stage, at = mesh.get_local_rank("pp"), mesh.get_local_rank("tp")
        made, grads = values(stage)
        tied, tied_grads = values(7)
        own = parts(made, at, 2) | {"tied": tied["norm"]}
        params = [(n, torch.nn.Parameter(place.place(v))) for n, v in own.items()]
        how = st.Layout(mesh, [Replicate()] * 2, "partial", grad_divisor=3.0, shared_over="pp")
        layouts = [
            ("tied", how),
            ("up|bias", st.Layout(mesh, ["distinct", Shard(0)])),
            ("down", st.Layout(mesh, ["distinct", Shard(1)])),
            (".*", st.Layout(mesh, ["distinct", Replicate()])),
        ]
        optimizer = ALL[name](params, layouts=layouts)
        for step in range(3):
            wanted = parts(grads[step], at, 2) | {"tied": tied_grads[step]["norm"] + stage}
            for key, param in params:
                gone = step == 1 and (key == "tied" and stage == 0 or key == "bias")
                param.grad = None if gone else place.place(wanted[key])
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def pipeline_stages():
    for name in ("AdamW, clipped", "AdamW, inf norm", "FusedLamb", "CAME"):
        compare(stages(name), name)


def stages_of_which_one_has_nothing(name):
    """As a frozen stage, whose group of parameters is empty."""

    def train(place):
        mesh = place.mesh((4,), mesh_dim_names=("pp",))
        rank = dist.get_rank()
        made, grads = values(rank)
        has = {} if rank == 2 else made
        params = [(n, torch.nn.Parameter(place.place(v))) for n, v in has.items()]
        how = st.Layout(mesh, ["distinct"])
        optimizer = ALL[name]([{"params": params}], layouts=[(".*", how)])
        for own in grads:
            for key, param in params:
                param.grad = place.place(own[key])
            norm = st.clip_grad_norm_(optimizer, 3.0)
            optimizer.step()
            yield {"norm": place.host(norm)} | contents(place, optimizer)

    return train


@case
def a_stage_without_parameters():
    for name in ("AdamW", "AdamW, clipped", "FusedLamb"):
        compare(stages_of_which_one_has_nothing(name), name)


def dtensors(name, shape, placements, partial=False, make=None):
    def train(place):
        torch.manual_seed(0)
        names = ("dp", "tp")[: len(shape)]
        mesh = place.mesh(shape, mesh_dim_names=names)

        def spread(tensor, where):
            where = [p if getattr(p, "dim", 0) < tensor.dim() else Replicate() for p in where]
            whole = DTensor.from_local(tensor, mesh, [Replicate()] * len(shape), run_check=False)
            local = whole.redistribute(mesh, where).to_local()
            return DTensor.from_local(
                place.place(local), mesh, where, run_check=False, shape=tensor.shape,
                stride=tensor.contiguous().stride(),
            )  # fmt: skip

        shapes = [(33, 20), (17,), (6, 7, 8), (2, 9)]
        params = [torch.nn.Parameter(spread(torch.randn(s), placements)) for s in shapes]
        optimizer = (make or ALL[name])(params)
        for step in range(3):
            for i, param in enumerate(params):
                grad = spread(torch.randint(-8, 9, shapes[i]) / 16, placements)
                if partial and i == 1:
                    local = torch.randint(-8, 9, shapes[i]) / 16 + dist.get_rank()
                    where = [Partial()] * len(shape)
                    grad = DTensor.from_local(place.place(local), mesh, where, run_check=False)
                gone = step == 2 and i == 0 or step == 1 and i == 2 and dist.get_rank() == 3
                param.grad = None if gone else grad
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def sharded_dims():
    for name in sample(NAMES, "cuda dtensors", 2):
        compare(dtensors(name, (4,), [Shard(0)]), name)
        compare(dtensors(name, (2, 2), [Shard(0), Shard(1)]), name)


@case
def replicas_and_partial_gradients():
    for name in ("AdamW", "CAME"):
        compare(dtensors(name, (2, 2), [Replicate(), Shard(0)], partial=True), name)


@case
def reproducible_sums():
    def make(params):
        return st.came.CAME(params, lr=1e-2, reproducible=True)

    compare(dtensors("CAME", (2, 2), [Shard(0), Shard(1)], make=make), "reproducible")


def masters(name):
    """As ColossalAI's ZeRO inside of tensor parallelism hands them over."""

    def train(place):
        tp_group, dp_group = groups(2, 2)
        made, grads = named_values(WORKED, 3, 4)
        world, rank = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        working = working_of(made, tp_group)
        for param in working.values():
            param.data = place.place(param)

        def piece(tensor):
            flat = tensor.detach().reshape(-1)
            return torch.nn.functional.pad(flat, [0, -len(flat) % world]).chunk(world)[rank]

        own = {n: place.place(piece(part(made[n], n, tp_group)).contiguous()) for n in working}
        optimizer = ALL[name](list(own.values()))
        known = {id(own[n]): working[n] for n in working}
        optimizer.setup_distributed(tp_group, dp_group, known, is_zero=True)
        for of_step in grads:
            for n, master in own.items():
                mean = part((of_step[0][n] + of_step[1][n]) / 2, n, tp_group)
                master.grad = place.place(piece(mean).contiguous())
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def masters_of_colossal():
    for name in ("AdamW", "hf.Adafactor", "CAME", "FusedLamb"):
        compare(masters(name), name)


if __name__ == "__main__":
    main()
