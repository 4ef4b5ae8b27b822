# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A call of a rank's communicator fails, or comes too late, at a random point of a random step
with exchanges around it: no rank hangs, the one that failed says so, and every rank has the
parameters and states of before, or says that it has not and refuses to go on."""

from entries import Packages
from entry_faults import fail_at, random_fault
from entry_models import random_model

SEEDS = range(200, 216)


def test_no_rank_hangs_or_lies(tmp_path):
    models = {seed: random_model(seed) for seed in SEEDS}
    models = {seed: model for seed, model in models.items() if 1 < model.world <= 12}
    packages = Packages(tmp_path)
    packages.prepare(models.values())
    happened = 0
    for seed, model in models.items():
        rank, at, late = random_fault(model, seed)
        wrong = fail_at(model, packages.get(model), rank, at, late)
        happened += wrong is not None
        assert not wrong, f"seed {seed}: call {at} of rank {rank}, late {late}: {wrong}\n" + (
            model.describe()
        )
    assert happened > len(models) // 2
