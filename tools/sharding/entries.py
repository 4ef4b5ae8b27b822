#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs with the exchanges around them, on simulated ranks beside one process.

    tools/sharding/entries.py --programs 5000 --seed 1000    # seeds from there on
    tools/sharding/entries.py --seed 17 --programs 1         # one again

A program is a definition of the zoo with fragments, a mesh of one to three axes, tensors that
lie outside of the step in ways of their own, sizes of buckets, and an order in which each rank's
gradients come. Parameters, states and counts of three steps are compared bit for bit. What
differs is printed; the exit status is 1 where something did.
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

BATCH = 25  # programs whose packages are compiled together


def main():
    from entries import Packages, random_model, run_model

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1000, help="the first")
    arguments = parser.parse_args()
    failed = 0
    last = arguments.seed + arguments.programs
    for first in range(arguments.seed, last, BATCH):
        models = {seed: random_model(seed) for seed in range(first, min(first + BATCH, last))}
        with tempfile.TemporaryDirectory() as folder:
            packages = Packages(Path(folder))
            packages.prepare(models.values())
            for seed, model in models.items():
                try:
                    wrong = run_model(model, packages.get(model))
                except AssertionError as error:
                    wrong = str(error)
                if wrong:
                    failed += 1
                    print(f"seed {seed}: {wrong}\n{model.describe()}", flush=True)
        print(f"{first + len(models) - arguments.seed} programs, {failed} failed", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
