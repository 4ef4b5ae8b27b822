# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""As owners_cases.py, on two or three ranks."""

import stepc.torch as st
import torch
import torch.distributed as dist
import viewed
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from owners_cases import DEFINITION, ONLY, compare, give, same_states, spread
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

# Each of three ranks owns two of them.
SQUARES = {f"w{n}": (n, n) for n in (10, 6, 9, 7, 5, 8)}


@case
def cut_over_all():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    compare("fsdp2", mesh)
    compare("fsdp2", mesh, ONLY)
    compare("fsdp2", mesh, more={"clip": st.ClipByNorm(0.5)})


@case
def views():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for kind in ("jordan", "adafactor"):
        viewed.seen_alike(kind, lambda n, s: (mesh, [Shard(0)]), 2)


@case
def options_that_change_the_states():
    """Between two steps, in both directions: what crosses is of the states of each step."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    made, grads = named_values(SQUARES, 1, 6)
    changes = [{}, {"slow": True}, {"fast": True}, {"slow": False}, {"slow": True}, {"fast": False}]

    def make(params):
        return st.Optimizer(params, DEFINITION.with_name("square_momentum.mlir"), lr=0.05)

    plain = [(n, torch.nn.Parameter(v.clone())) for n, v in made.items()]
    params = spread("fsdp2", mesh, made)
    alone, optimizer = make(plain), make(params)
    for step, ((own,), change) in enumerate(zip(grads, changes, strict=True)):
        for each in (alone, optimizer):
            each.param_groups[0].update(change)
        for name, param in plain:
            param.grad = own[name].clone()
        give(params, own)
        alone.step()
        optimizer.step()
        for (name, param), (_, expected) in zip(params, plain, strict=True):
            same_bits(whole(param), expected, f"{name} after step {step}")
        same_states(optimizer, params, alone, plain, f"step {step}")
    assert " along dp steps the whole" in optimizer.describe_layouts(), optimizer.describe_layouts()


if __name__ == "__main__":
    main()
