# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The collectives of training steps on four ranks, against what stepc-plan says of them."""

import sys
from collections import Counter
from pathlib import Path

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from plan import layouts, planning
from plan.machines import Machine
from plan.models import Model, Tensor
from plan.package import open_source

WORLD = 4
OPERATIONS = {"allreduce": "all_reduce", "alltoall": "all_to_all", "allgather": "all_gather",
              "reduce_scatter": "reduce_scatter", "broadcast": "broadcast"}  # fmt: skip


class Collectives(TorchDispatchMode):
    """Calls, and bytes of the larger buffer, by operation."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d" and "barrier" not in func.name():
            name = next(to for part, to in OPERATIONS.items() if part in func.name())
            flat = [t for a in args for t in (a if isinstance(a, list) else [a])]
            self.calls[name] += 1
            self.bytes[name] += max(t.nbytes for t in flat if isinstance(t, torch.Tensor))
        return func(*args, **(kwargs or {}))


def make_model():
    """Blocks and a root, with rows that four ranks cannot share evenly."""
    torch.manual_seed(0)
    blocks = [torch.nn.Linear(33, 33) for _ in range(3)]
    layers = {"embedding": torch.nn.Linear(7, 33), "head": torch.nn.Linear(33, 5)}
    return torch.nn.ModuleDict({**layers, "blocks": torch.nn.Sequential(*blocks)})


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = make_model()

    def forward(self, x):
        return self.parts["head"](self.parts["blocks"](self.parts["embedding"](x)))


def planned(name, model, layout, **settings):
    tensors = tuple(Tensor(n, tuple(p.shape)) for n, p in model.named_parameters())
    request = planning.Request(layout=layout, **settings)
    return planning.make(open_source(name), Model("net", tensors), Machine(WORLD), request)


def expect(made, counted):
    calls, data = Counter(), Counter()
    for row in made.traffic:
        calls[row.operation] += row.calls
        data[row.operation] += row.bytes
    for call in made.account.calls:
        calls["all_reduce"] += 1
        data["all_reduce"] += call.bytes
    assert counted.calls == calls, (counted.calls, calls)
    assert counted.bytes == data, (counted.bytes, data)


def count(net, optimizer):
    """Of the third step: what is done once is behind it."""
    for _ in range(3):
        x = torch.randn(6, 7)
        counted = Collectives()
        with counted:
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return counted


def compare_zero(stage):
    for name, make in (("adamw", st.AdamW), ("deepspeed_lamb", st.colossal.Lamb)):
        for layouts.BUCKET in (25 * 2**20, 5000):
            net = Net()
            optimizer = make(
                net.parameters(),
                lr=1e-3,
                zero=stage,
                gradients="local",
                bucket_bytes=layouts.BUCKET,
            )
            expect(planned(name, net, f"zero{stage}"), count(net, optimizer))


@case
def zero1():
    compare_zero(1)


@case
def zero2():
    compare_zero(2)


@case
def a_type_for_what_crosses():
    def counted(**arguments):
        net = Net()
        return count(net, st.AdamW(net.parameters(), zero=1, gradients="local", **arguments)).bytes

    plain, half = counted(), counted(reduce_dtype=torch.bfloat16)
    assert half["all_to_all"] * 2 == plain["all_to_all"]
    assert half["broadcast"] == plain["broadcast"]


@case
def fully_shard():
    from torch.distributed.fsdp import fully_shard as shard

    for name, make in (("adamw", st.AdamW), ("deepspeed_lamb", st.colossal.Lamb)):
        net = Net()
        made = planned(name, net, "fsdp2")
        mesh = init_device_mesh("cpu", (WORLD,))
        for block in net.parts["blocks"]:
            shard(block, mesh=mesh)
        shard(net, mesh=mesh)
        expect(made, count(net, make(net.parameters(), lr=1e-3)))


if __name__ == "__main__":
    assert dist.is_available()
    main()
