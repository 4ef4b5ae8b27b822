#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seconds of a step of optimizers that do more in some steps than in others: SOAP, of which
each tenth turns its bases, and Shampoo, of which each tenth makes its roots.

    tools/bench/refreshes.py [--width 768] [--blocks 1] [--most 1024] [--rounds 3] [--threads 2]

On the hidden matrices of GPT-2's blocks. A round is a whole cycle of each contestant, one
behind the other; what is said is the first step, for which all is compiled, and the median over
the rounds: of a cycle's mean, its longest step and the median of the others. A dim above
``--most`` has no basis and no factor, for any. No package of others has Shampoo of these formulas.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontend"))

FREQUENCY = 10
SETTINGS = {"lr": 1e-4, "weight_decay": 0.01, "precondition_frequency": FREQUENCY}


def _ours(params, most):
    import stepc.torch

    return stepc.torch.SOAP(params, max_precond_dim=most, **SETTINGS)


def _theirs(params, most):
    import pytorch_optimizer

    return pytorch_optimizer.SOAP(params, max_precondition_dim=most, **SETTINGS)


def _shampoo(params, most):
    import stepc.torch

    settings = {"grafting_type": "adam", "betas": (0.9, 0.999), **SETTINGS}
    return stepc.torch.Shampoo(params, max_preconditioner_dim=most, **settings)


def _adamw(params, most):
    import stepc.torch

    return stepc.torch.AdamW(params, lr=1e-4)


CONTESTANTS = {
    "stepc.torch.SOAP": _ours,
    "pytorch_optimizer SOAP": _theirs,
    "stepc.torch.Shampoo": _shampoo,
    "stepc.torch.AdamW": _adamw,
}


class Seat:
    """A contestant with parameters of its own."""

    def __init__(self, make, shapes, most):
        import torch

        generator = torch.Generator().manual_seed(0)
        self.params = []
        for shape in shapes:
            values = torch.randn(shape, generator=generator)
            self.params.append(torch.nn.Parameter(0.02 * values))
            self.params[-1].grad = torch.empty_like(values)
        self.optimizer, self.steps = make(self.params, most), 0
        if hasattr(self.optimizer, "precompile"):
            self.optimizer.precompile()

    def step(self):
        """Seconds of one, from gradients of its own."""
        import torch

        generator = torch.Generator().manual_seed(self.steps)
        for param in self.params:
            param.grad.copy_(torch.randn(param.shape, generator=generator))
        begin = time.perf_counter()
        self.optimizer.step()
        self.steps += 1
        return time.perf_counter() - begin


def measure(seats, rounds):
    """Of each by name: seconds of the first step; and of the rounds, mean, longest and others."""
    first = {name: seat.step() for name, seat in seats.items()}
    found = {name: [] for name in seats}
    for _ in range(rounds):
        for name, seat in seats.items():
            found[name].append(sorted(seat.step() for _ in range(FREQUENCY)))
    return {
        name: (
            first[name],
            statistics.median(statistics.fmean(cycle) for cycle in cycles),
            statistics.median(cycle[-1] for cycle in cycles),
            statistics.median(statistics.median(cycle[:-1]) for cycle in cycles),
        )
        for name, cycles in found.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--blocks", type=int, default=1, choices=range(1, 13), metavar="1..12")
    parser.add_argument(
        "--most", type=int, default=1024, help="of a dim that has a basis or a factor"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import shapes
    import torch

    torch.set_num_threads(options.threads)
    matrices = shapes.gpt2_hidden(options.width)[: 4 * options.blocks]
    seats = {name: Seat(make, matrices, options.most) for name, make in CONTESTANTS.items()}
    print(f"{len(matrices)} matrices of width {options.width}, {options.threads} threads, ms")
    print(f"{'':26}{'first':>10}{'mean':>10}{'longest':>10}{'others':>10}")
    results = measure(seats, options.rounds)
    for name, seconds in results.items():
        print(f"{name:26}" + "".join(f"{1e3 * value:10.1f}" for value in seconds))
    ours, theirs = list(results.values())[:2]
    print(f"theirs over ours, of the mean: {theirs[1] / ours[1]:.2f}")


if __name__ == "__main__":
    main()
