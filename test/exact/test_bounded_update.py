# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's Adafactor bounds 1 / sqrt(V) by 1 / eps1. Where the bound acts nowhere in a matrix,
the mean square of its update is found along with the columns and a traversal is left out;
where it may act, it is not. Both have the interpreter's bits, and torch's values."""

import numpy as np
import pytest
import stepc.torch
import torch
from definitions import Definition
from oracle import ZOO, store
from papers import HYPERS
from steps import Case, Group, Packages, Tensor, check

SHAPES = [(65, 33), (130, 1025), (2, 70, 40), (66, 4200)]


def plain(gradient):
    return gradient


def row_of_zeros(gradient):
    gradient[..., 1, :] = 0
    return gradient


def column_of_zeros(gradient):
    gradient[..., 2] = 0
    return gradient


def tiny(gradient):
    return gradient * 1e-9


def broken(gradient):
    gradient[..., 1, 2] = float("nan")
    return gradient


KINDS = [plain, row_of_zeros, column_of_zeros, tiny]


@pytest.mark.parametrize("flag", [None, "--reproducible", "--exclusive-writes"])
@pytest.mark.parametrize("storages", [("f32", "f32", "f32"), ("bf16", "bf16", "f32")], ids="-".join)
def test_bits(storages, flag, tmp_path):
    definition = Definition(ZOO / "torch_adafactor.mlir", flags=[flag] if flag else [])
    rng, cases = np.random.default_rng(6), []
    for kind in [*KINDS, broken]:
        tensors = []
        for shape in [*SHAPES, (0, 3), (1, 5)]:
            values = rng.standard_normal(shape).astype("f4"), rng.standard_normal(shape)
            gradient = values[1].astype("f4")
            # A first step: nothing is in the states that would hide the zeros.
            arrays = {
                "param": store(values[0], storages[0]),
                "grad": store(kind(gradient) if min(shape) > 3 else gradient, storages[1]),
            }
            tensors.append(Tensor(shape, storages, arrays, count=1, fresh=True))
        group = Group(hypers={**HYPERS["torch_adafactor"], "eps1": 1e-7})
        cases.append(Case(definition, [group], tensors, steps=2, threads=2))
    failures = check(cases, Packages(tmp_path))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kind", KINDS)
def test_left_out_where_the_bound_does_not_act(kind):
    """Which traversals are left out, beside torch's own Adafactor."""
    generator = torch.Generator().manual_seed(4)
    begin = [0.02 * torch.randn(shape, generator=generator) for shape in SHAPES]
    ours, theirs = ([torch.nn.Parameter(t.clone()) for t in begin] for _ in range(2))
    optimizer = stepc.torch.Adafactor(ours, lr=1e-2)
    original = torch.optim.Adafactor(theirs, lr=1e-2, foreach=False)
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = kind(torch.randn(mine.shape, generator=generator))
            other.grad = mine.grad.clone()
        optimizer.step()
        original.step()
        left_out = optimizer._binding.plan.info().leftOut
        assert left_out == (len(SHAPES) if kind is plain else 0)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)
