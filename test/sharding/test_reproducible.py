# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages made with --reproducible: on simulated ranks every bit is that of the unsharded
run, whatever the ranks, the layout and the data, and one step lies within the bound of the
definition as it is written. Without the option bits differ, in the same cases.

STEPC_SHARDING_ALL=1 takes all presets and kinds of data with each definition in place of some.
"""

import os

import numpy as np
import pytest
from driver import STORAGES
from formulas import HYPERS as ELEMENTWISE
from layouts import ShardedPackages, bounds_of, make_case, run, same_bits
from papers import HYPERS as PAPERS
from steps import Packages
from test_bounds import outside

HYPERS = ELEMENTWISE | PAPERS
PRESETS = ["ddp", "zero", "owners", "concatenated", "fsdp2", "tp1", "tp x fsdp2", "uneven"]
WORLDS = [1, 2, 3, 4, 8]
KINDS = ["wide", "normal", "one inf", "huge", "zero", "one nan", "denormal", "one huge"]
F64 = ("f64", "f64", "f64")
# Each with statistics of its own, or with one over all tensors.
DEFINITIONS = {
    "adafactor": (), "torch_adafactor": (), "came": (), "lamb": (), "fused_lamb": (), "lars": (),
    "adalomo": (), "lomo": ("clip_by_norm",), "adamw": ("clip_by_norm",), "dadapt_adam": (),
}  # fmt: skip


def make_cases(name, fragments, flags, cases, kinds=KINDS, **settings):
    """Presets, kinds of data and worlds in turn, in f64 and what else there is."""
    begin = list(DEFINITIONS).index(name) * 3
    return [
        make_case(name, fragments, PRESETS[(begin + 3 * k) % len(PRESETS)],
                  WORLDS[(begin + k) % len(WORLDS)], seed=k,
                  storages=F64 if k % 2 == 0 else STORAGES[k // 2 % 2],
                  hypers=HYPERS[name], kind=kinds[(begin + k) % len(kinds)], flags=flags,
                  **settings)
        for k in range(cases)
    ]  # fmt: skip


@pytest.mark.parametrize("name", DEFINITIONS)
def test_bits_of_the_unsharded_run(name, tmp_path):
    number = len(PRESETS) if "STEPC_SHARDING_ALL" in os.environ else 2
    cases = make_cases(name, DEFINITIONS[name], ["--reproducible"], number, number=4)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case, bounds in zip(cases, bounds_of(cases), strict=True):
        assert not isinstance(bounds, str), bounds
        with np.errstate(all="ignore"):
            gathered, plain, _ = run(case, packages)
        assert same_bits(gathered, plain) == [], case.describe()
        assert outside(gathered, bounds) == {}, case.describe()


@pytest.mark.parametrize("flags", [[], ["--reproducible"]], ids=["plain", "reproducible"])
def test_only_the_option_gives_them(flags, tmp_path):
    """Several steps of a model, whose tensors have gradients in some of them."""
    names = ["lamb", "adamw"]
    cases = [
        case
        for name in names
        for case in make_cases(
            name, DEFINITIONS[name], flags, 4, ["normal", "wide"], steps=3, missing=True, number=6
        )
    ]
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    found = dict.fromkeys(names, 0)
    for case in cases:
        with np.errstate(all="ignore"):
            gathered, plain, _ = run(case, packages)
        name = next(n for n in names if f"/{n}.mlir" in case.case.definition.path)
        found[name] += len(same_bits(gathered, plain))
    assert all(bool(number) != bool(flags) for number in found.values()), found
