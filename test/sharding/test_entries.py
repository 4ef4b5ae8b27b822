# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step on ranks, with the exchanges around it, has the bits of one process whose gradient is
the sum in the order of the ranks: random definitions, meshes, entries, buckets and orders in
which gradients come. tools/sharding/entries.py runs as many as one likes."""

import pytest
from entries import Packages, run_model
from entry_models import random_model

BATCH = 20  # of five programs


@pytest.mark.parametrize("first", range(0, 100, BATCH))
def test_the_bits_of_one_process(first, tmp_path):
    models = [random_model(seed) for seed in range(first, first + BATCH)]
    packages = Packages(tmp_path)
    packages.prepare(models)
    for seed, model in enumerate(models, first):
        assert run_model(model, packages.get(model)) == "", f"seed {seed}: {model.describe()}"
