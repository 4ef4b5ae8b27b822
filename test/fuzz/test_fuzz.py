# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs, compiled, have the interpreter's bits.

STEPC_RANDOM_PROGRAMS=5000 runs more; tools/fuzz/run.py runs as long as it is told.
"""

import os

from engine import run_programs
from generate import make_program
from report import explain

NUMBER = int(os.environ.get("STEPC_RANDOM_PROGRAMS", "500"))


def test_random_programs(tmp_path):
    failures = run_programs(range(NUMBER), tmp_path)
    texts = [explain(failure.seed, tmp_path / "kept") for failure in failures[:3]]
    texts += [f"seed {failure.seed}: {failure.text}" for failure in failures[3:]]
    assert not failures, f"{len(failures)} of {NUMBER} programs\n" + "\n".join(texts)


def test_a_seed_says_everything():
    for seed in range(20):
        assert make_program(seed).text() == make_program(seed).text()


def test_programs_have_everything():
    """What the generator is for is in the programs of the check."""
    text = "\n".join(make_program(seed).text() for seed in range(NUMBER))
    wanted = ["[*]", "[n]", "[n, m]", "[...b, n, m]", "[...b, m]", "[n, n]", "[1]", "[1, m]",
              "[n, 1]", "[...b, n, 1]", "[...b, 1, m]", "[...b, 1, 1]", "over [n]", "over [m]",
              "over [n, m]", "sum over model", "sum over group", "amax over model",
              "amax over group", "step.update", " always", "step.report", "step.skip_if",
              "scalars over model", "scalars over group", " if %", "extent -1 ge %least",
              "not %o", "mask[...b, n, m]", "mask[n, 1]"]  # fmt: skip
    wanted += [f"step.{name} " for name in (
        "neg abs sqrt sign add sub mul div maximum minimum lerp compare select and or not "
        "is_finite powi pow to_f64 sum mean amax contribute").split()]  # fmt: skip
    assert [word for word in wanted if word not in text] == []
