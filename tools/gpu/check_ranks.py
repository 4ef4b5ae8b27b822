#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of parameters over ranks on CUDA devices, against those of the processor.

    torchrun --nproc-per-node=2 tools/gpu/check_ranks.py
    torchrun --nproc-per-node=2 tools/gpu/check_ranks.py --device cpu   # without a GPU

Each rank takes a device of its machine and steps every layout twice: on the device, over NCCL, and
in the processor's memory, over Gloo. Elementwise optimizers have to leave the same bits, others the
same up to the order of sums over ranks. A captured step is launched, too. Needs a build of the
compiler, as layouts are compiled when they are met, or the packages of a kit, which has this file
too and those of two ranks (build_kit.py has them made by ``--precompile``).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

HERE = Path(__file__).resolve().parent
if (HERE / "identity.txt").is_file():  # of a kit
    sys.path.insert(0, str(HERE))
    import run

    run.prepare()
else:
    sys.path.insert(0, str(HERE.parents[1] / "frontend"))
import stepc.torch as st  # noqa: E402
from stepc.torch.binding import binding as _binding  # noqa: E402

SHAPES = [(130, 64), (33, 20), (17,), (5, 7, 9)]
STEPS = 5
TOLERANCE = 2e-5  # of the largest element
OPTIMIZERS = {
    "AdamW": lambda params, **k: st.AdamW(params, lr=1e-2, **k),
    "Adafactor": lambda params, **k: st.hf.Adafactor(
        params, lr=1e-2, relative_step=False, scale_parameter=True, **k
    ),
    "CAME": lambda params, **k: st.came.CAME(params, lr=1e-2, **k),
    "Lamb": lambda params, **k: st.deepspeed.FusedLamb(params, lr=1e-2, **k),
    "AdamW, clipped": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByNorm(0.5), loss_scale=st.DynamicLossScale(2.0), **k
    ),
}
BITS = ("AdamW",)
ZERO = {
    "zero=1, local": {"zero": st.Zero(1, gradients="local")},
    "zero=1, reduced": {"zero": st.Zero(1, gradients="reduced")},
    "zero=2": {"zero": st.Zero(2)},
}


class Run:
    """An optimizer of one layout on one device."""

    def __init__(self, name: str, layout: str, device: torch.device):
        self.layout, self.device = layout, device
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(shape, generator=generator) * 0.1 for shape in SHAPES]
        more = ZERO.get(layout, {})
        self.mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        if layout == "DTensors":
            made = [distribute_tensor(value.to(device), self.mesh, [Shard(0)]) for value in made]
        elif layout == "layouts":
            made = [value.tensor_split(self.mesh.size())[dist.get_rank()] for value in made]
            more = {"layouts": [(".*", st.Layout(self.mesh, [Shard(0)]))]}
        self.params = [torch.nn.Parameter(value.clone().to(device)) for value in made]
        named = [(f"w{i}", param) for i, param in enumerate(self.params)]
        self.optimizer = OPTIMIZERS[name](named if "layouts" in more else self.params, **more)

    def give(self, step: int) -> None:
        """Gradients of a step, in the memory of those before."""
        rank = dist.get_rank() if self.layout in ("zero=1, local", "zero=2") else 0
        generator = torch.Generator().manual_seed(100 * step + rank)
        for param, shape in zip(self.params, SHAPES, strict=True):
            grad = torch.randn(shape, generator=generator)
            if self.layout == "zero=2":
                (param * grad.to(self.device)).sum().backward()
                continue
            if self.layout == "DTensors":
                grad = distribute_tensor(grad.to(self.device), self.mesh, [Shard(0)])
            elif self.layout == "layouts":
                grad = grad.tensor_split(self.mesh.size())[dist.get_rank()]
            if param.grad is None:
                param.grad = grad.clone().to(self.device)
            else:
                with torch.no_grad():
                    param.grad.copy_(grad)

    def step(self, step: int) -> None:
        self.give(step)
        self.optimizer.step()
        if self.layout == "zero=2":
            self.optimizer.zero_grad()

    def results(self) -> list[torch.Tensor]:
        return [getattr(p, "_local_tensor", p).detach().cpu() for p in self.params]


def launched(run: Run) -> None:
    """Two more steps by a graph."""
    graph = torch.cuda.CUDAGraph()
    run.give(STEPS)
    with torch.cuda.graph(graph):
        run.optimizer.step()
    for step in range(2):
        run.give(STEPS + step)
        run.optimizer.upload()
        graph.replay()


def difference(name: str, layout: str, device: torch.device) -> str:
    """What is wrong with a layout; "" where nothing is."""
    runs = [Run(name, layout, torch.device("cpu")), Run(name, layout, device)]
    with_graph = device.type == "cuda" and layout != "zero=2"
    for run in runs:
        for step in range(STEPS + (2 if with_graph and run is runs[0] else 0)):
            run.step(step)
    if with_graph:
        launched(runs[1])
    for number, (expected, found) in enumerate(zip(*(r.results() for r in runs), strict=True)):
        if name in BITS and not torch.equal(expected, found):
            return f"parameter {number} has other bits"
        largest = expected.abs().amax() if expected.numel() else torch.ones(())
        off = (expected - found).abs().amax() if expected.numel() else torch.zeros(())
        if not off <= TOLERANCE * largest:
            return f"parameter {number} is off by {off / largest:.1e} of the largest element"
    return ""


def compile_for(targets: list[str]) -> None:
    """Has each package that a step asks for made for these targets, too."""
    real = _binding.get_package

    def get_package(optimizer, definition, resolved, members, flags):
        for target in targets if dist.get_rank() == 0 else ():
            real(optimizer, definition, resolved, members, (f"--target={target}",))
        return real(optimizer, definition, resolved, members, flags)

    _binding.get_package = get_package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    parser.add_argument("--precompile", nargs="+", metavar="TARGET", default=[])
    arguments = parser.parse_args()
    compile_for(arguments.precompile)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl")
    wrong = 0
    for name in arguments.optimizers:
        for layout in [*ZERO, "DTensors", "layouts"]:
            words = difference(name, layout, device)
            every: list = [None] * dist.get_world_size()
            dist.all_gather_object(every, words)
            said = [f"rank {rank}: {own}" for rank, own in enumerate(every) if own]
            wrong += bool(said)
            if dist.get_rank() == 0:
                print(f"{name}, {layout}: {'; '.join(said) or 'same'}", flush=True)
    dist.barrier()
    # Meshes keep their groups, whose threads may still free tensors of the last works. They need
    # the interpreter for it: one that is on its way out ends them inside of C++, which aborts
    # (github.com/pytorch/pytorch/issues/190489).
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
