#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every optimizer of the zoo in every layout, on simulated ranks beside the unsharded run.

    tools/sharding/run.py                      # all that is not done yet
    tools/sharding/run.py --minutes 10         # as many as fit
    tools/sharding/run.py lamb came            # some optimizers
    tools/sharding/run.py --again              # from the beginning

A case is an optimizer, a preset, a world of 1, 2, 3, 4, 5, 7 or 8 ranks and a storage
(f32, or bf16 with states of f32 or bf16). Each takes ten steps (--steps), with another rate
in each and gradients missing, and a second run has the same bits. Elementwise optimizers have
the unsharded bits; others lie within the interpreter's bound in each step, which begins where
the ranks were before it. Cases are taken in a random order, some of each optimizer in turn.
What is done is written to --done, a line for each case; a case in it is not run again
unless it failed. The exit status is 1 where one has failed.
"""

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("test/sharding", "test/exact", "test/interpreter", "test/fuzz", "frontend")
]


PART = 12  # cases of one package


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("optimizers", nargs="*", help="of the zoo (default: all)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begins nothing after these")
    parser.add_argument("--done", type=Path, default=ROOT / "build" / "sharding" / "done.jsonl")
    parser.add_argument("--steps", type=int, default=10, help="of each case")
    parser.add_argument("--seed", type=int, default=0, help="of values, shapes and cuts")
    parser.add_argument("--again", action="store_true", help="forgets what is done")
    return parser.parse_args()


def list_cases(name, arguments):
    """Keys of an optimizer's cases, and how they are made."""
    from driver import STORAGES
    from layouts import PRESETS, WORLDS, make_case
    from stepwise import with_rates
    from test_zoo import HYPERS

    seed, steps = arguments.seed, arguments.steps
    settings = {"seed": seed, "steps": steps, "missing": True, "hypers": HYPERS.get(name)}
    for world in WORLDS:
        for preset in PRESETS:
            for storages in (STORAGES[0], STORAGES[1], STORAGES[3]):
                key = f"{name} {preset} {world} {'-'.join(storages)} {seed} {steps}"
                yield (
                    key,
                    lambda p=preset, w=world, s=storages: with_rates(
                        make_case(name, (), p, w, storages=s, **settings)
                    ),
                )


def judge(case, elementwise, packages):
    """What is wrong; None: nothing."""
    from stepwise import judge_bits, judge_bounds, run_twice

    try:
        if elementwise:
            return judge_bits(case, run_twice(case, packages), packages)
        return next(judge_bounds([case], packages))
    except AssertionError as error:
        return str(error)


def run_batch(cases, elementwise, folder):
    """Yields what is wrong with each case."""
    from layouts import ShardedPackages
    from steps import Packages

    packages = ShardedPackages(Packages(folder, jobs=1))
    packages.prepare(cases)
    for case in cases:
        yield judge(case, elementwise, packages)


def read_done(path):
    """Outcomes by key: the last of each."""
    done = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue  # it ended while it wrote
            done[found["case"]] = found["wrong"]
    return done


def run_part(part, elementwise, done, file):
    """Runs some cases of an optimizer, with one package."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_batch([make() for _, make in part], elementwise, Path(folder))
        for (key, _), wrong in zip(part, outcomes, strict=True):
            done[key] = wrong
            file.write(json.dumps({"case": key, "wrong": wrong}) + "\n")
            file.flush()
            if wrong:
                print(f"{key}: {wrong}", flush=True)


def list_parts(name, done, arguments):
    """What is left of an optimizer, some cases at a time."""
    cases = list(list_cases(name, arguments))
    random.Random(f"{name} {arguments.seed}").shuffle(cases)
    left = [(key, make) for key, make in cases if done.get(key, "not run") is not None]
    return [left[start : start + PART] for start in range(0, len(left), PART)]


def summarize(names, elementwise, done, arguments):
    """Prints a line for each optimizer; returns how many cases have failed."""
    total = failed = ready = 0
    for name in names:
        keys = [key for key, _ in list_cases(name, arguments)]
        outcomes = [done[key] for key in keys if key in done]
        wrong = sum(outcome is not None for outcome in outcomes)
        total, ready, failed = total + len(keys), ready + len(outcomes), failed + wrong
        kind = "bits" if name in elementwise else "bound"
        print(f"{name:16} {kind:5} {len(outcomes):4} of {len(keys)} cases, {wrong} failed")
    print(f"{ready} of {total} cases, {failed} failed", flush=True)
    return failed


def main():
    from test_zoo import ELEMENTWISE, PAPERS, SCALAR, TORCH

    arguments = read_arguments()
    end = time.monotonic() + 60 * arguments.minutes
    arguments.done.parent.mkdir(parents=True, exist_ok=True)
    if arguments.again:
        arguments.done.unlink(missing_ok=True)
    done = read_done(arguments.done)
    elementwise = {*ELEMENTWISE, *TORCH, *SCALAR}
    known = sorted({*elementwise, *PAPERS})
    names = arguments.optimizers or known
    for name in names:
        if name not in known:
            sys.exit(f"'{name}' is no optimizer of the zoo: {', '.join(known)}")
    parts = [list_parts(name, done, arguments) for name in names]
    with arguments.done.open("a") as file:
        for turn in itertools.zip_longest(*parts):
            for name, part in zip(names, turn, strict=True):
                if part and time.monotonic() < end:
                    run_part(part, name in elementwise, done, file)
    return 1 if summarize(names, elementwise, done, arguments) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())
