# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs, compiled, have the interpreter's bits.

STEPC_RANDOM_PROGRAMS=5000 runs more; tools/fuzz/run.py runs as long as it is told.
"""

import os

import numpy as np
from body import BINARY, UNARY
from cases import make_case, make_setting
from engine import run_programs, write
from report import explain
from samples import number
from seeds import make_program
from steps import interpret
from test_bounds import outside

NUMBER = int(os.environ.get("STEPC_RANDOM_PROGRAMS", number(120, 500)))
BOUNDED = 60


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
              "amax over group", "step.update", " always", " given", "step.report", "step.skip_if",
              "scalars over model", "scalars over group", " if %", " reassociable",
              "extent -1 ge %least", "not %o", "mask[...b, n, m]"]  # fmt: skip
    operations = [*UNARY, *BINARY, "lerp", "compare", "select", "and", "or", "not", "is_finite",
                  "powi", "pow", "to_f64", "sum", "mean", "amax", "contribute"]  # fmt: skip
    wanted += [f"step.{name} " for name in operations]
    assert [word for word in wanted if word not in text] == []


def test_exact_results_lie_within_the_bounds(tmp_path):
    """The bound mode's intervals hold what exact mode computes, special values too."""
    cases = []
    for seed in range(BOUNDED):
        program = make_program(seed)
        setting = make_setting(program)
        setting.steps = 1
        for tensor in setting.tensors:
            tensor.own_gradients = False
        cases.append(make_case(program, setting, write(program, tmp_path)))
    bounds, exact = interpret(cases, mode="bound"), interpret(cases)
    narrow = []
    for case, own, results in zip(cases, bounds, exact, strict=True):
        assert not isinstance(own, str), own
        assert outside(results, own) == {}, case.describe()
        with np.errstate(invalid="ignore"):
            width = own["t0/param:high"] - own["t0/param:low"]
            narrow.append(width <= 1e-3 * np.abs(own["t0/param:high"]) + 1e-30)
    # They say something.
    assert np.mean([np.mean(one) for one in narrow if one.size]) > 0.5
