#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and loads checkpoints of every layout in which some bytes are others.

    tools/fuzz/checkpoints.py --files 10000           # seeds from 0 on
    tools/fuzz/checkpoints.py --seed 17 --files 1     # one again

Each is loaded, or refused by a CheckpointError with nothing changed; nothing is run. The exit
status is 1 at the first of which that is not so.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("test", "frontend")]


def main():
    from checkpoint_fuzz import Watch, run

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    given = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sources").mkdir()
        try:
            tally = run(range(given.seed, given.seed + given.files), Path(folder), Watch())
        except AssertionError as error:
            print(f"failed: {error}")
            return 1
    seconds = time.monotonic() - begin
    print(f"{sum(tally.values())} files in {seconds:.0f} s: "
          + ", ".join(f"{count} {said}" for said, count in tally.most_common()))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
