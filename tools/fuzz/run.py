#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs random programs, compiled and interpreted, for some minutes.

    tools/fuzz/run.py --minutes 60 --seed 1000000     # seeds from there on
    tools/fuzz/run.py --seed 17 --programs 1          # one program again
    tools/fuzz/run.py --ranks --minutes 60            # on ranks, beside the unsharded run

Each that differs is made smaller and printed, with files for stepc-run in --keep.
The exit status is 1 where there was one.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("test/fuzz", "test/sharding", "test/exact", "test/interpreter", "frontend")
]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first")
    parser.add_argument("--programs", type=int, help="how many, in place of --minutes")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder for failures")
    parser.add_argument("--shrink", type=float, default=120.0, metavar="SECONDS",
                        help="how long a failure is made smaller")  # fmt: skip
    parser.add_argument("--ranks", action="store_true", help="sharded, on simulated ranks")
    return parser.parse_args()


def main():
    from engine import run_here, run_programs
    from rank_engine import describe, run_ranked
    from report import explain

    arguments = read_arguments()
    run, tally = run_ranked if arguments.ranks else run_here, Counter()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes
    first = next_seed = arguments.seed
    failed = 0
    while True:
        batch = 100 if arguments.ranks else 400
        if arguments.programs is not None:
            batch = min(batch, first + arguments.programs - next_seed)
        if batch <= 0 or (arguments.programs is None and time.monotonic() > end):
            break
        with tempfile.TemporaryDirectory() as folder:
            seeds = range(next_seed, next_seed + batch)
            failures = run_programs(seeds, Path(folder), arguments.jobs, run=run, tally=tally)
        for failure in failures:
            text = explain(failure.seed, arguments.keep, arguments.shrink, arguments.ranks)
            print(text, flush=True)
        failed += len(failures)
        next_seed += batch
        said = f"; {describe(tally)}" if arguments.ranks else ""
        print(f"{next_seed - first} programs, {failed} failed{said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
