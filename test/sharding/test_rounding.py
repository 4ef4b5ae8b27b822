# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stochastic rounding on simulated ranks: the random bits are of an element's index in the whole
tensor, so packages made with --reproducible have every bit of the unsharded run, however blocks of
tensors lie. Each definition in both spaces: elementwise, and with something added up.

STEPC_SHARDING_ALL=1 takes all presets and worlds in place of some.
"""

import os
from collections import Counter

import numpy as np
import pytest
from formulas import HYPERS as ELEMENTWISE
from layouts import ShardedPackages, make_case, run, same_bits
from papers import HYPERS as PAPERS
from steps import Packages

HYPERS = ELEMENTWISE | PAPERS
# Without "strided": parts that are no blocks are refused.
PRESETS = ["blocks x blocks", "tp1", "zero", "tp x fsdp2", "concatenated", "fsdp2 x tp", "uneven",
           "fsdp2", "distinct", "ddp"]  # fmt: skip
WORLDS = [4, 6, 3, 8, 2]
STATES = ["f32", "bf16"]
DEFINITIONS = {
    "adafactor": (), "adamw": (), "came": (), "dadapt_adam": (), "fused_lamb": (), "lamb": (),
    "lars": (), "lion": (), "sgd": (), "torch_adafactor": (),
}  # fmt: skip
CLIPPED = dict.fromkeys(("adamw", "lion", "sgd"), ("clip_by_norm",))
CASES = [*DEFINITIONS.items(), *CLIPPED.items()]


def make_cases(name, fragments):
    number = len(PRESETS) if "STEPC_SHARDING_ALL" in os.environ else 2
    begin = 2 * CASES.index((name, fragments))
    cases = []
    for k in range(number):
        # Every second one by blocks, which cut everything.
        preset = PRESETS[0] if k % 2 == 0 else PRESETS[(begin + k) % len(PRESETS)]
        state = STATES[(begin + k) % 2]
        cases.append(
            make_case(name, fragments, preset, WORLDS[(begin + k) % len(WORLDS)], seed=k, steps=2,
                      storages=("bf16", "bf16", state), number=5, hypers=HYPERS[name],
                      flags=["--reproducible"], rounding="stochastic")
        )  # fmt: skip
        cases[-1].case.groups[0].hypers["rounding_seed"] = 2.0**52 + k
    return cases


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize(("name", "fragments"), CASES)
def test_bits_of_the_unsharded_run(name, fragments, tmp_path):
    cases = make_cases(name, fragments)
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case in cases:
        with np.errstate(all="ignore"):
            gathered, plain, _ = run(case, packages)
        assert same_bits(gathered, plain) == [], case.describe()


def test_what_is_cut():
    """Dims other than the first are cut into parts of several rows, beside wholes."""
    found = Counter()
    for name, fragments in CASES:
        for sharded in make_cases(name, fragments):
            for tensor, placement in zip(sharded.case.tensors, sharded.placements, strict=True):
                if not hasattr(placement, "rows"):
                    continue
                shape, world = tensor.shape, range(sharded.world)
                parts = [placement.indices(sharded.mesh, rank, shape) for rank in world]
                cut = [d for d in range(1, len(shape)) if any(len(p[d]) < shape[d] for p in parts)]
                rows = any(len(p[0]) > 1 for p in parts if p)
                found[len(cut) > 0 and rows] += 1
                found["two dims"] += len(placement.axes) == 2
    assert found[True] > 20 and found[False] > 20 and found["two dims"] > 10, found
