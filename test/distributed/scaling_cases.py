# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc.torch.GradScaler`` over optimizers of every kind that there is over ranks: the scale
goes the same way on all ranks, a step with an overflow on one of them changes nothing on any,
and the others are those of one process without a scaler."""

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits, whole
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from zoo import ALL, some

NAMES = [n for n in some("scaling") if n != "AdamW, clipped"]  # that has a scale of its own
SHAPES = {"w": (6, 5), "b": (7,), "m": (4, 3, 2)}


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))


def dtensors(placement):
    def spread(name, value):
        return distribute_tensor(value.clone(), mesh(), [placement], src_data_rank=None)

    return spread, dict


def plain(**arguments):
    return lambda _, value: value.clone(), lambda: dict(arguments)


def parts():
    """Plain parts of rows, which the user says are parts."""

    def spread(_, value):
        return value.tensor_split(dist.get_world_size())[dist.get_rank()].clone()

    return spread, lambda: {"layouts": [(".*", st.Layout(mesh(), [Shard(0)]))]}


# How tensors lie: what is made of a whole one, and what the optimizer is told.
WAYS = {
    "alone": plain(),
    "DTensors, cut": dtensors(Shard(0)),
    "DTensors, whole": dtensors(Replicate()),
    "layouts, whole": plain(layouts=[(".*", None)]),
    "layouts, cut": parts(),
    "zero=1, reduced": plain(zero=1, gradients="reduced"),
    "zero=1, local": plain(zero=1, gradients="local"),
}


def overflow(grads):
    """An Inf in what this rank has of a gradient, where it is another's or all have it."""
    grad = grads["w"]
    own = grad.to_local() if isinstance(grad, DTensor) else grad
    own.view(-1)[0] = float("inf")


def scaled_steps(way, name):
    """Four steps, of which the second overflows: the parameters whole after each, and the
    scales."""
    spread, arguments = WAYS[way]
    torch.manual_seed(3)
    made = {key: torch.randn(shape) for key, shape in SHAPES.items()}
    params = {key: torch.nn.Parameter(spread(key, value)) for key, value in made.items()}
    optimizer = ALL[name](list(params.items()), **arguments())
    twins = {key: torch.nn.Parameter(value.clone()) for key, value in made.items()}
    reference = ALL[name](list(twins.items()))
    scaler = st.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    cut = way in ("DTensors, cut", "layouts, cut", "zero=1, local")
    for step in range(4):
        scaler.scale(torch.ones(()))  # which makes its tensors
        whole_grads = {key: torch.randn(shape) for key, shape in SHAPES.items()}
        grads = {k: spread(k, scaler.get_scale() * g) for k, g in whole_grads.items()}
        # Where ranks have the same gradients, they have the same overflow.
        if step == 1 and (not cut or dist.get_rank() == 1):
            overflow(grads)
        for key, param in params.items():
            param.grad = grads[key]
            twins[key].grad = whole_grads[key]
        scaler.step(optimizer)
        scaler.update()
        if step != 1:
            reference.step()
        yield step, scaler.get_scale(), params, twins


def joined(way, param):
    if way != "layouts, cut":
        return whole(param.detach())
    pieces = [None] * dist.get_world_size()
    dist.all_gather_object(pieces, param.detach())
    return torch.cat(pieces)


@case
def every_optimizer_in_every_way():
    for way in WAYS:
        for name in NAMES:
            scales = []
            for step, scale, params, twins in scaled_steps(way, name):
                scales.append(scale)
                for key, param in params.items():
                    same_bits(joined(way, param), twins[key], f"{way}, {name}, {key}, step {step}")
            assert scales == [8.0, 4.0, 4.0, 8.0], (way, name, scales)


@case
def torchs_own_scaler_has_the_same_steps_of_dtensors():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    theirs, st.GradScaler = st.GradScaler, lambda *_, **__: scaler
    try:
        scales = [scale for _, scale, *_ in scaled_steps("DTensors, cut", "AdamW")]
    finally:
        st.GradScaler = theirs
    assert scales == [8.0, 4.0, 4.0, 8.0], scales


if __name__ == "__main__":
    main()
