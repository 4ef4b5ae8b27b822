"""Runs passes and stages where they do not belong: exit status 0 or 1, never a
crash.

- each alone on a module without anything;
- on definitions, as they are and after each stage: each pass or stage that there
  is, and some in a random order.

    orders.py DEFINITION...        # each on nothing, and 150 others
    STEPC_ORDERS=2000 orders.py DEFINITION...

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

STAGES = ["define", "bind", "shard", "schedule", "lower"]
COUNT = int(os.environ.get("STEPC_ORDERS", "150"))


def find_passes():
    """The names of all passes and stages that stepc-opt has of ours."""
    text = subprocess.run(["stepc-opt", "--help"], capture_output=True, text=True).stdout
    return sorted(set(re.findall(r"--(step-[\w-]+)", text)))


def at_stage(definition, stage):
    """What stands after the stage, of processors or, after lower, of devices."""
    command = ["stepc", definition, f"--compile-to={stage}"]
    if stage == "lower-to-cuda":
        command = ["stepc", definition, "--compile-to=lower", "--target=sm_90", "--ptxas="]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def inputs(definitions, passes, rng):
    """Each text with the passes to run on it."""
    yield from (("module {}", [name]) for name in passes)
    texts = {path: [Path(path).read_text()] for path in definitions}
    for path in definitions:
        texts[path] += [at_stage(path, stage) for stage in [*STAGES, "lower-to-cuda"]]
    every = [(text, [name]) for path in definitions for text in texts[path] for name in passes]
    yield from rng.sample(every, min(len(every), COUNT // 2))
    for _ in range(COUNT - COUNT // 2):
        text = rng.choice(texts[rng.choice(definitions)])
        yield text, rng.sample(passes, rng.randint(2, 6))


def main():
    passes = find_passes()
    assert len(passes) > 30, passes
    crashes, runs, refused = [], 0, 0
    for text, order in inputs(sys.argv[1:], passes, random.Random(1)):
        command = ["stepc-opt", *(f"--{name}" for name in order), "-", "-o", "/dev/null"]
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600)
        runs, refused = runs + 1, refused + (result.returncode == 1)
        if result.returncode not in (0, 1):
            crashes.append(f"status {result.returncode}: {' '.join(command)} < {text[:60]!r}")
    print("\n".join(crashes))
    print(f"{runs} runs, {refused} refused, {len(crashes)} crashes")
    # Orders that make sense are among them, and orders that do not.
    sys.exit(bool(crashes) or not 0 < refused < runs)


if __name__ == "__main__":
    main()
