# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the processes of MPI step, which the simulated ranks step too."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("test/sharding", "test/exact", "test/interpreter", "test/mpi", "frontend")
]

WORLD = 4
DEADLINE_MS = 2000  # of a round that cannot end
SLACK_MS = 1500  # of a machine with other work: two deadlines are more than both
CASES = [  # definition, fragments, preset
    ("adafactor", (), "fsdp2"),
    ("came", (), "tp x fsdp2"),
    ("lamb", (), "zero"),
    ("adamw", ("clip_by_norm",), "fsdp2 x tp"),
    ("torch_adafactor", (), "concatenated"),
    ("adamw", (), "owners"),
]


def make(number):
    from layouts import make_case

    name, fragments, preset = CASES[number]
    return make_case(name, fragments, preset, WORLD, seed=number, steps=3)
