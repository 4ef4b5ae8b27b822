# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of AdamW on 10 000 tensors of 64 elements, each with a new gradient, ours and torch's
fused one: medians of interleaved rounds, in milliseconds, as JSON."""

from __future__ import annotations

import json
import statistics
import time

import stepc.torch
import torch

TENSORS, ELEMENTS, ROUNDS, WARM_UP = 10_000, 64, 25, 5


def contestant(kind, **options):
    params = [torch.nn.Parameter(torch.randn(ELEMENTS)) for _ in range(TENSORS)]
    return params, kind(params, lr=1e-3, **options)


def timed_step(params, optimizer) -> float:
    for param in params:
        param.grad = torch.ones_like(param)
    begin = time.perf_counter()
    optimizer.step()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    both = {
        "ours": contestant(stepc.torch.AdamW),
        "theirs": contestant(torch.optim.AdamW, fused=True),
    }
    times: dict[str, list[float]] = {name: [] for name in both}
    for number in range(WARM_UP + ROUNDS):
        for name, (params, optimizer) in both.items():
            spent = timed_step(params, optimizer)
            if number >= WARM_UP:
                times[name].append(spent)
    found = {name: statistics.median(values) for name, values in times.items()}
    found |= {"torch": str(torch.__version__), "reading": stepc.torch.info()["reading"]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
