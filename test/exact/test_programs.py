# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random definitions, compiled, have the interpreter's bits.

STEPC_RANDOM_PROGRAMS=1000 runs more of them; the seed of one that differs is the
name of its file, which is kept in pytest's folder.
"""

import os

import pytest
from oracle import Batch
from programs import Program

NUMBER = int(os.environ.get("STEPC_RANDOM_PROGRAMS", "48"))
PER_TEST = 12


@pytest.mark.parametrize("first", range(0, NUMBER, PER_TEST))
def test_random_programs(first, tmp_path):
    batch = Batch()
    for seed in range(first, first + PER_TEST):
        program = Program(seed)
        path = tmp_path / f"{seed}.mlir"
        path.write_text(program.text())
        arrays, settings = program.case()
        batch.add(path, arrays, **settings)
    batch.run("--compare")
