#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that are alive at once, and the time of a training step, where parameters are stepped
behind the backward pass and within it.

    tools/bench/fused_backward.py [--layers 24] [--width 1024] [--rounds 9]

Contestants take turns: torch's fused AdamW behind the pass; torch's way to step within it, an
optimizer for each parameter with a hook (its tutorial "How to save memory by fusing the optimizer
step into the backward pass"); ours both ways. Times are medians of a forward pass, a backward
pass and a step.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontend"))
import stepc.torch
import torch


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
        self.end = make(self.params)

    def look(self, _):
        alive = sum(p.grad.nbytes for p in self.params if p.grad is not None)
        self.most = max(self.most, alive)

    def turn(self):
        begin = time.perf_counter()
        self.model(self.batch).square().mean().backward()
        self.end()
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
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
