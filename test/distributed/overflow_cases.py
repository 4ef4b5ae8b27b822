# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An overflow that one of several ranks has, which all have the same tensor: a step that one of
them must not take is taken by none."""

import itertools
import math

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

WORLD = 4


def replicated(mesh, kind):
    """A tensor that all have, beside one that is cut."""
    values = [torch.ones(6, 4), torch.ones(8, 4)]
    placements = [Replicate()], [Shard(0)]
    if kind == "DTensor":
        tensors = [
            distribute_tensor(value, mesh, own)
            for value, own in zip(values, placements, strict=True)
        ]
        layouts = None
    else:
        tensors = [values[0], values[1].chunk(WORLD)[dist.get_rank()].clone()]
        names = ("w0", "w1")
        layouts = [(n, st.Layout(mesh, own)) for n, own in zip(names, placements, strict=True)]
    named = [(f"w{i}", torch.nn.Parameter(tensor)) for i, tensor in enumerate(tensors)]
    return named, {} if layouts is None else {"layouts": layouts}


def here(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


SCALES = {
    "a dynamic scale": {"loss_scale": st.DynamicLossScale()},
    "skip_nonfinite": {"skip_nonfinite": True},
    "both and a norm": {"loss_scale": st.DynamicLossScale(), "clip": st.ClipByNorm(1.0)},
}


@case
def of_one_replica_alone():
    """Whichever rank it is: in a step that is compiled with the check."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    for kind in ("DTensor", "layouts"):
        for name, more in SCALES.items():
            named, layouts = replicated(mesh, kind)
            optimizer = st.AdamW(named, **layouts, **more)
            for number, bad in enumerate((None, 0, 1, 3, None)):
                before = [here(param).detach().clone() for _, param in named]
                for _, param in named:
                    param.grad = torch.ones_like(param)
                if bad == dist.get_rank():
                    with torch.no_grad():
                        here(named[0][1].grad)[2, 1] = (math.inf, math.nan)[number % 2]
                optimizer.step()
                what = f"{kind}, {name}, rank {bad}"
                assert optimizer.last_step.skipped == (bad is not None), what
                if bad is not None:
                    for (_, param), then in zip(named, before, strict=True):
                        same_bits(here(param), then, what)


@case
def of_one_replica_alone_before_a_scaler():
    """Which looks at gradients before the step, by ``layouts``, of tensors that are cut and where
    none is."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    for bad, number in itertools.product((0, 1, 3), (1, 2)):
        named, layouts = replicated(mesh, "layouts")
        named = named[:number]
        optimizer, scaler = st.AdamW(named, **layouts), st.GradScaler("cpu", init_scale=4.0)
        for _, param in named:
            param.grad = torch.ones_like(param)
        if bad == dist.get_rank():
            named[0][1].grad[2, 1] = math.inf
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0, bad
        assert bool((named[0][1] == 1).all()), bad


if __name__ == "__main__":
    main()
