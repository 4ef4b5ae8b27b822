# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages made with --certify-clipping: the same bits, whether or not the traversal for
the root mean square of the update is left out."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import stepc.torch
import torch
from driver import STEPC
from oracle import store
from papers import HYPERS
from steps import Case, Definition, Group, Packages, Tensor, check

# The zoo's definitions have no traversal for it: they find the mean column by column.
PLAIN = Path(__file__).parent / "Inputs" / "plain_adafactor.mlir"
SHAPES = [(65, 33), (130, 1025), (2, 70, 40), (1, 5), (3, 1), (7,)]
MATRICES = 3  # in which the mean of several rows and columns says something


@pytest.mark.parametrize("storages", [("f32", "f32", "f32"), ("bf16", "bf16", "f32")], ids="-".join)
def test_bits(storages, tmp_path):
    """Thresholds under which nothing, some and all is clipped, beside the interpreter."""
    definition = Definition(PLAIN, flags=["--certify-clipping"])
    rng, cases = np.random.default_rng(5), []
    for threshold in (0.3, 1.0, 4.0):
        tensors = []
        for shape in [(65, 33), (2, 70, 40), (130, 1025), (0, 3)]:
            arrays = {
                name: store(rng.standard_normal(shape).astype("f4"), storage)
                for name, storage in zip(("param", "grad"), storages, strict=False)
            }
            tensors.append(Tensor(shape, storages, arrays, count=3, fresh=True))
        group = Group(hypers={**HYPERS["adafactor"], "clip_threshold": threshold})
        cases.append(Case(definition, [group], tensors, steps=3, threads=2))
    failures = check(cases, Packages(tmp_path))
    assert not failures, "\n".join(failures)


class Pair:
    """The same parameters, stepped by a plain and by a certified package."""

    def __init__(self, folder, threshold):
        generator = torch.Generator().manual_seed(3)
        self.optimizers, self.params = [], []
        begin = [0.02 * torch.randn(shape, generator=generator) for shape in SHAPES]
        for flag in ([], ["--certify-clipping"]):
            package = folder / f"plain{len(flag)}.stepc"
            options = subprocess.run(
                [STEPC, PLAIN, "-o", package, *flag],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert options.returncode == 0, options.stderr
            params = [torch.nn.Parameter(tensor.clone()) for tensor in begin]
            self.params.append(params)
            self.optimizers.append(
                stepc.torch.Optimizer(params, package, lr=1e-2, clip_threshold=threshold)
            )

    def step(self, gradients):
        for params, optimizer in zip(self.params, self.optimizers, strict=True):
            for param, gradient in zip(params, gradients, strict=True):
                param.grad = gradient.clone()
            optimizer.step()
        for plain, certified in zip(*self.params, strict=True):
            assert torch.equal(plain.nan_to_num(7.0), certified.nan_to_num(7.0))

    def left_out(self):
        plain, certified = (one._binding.plan.info().leftOut for one in self.optimizers)
        assert plain == 0
        return certified


def draw(generator, scale=1.0):
    return [scale * torch.randn(shape, generator=generator) for shape in SHAPES]


def test_left_out_where_proved(tmp_path):
    generator, pair = torch.Generator().manual_seed(1), Pair(tmp_path, 100.0)
    pair.step(draw(generator))
    assert pair.left_out() == 0  # nothing is known of a step before
    for _ in range(3):
        pair.step(draw(generator))
    assert pair.left_out() >= MATRICES
    pair.step(draw(generator, 30.0))  # a burst: where the bound says nothing, it is not used
    pair.step([torch.zeros(shape) for shape in SHAPES])
    broken = draw(generator)
    broken[0][3, 4], broken[1][0, 0], broken[2][1, 1, 1] = torch.nan, torch.inf, -torch.inf
    pair.step(broken)
    assert pair.left_out() <= len(SHAPES) - MATRICES


def test_not_left_out_where_it_clips(tmp_path):
    generator, pair = torch.Generator().manual_seed(2), Pair(tmp_path, 0.3)
    for _ in range(4):
        pair.step(draw(generator))
        assert pair.left_out() == 0
