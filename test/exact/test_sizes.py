# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps have the interpreter's bits: sizes, places, options, numbers."""

import itertools

import numpy as np
import pytest
from driver import STORAGES, make_tensors
from formulas import HYPERS, OPTIONS

NAMES = list(HYPERS)
SIZES = [(n,) for n in range(131)]
SMALL = [(n,) for n in (1, 7, 8, 31, 64, 130)]

storages_of_all = pytest.mark.parametrize("storages", STORAGES, ids="-".join)
names_of_all = pytest.mark.parametrize("name", NAMES)


def combinations(name):
    for values in itertools.product([False, True], repeat=len(OPTIONS[name])):
        yield dict(zip(OPTIONS[name], values, strict=True))


@pytest.mark.sample(one_of=3)
@storages_of_all
@names_of_all
def test_every_size_to_130_and_large_ones(name, storages, packages, checker):
    options = dict.fromkeys(OPTIONS[name], False)
    shapes = [*SIZES, (), (1000,), (4099,), (3, 0, 2), (5, 7, 11), (100003,)]
    tensors = make_tensors(name, storages, HYPERS[name], options, shapes)
    tensors.bind(packages(name, storages[2]), fresh=True)
    for seed in range(3):
        tensors.new_gradients(seed)
        tensors.step(checker)


@pytest.mark.sample(one_of=3)
@names_of_all  # in this order: another third than of the sizes
@storages_of_all
def test_sixteen_misalignments(name, storages, packages, checker):
    # Operand k of the row with offset o lies k * 5 elements further, so that
    # the operands of one tensor are misaligned differently, too.
    shapes = [(n,) for _ in range(16) for n in range(0, 131, 3)]
    per_offset = len(shapes) // 16

    def place(row, operand, shape):
        return {"offset": (row // per_offset + 5 * operand) % 16}

    options = dict.fromkeys(OPTIONS[name], False)
    tensors = make_tensors(name, storages, HYPERS[name], options, shapes, place, seed=1)
    tensors.bind(packages(name, storages[2]), count=4).step(checker)


@storages_of_all
@names_of_all
def test_every_combination_of_options(name, storages, packages, checker):
    changes = {"sgd": [{}, {"momentum": 0.0}, {"weight_decay": 0.0},
                       {"momentum": 0.0, "weight_decay": 0.0}, {"dampening": 0.0}]}  # fmt: skip
    for options in combinations(name):
        for change in changes.get(name, [{}]):
            hypers = {**HYPERS[name], **change}
            for count, fresh in [(0, True), (0, False), (41, False), (41, True)]:
                tensors = make_tensors(name, storages, hypers, options, SMALL, seed=count + fresh)
                tensors.bind(packages(name, storages[2]), count=count, fresh=fresh)
                tensors.step(checker)


EXTREMES = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e-300, 3e38, 1e300, 1 + 2**-24, 1 - 2**-53,
            float("inf"), float("nan")]  # fmt: skip


@pytest.mark.parametrize("storages", STORAGES[:3], ids="-".join)
@names_of_all
def test_hyper_parameters_at_the_edges(name, storages, packages, checker):
    options = dict.fromkeys(OPTIONS[name], False)
    for hyper, value in itertools.product(HYPERS[name], EXTREMES):
        hypers = {**HYPERS[name], hyper: value}
        tensors = make_tensors(name, storages, hypers, options, [(40,)], seed=2)
        tensors.bind(packages(name, storages[2]), count=9).step(checker)


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 2**31, 2**53, 2**62])
def test_counts(count, packages, checker):
    options = dict.fromkeys(OPTIONS["adamw"], True)
    for storages in STORAGES[:3]:
        tensors = make_tensors("adamw", storages, HYPERS["adamw"], options, SMALL, seed=3)
        tensors.bind(packages("adamw", storages[2]), count=count)
        tensors.step(checker)
        tensors.step(checker)


def test_random_hyper_parameters(packages, checker):
    rng = np.random.default_rng(4)
    for name, storages in itertools.product(NAMES, STORAGES[:3]):
        options = dict.fromkeys(OPTIONS[name], False)
        for _ in range(12):
            hypers = {
                key: float(rng.random() * 10.0 ** rng.integers(-6, 1)) for key in HYPERS[name]
            }
            tensors = make_tensors(name, storages, hypers, options, [(150,)], seed=5)
            tensors.bind(packages(name, storages[2]), count=int(rng.integers(0, 500)))
            tensors.step(checker)
