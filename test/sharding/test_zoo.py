# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every definition of the zoo in every layout, on simulated ranks: elementwise ones have
the bits of the unsharded run, others lie within the interpreter's bound.

STEPC_SHARDING_ALL=1 takes all worlds with all presets in place of some of them.
"""

import os

import pytest
from driver import STORAGES
from formulas import HYPERS as ELEMENTWISE
from layouts import PRESETS, WORLDS, ShardedPackages, bounds_of, make_case, run, same_bits
from papers import HYPERS as PAPERS
from steps import Packages
from test_bounds import outside
from torch_formulas import HYPERS as TORCH

HYPERS = ELEMENTWISE | TORCH | PAPERS
# Their only sums are over states of one element, which every rank has whole.
SCALAR = ["nadam", "asgd", "fused_adam"]
ALL = "STEPC_SHARDING_ALL" in os.environ


def worlds(position):
    return WORLDS if ALL else [WORLDS[1 + position % 6]]


def make_cases(name, fragments=(), **settings):
    made = []
    for position, preset in enumerate(PRESETS):
        for world in worlds(position + len(name)):
            storages = STORAGES[position % 2 if not ALL else (position + world) % 2]
            made.append(make_case(name, fragments, preset, world, storages=storages,
                                  hypers=HYPERS[name], **settings))  # fmt: skip
    return made


@pytest.mark.parametrize("name", sorted([*ELEMENTWISE, *TORCH, *SCALAR]))
def test_elementwise_bits(name, tmp_path):
    cases = make_cases(name, steps=3, missing=True)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case in cases:
        gathered, plain, infos = run(case, packages)
        assert same_bits(gathered, plain) == [], case.describe()
        # The count of fused_adam's groups is updated by a round, which ranks make together.
        assert all(info.exchangeRounds == 0 for info in infos) or name == "fused_adam"


@pytest.mark.parametrize("name", sorted(PAPERS))
def test_statistics_lie_within(name, tmp_path):
    cases = make_cases(name)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case, bounds in zip(cases, bounds_of(cases), strict=True):
        assert not isinstance(bounds, str), bounds
        gathered, _, _ = run(case, packages)
        assert outside(gathered, bounds) == {}, case.describe()
