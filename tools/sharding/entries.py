#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs with the exchanges around them, on simulated ranks beside one process.

    tools/sharding/entries.py --programs 5000 --seed 1000    # seeds from there on
    tools/sharding/entries.py --seed 17 --programs 1         # one again
    tools/sharding/entries.py --faults --programs 200        # a call of a rank fails

A program is a definition of the zoo with fragments, a mesh of one to three axes, tensors that
lie outside of the step in ways of their own, sizes of buckets, and an order in which each rank's
gradients come. Parameters, states and counts of three steps are compared bit for bit. With
--faults a call of one rank fails, or comes too late, at a random point, and what the ranks say
and have then is looked at. What is wrong is printed; the exit status is 1 where something was.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("test/sharding", "test/exact", "test/interpreter", "test/fuzz", "frontend")
]

BATCH = 40  # programs whose packages are compiled together


def main():
    from entries import Packages, run_model
    from entry_faults import fail_at, random_fault
    from entry_models import random_model

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1000, help="the first")
    parser.add_argument("--faults", action="store_true", help="a call of a rank fails")
    arguments = parser.parse_args()

    def judge(seed, model, package):
        if not arguments.faults:
            return run_model(model, package)
        rank, at, late = random_fault(model, seed)
        wrong = fail_at(model, package, rank, at, late) if model.world > 1 else None
        return wrong and f"call {at} of rank {rank}{', late' * late}: {wrong}"

    failed = 0
    last = arguments.seed + arguments.programs
    for first in range(arguments.seed, last, BATCH):
        models = {seed: random_model(seed) for seed in range(first, min(first + BATCH, last))}
        with tempfile.TemporaryDirectory() as folder:
            packages = Packages(Path(folder))
            packages.prepare(models.values())
            for seed, model in models.items():
                try:
                    wrong = judge(seed, model, packages.get(model))
                except AssertionError as error:
                    wrong = str(error)
                if wrong:
                    failed += 1
                    print(f"seed {seed}: {wrong}\n{model.describe()}", flush=True)
        print(f"{first + len(models) - arguments.seed} programs, {failed} failed", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
