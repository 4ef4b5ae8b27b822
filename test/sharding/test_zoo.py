# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every definition of the zoo in every layout, on simulated ranks, for some steps in which
rates change and gradients are missing: elementwise ones have the bits of the unsharded run,
others lie within the interpreter's bound in each step. A second run has the same bits.

STEPC_SHARDING_ALL=1 takes all worlds with all presets in place of some of them.
"""

import os

import numpy as np
import pytest
from driver import STORAGES
from formulas import HYPERS as ELEMENTWISE
from layouts import PRESETS, WORLDS, ShardedPackages, make_case
from papers import HYPERS as PAPERS
from papers import OF_MATRICES
from steps import Packages
from stepwise import judge_bits, judge_bounds, run_twice, with_rates
from torch_formulas import HYPERS as TORCH

HYPERS = ELEMENTWISE | TORCH | PAPERS
# Their only sums are over states of one element, which every rank has whole.
SCALAR = ["nadam", "asgd", "fused_adam"]
ALL = "STEPC_SHARDING_ALL" in os.environ
STEPS = 3


def worlds(position):
    return WORLDS if ALL else [WORLDS[1 + position % 6]]


def make_cases(name, fragments=()):
    made = []
    for position, preset in enumerate(PRESETS):
        for world in worlds(position + len(name)):
            storages = STORAGES[position % 2 if not ALL else (position + world) % 2]
            case = make_case(name, fragments, preset, world, storages=storages,
                             hypers=HYPERS[name], steps=STEPS, missing=True)  # fmt: skip
            made.append(with_rates(case))
    return made


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("name", sorted([*ELEMENTWISE, *TORCH, *SCALAR]))
def test_elementwise_bits(name, tmp_path):
    cases = make_cases(name)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case in cases:
        results = run_twice(case, packages)
        assert judge_bits(case, results, packages) is None, case.describe()
        infos = [info for _, info, _ in results]
        # The count of fused_adam's groups is updated by a round, which ranks make together.
        assert all(info.exchangeRounds == 0 for info in infos) or name == "fused_adam"


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("name", sorted(PAPERS.keys() - OF_MATRICES))  # They are not cut.
def test_statistics_lie_within(name, tmp_path):
    cases = make_cases(name)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case, wrong in zip(cases, judge_bounds(cases, packages), strict=True):
        assert wrong is None, f"{case.describe()}\n{wrong}"


def test_the_bound_of_the_last_step_tells(tmp_path):
    """Parameters that are moved by a part in 2^20 after the last step lie outside: the bound
    has not grown over the steps."""
    cases = [case for case in make_cases("adafactor") if case.case.tensors[0].storages[0] == "f32"]
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases[:2])

    def move(step, found):
        for name in found if step == STEPS - 1 else ():
            if name.endswith("/param"):
                found[name] = found[name] * np.float32(1 + 2**-20)

    found = list(judge_bounds(cases[:2], packages, move))
    assert len(found) == 2
    assert all(wrong and wrong.startswith(f"step {STEPS - 1}: outside") for wrong in found), found
