#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that are alive at once, and the time of a training step, where parameters are stepped
behind the backward pass and within it.

    tools/bench/fused_backward.py [--layers 24] [--width 1024] [--rounds 9] [--ranks 4]

Contestants take turns: torch's fused AdamW behind the pass; torch's way to step within it, an
optimizer for each parameter with a hook (its tutorial "How to save memory by fusing the optimizer
step into the backward pass"); ours both ways. Times are medians of a forward pass, a backward
pass and a step.

With ``--ranks`` so many Gloo processes of one thread share states by ``zero=``: behind the pass
with stages 1 and 2, and within it. Figures are the largest of the ranks. That of the plan is what
it has allocated: what crosses, and this rank's part of the sums, but no state.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontend"))
import stepc.torch
import torch
import torch.distributed as dist
from stepc.torch import Zero


def behind(make):
    """A step behind the pass."""

    def made(params):
        optimizer = make(params)

        def end():
            optimizer.step()
            optimizer.zero_grad()

        return end

    return made


def torchs_within(params):
    for param in params:
        optimizer = torch.optim.AdamW([param], fused=True)

        def came(param, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        param.register_post_accumulate_grad_hook(came)
    return lambda: None


CONTESTANTS = {
    "torch AdamW fused, behind": behind(lambda params: torch.optim.AdamW(params, fused=True)),
    "torch AdamW fused, within": torchs_within,
    "stepc AdamW, behind": behind(stepc.torch.AdamW),
    "stepc AdamW, within": behind(lambda params: stepc.torch.AdamW(params, fused_backward=True)),
    "stepc Adafactor, within": behind(
        lambda params: stepc.torch.hf.Adafactor(params, fused_backward=True)
    ),
}


def lomos(make):
    """A step by the pass of the optimizer's own method."""

    def made(model):
        optimizer = make(model)
        return optimizer, lambda loss: optimizer.fused_backward(loss, 1e-3)

    return made


def shared(make, zero, fused=False):
    def made(model):
        optimizer = make(model.parameters(), zero=zero, fused_backward=fused)

        def step(loss):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return optimizer, step

    return made


LOCAL = {"gradients": "local", "bucket_bytes": 4 * 2**20}
ON_RANKS = {
    "AdamW, Zero(1), behind": shared(stepc.torch.AdamW, Zero(1, **LOCAL)),
    "AdamW, Zero(2), behind": shared(stepc.torch.AdamW, Zero(2, **LOCAL)),
    "AdamW, Zero(1), within": shared(stepc.torch.AdamW, Zero(1, **LOCAL), fused=True),
    "Adafactor, Zero(1), behind": shared(stepc.torch.hf.Adafactor, Zero(1, **LOCAL)),
    "Lomo, Zero(1), within": lomos(lambda m: stepc.torch.lomo.Lomo(m, zero=Zero(1, **LOCAL))),
    "AdaLomo, Zero(1), within": lomos(lambda m: stepc.torch.lomo.AdaLomo(m, zero=Zero(1, **LOCAL))),
}


class Seat:
    """A contestant's model, and the most bytes of gradients that were there at once."""

    def __init__(self, make, layers, width):
        torch.manual_seed(0)
        inner = [m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*inner)
        self.batch = torch.randn(64, width)
        self.params = list(self.model.parameters())
        self.most = 0
        for param in self.params:  # ahead of the contestant's hooks, which free the gradient
            param.register_post_accumulate_grad_hook(self.look)
        self.make(make)

    def make(self, make):
        end = make(self.params)

        def step(loss):
            loss.backward()
            end()

        self.step = step

    def look(self, _):
        alive = sum(p.grad.nbytes for p in self.params if p.grad is not None)
        self.most = max(self.most, alive)

    def turn(self):
        begin = time.perf_counter()
        self.step(self.model(self.batch).square().mean())
        return time.perf_counter() - begin


class SeatOnRanks(Seat):
    """The same of a rank, with the bytes that the plan has allocated."""

    def make(self, make):
        self.optimizer, self.step = make(self.model)

    def turn(self):
        dist.barrier()
        return super().turn()

    @property
    def allocated(self):
        return self.optimizer._binding.plan.info().bytesAllocated


def rank_main(rank, folder, given):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=given.ranks)  # fmt: skip
    seats = {n: SeatOnRanks(make, given.layers, given.width) for n, make in ON_RANKS.items()}
    if rank == 0:
        total = sum(p.nbytes for p in next(iter(seats.values())).params)
        print(f"{total / 2**20:.1f} MiB of parameters, {given.ranks} ranks, {os.cpu_count()} cores")
        print(f"{'':28} {'gradients, MiB':>15} {'plan, MiB':>10} {'step, ms':>10}")
    for name, seat in seats.items():
        seconds = [seat.turn() for _ in range(given.rounds + 2)][2:]
        found = torch.tensor(
            [seat.most, seat.allocated, statistics.median(seconds)], dtype=torch.float64
        )
        dist.all_reduce(found, dist.ReduceOp.MAX)
        most, allocated, median = found.tolist()
        if rank == 0:
            print(f"{name:28} {most / 2**20:15.1f} {allocated / 2**20:10.1f} {1e3 * median:10.1f}",
                  flush=True)  # fmt: skip
    dist.barrier()
    os._exit(0)  # an interpreter on its way out aborts where a thread of Gloo still frees


def on_ranks(given):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (folder, given), nprocs=given.ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args()
    if given.ranks > 1:
        return on_ranks(given)
    seats = {name: Seat(make, given.layers, given.width) for name, make in CONTESTANTS.items()}
    seconds = {name: [] for name in seats}
    for number in range(given.rounds + 2):
        for name, seat in seats.items():
            value = seat.turn()
            if number > 1:  # the first make states and compile
                seconds[name].append(value)
    total = sum(p.nbytes for p in next(iter(seats.values())).params)
    print(f"{total / 2**20:.1f} MiB of parameters, {os.cpu_count()} cores")
    print(f"{'':28} {'gradients, MiB':>15} {'step, ms':>10}")
    for name, seat in seats.items():
        millis = 1e3 * statistics.median(seconds[name])
        print(f"{name:28} {seat.most / 2**20:15.1f} {millis:10.1f}")


if __name__ == "__main__":
    main()
