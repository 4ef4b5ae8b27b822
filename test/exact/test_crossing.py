# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Derived options: a hyper-parameter that crosses zero selects another variant."""

import pytest
from driver import STORAGES, Tensors, make_tensors
from formulas import HYPERS
from stepc import errors

SHAPES = [(0,), (1,), (77,), (5, 6)]
SGD = HYPERS["sgd"]


@pytest.mark.parametrize("storages", STORAGES[:3], ids="-".join)
@pytest.mark.parametrize("hyper", ["momentum", "weight_decay"])
def test_set_hypers_across_zero_needs_a_bind(hyper, storages, packages, checker):
    for start, end in [(SGD[hyper], 0.0), (0.0, SGD[hyper])]:
        hypers = {**SGD, hyper: start}
        tensors = make_tensors("sgd", storages, hypers, {}, SHAPES)
        tensors.bind(packages("sgd", storages[2]), fresh=True)
        tensors.step(checker)
        with pytest.raises(errors.NeedsBindError, match=hyper):
            tensors.plan.set_hypers(0, tuple({**hypers, hyper: end}.values()))
        # Nothing has changed: the next step is as the last.
        tensors.step(checker)


@pytest.mark.parametrize("storages", STORAGES[:3], ids="-".join)
def test_set_hypers_without_a_crossing(storages, packages, checker):
    tensors = make_tensors("sgd", storages, SGD, {}, SHAPES)
    tensors.bind(packages("sgd", storages[2]), fresh=True)
    for momentum in [SGD["momentum"], 1e-300, -0.5, 0.99]:
        tensors.hypers = {**SGD, "momentum": momentum}
        tensors.plan.set_hypers(0, tuple(tensors.hypers.values()))
        tensors.new_gradients(int(100 * momentum) % 7)
        tensors.step(checker)


@pytest.mark.parametrize("storages", STORAGES[:3], ids="-".join)
def test_momentum_crosses_zero_and_comes_back(storages, packages, checker):
    package = packages("sgd", storages[2])
    first = make_tensors("sgd", storages, SGD, {"nesterov": True}, SHAPES)
    rows = first.rows
    buffers = [row["momentum_buffer"] for row in rows]
    for round_, momentum in enumerate([0.9, 0.0, -0.0, 0.3]):
        hypers = {**SGD, "momentum": momentum}
        names = ["param", "grad"] + (["momentum_buffer"] if momentum else [])
        parts = [{name: row[name] for name in names} for row in rows]
        tensors = Tensors("sgd", storages, hypers, {"nesterov": True}, parts)
        tensors.bind(package, count=round_, fresh=round_ == 0)
        tensors.new_gradients(round_)
        before = [buffer.memory.copy() for buffer in buffers]
        tensors.step(checker)
        if not momentum:
            assert all((b.memory == m).all() for b, m in zip(buffers, before, strict=True))
