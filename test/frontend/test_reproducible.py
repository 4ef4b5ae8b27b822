# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``reproducible=True``: sums whose bits do not depend on the order of additions."""

import copy
import subprocess
from pathlib import Path

import pytest
import stepc.torch
import torch
from common import bits_equal, make_params, set_grads
from stepc import errors
from stepc._compiler import find_compiler

ZOO = Path(__file__).resolve().parents[2] / "frontend" / "optimizers"
SHAPES = [(7, 5), (130, 70), (33,), (3, 4, 5), (1,), (64, 9)]
CLIP = stepc.torch.ClipByNorm(0.1)


def train(params, order=1, **keywords):
    """Some clipped steps with the parameters in this order, or backwards."""
    optimizer = stepc.torch.AdamW(params[::order], lr=0.1, clip=CLIP, **keywords)
    for step in range(3):
        set_grads(params, seed=step)
        optimizer.step()
    return optimizer


def doubles():
    return [torch.nn.Parameter(p.detach().double()) for p in make_params(SHAPES)]


def test_the_order_of_parameters_is_of_no_account():
    one, other = doubles(), doubles()
    norms = [train(p, o, reproducible=True).last_step.grad_norm for p, o in ((one, 1), (other, -1))]
    assert bits_equal(one, other)
    assert norms[0] == norms[1]


def test_it_is_near_to_what_it_is_without():
    one, other = doubles(), doubles()
    train(one, reproducible=True)
    train(other)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def test_copies_keep_it():
    optimizer = train(doubles(), reproducible=True)
    assert copy.deepcopy(optimizer)._reproducible is True
    assert train(doubles())._reproducible is False


def test_not_with_exclusive_writes():
    with pytest.raises(ValueError, match="reproducible=True makes sums in two traversals"):
        stepc.torch.hf.Adafactor(make_params(SHAPES), reproducible=True, exclusive_writes=True)


def test_a_package_must_be_made_so(tmp_path):
    sums = ZOO / "lamb.mlir"
    for name, flags in (("plain", []), ("made", ["--reproducible"])):
        command = [find_compiler(), sums, *flags, "-o", tmp_path / f"{name}.stepc"]
        subprocess.run(command, check=True)
    params = make_params(SHAPES)
    set_grads(params, seed=0)
    stepc.torch.Optimizer(params, tmp_path / "made.stepc", reproducible=True).step()
    with pytest.raises(errors.PackageError, match=r"plain.stepc' was compiled without --repro"):
        stepc.torch.Optimizer(params, tmp_path / "plain.stepc", reproducible=True)
