# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fragments that clip and unscale gradients, beside torch's functions.

In front of gradient descent with a rate of 1 from 0, so that the new parameter is
the gradient that the optimizer saw, negated.
"""

import itertools

import numpy as np
import pytest
import torch
from models import run_definition
from oracle import ZOO
from papers import Group, Tensor

SHAPES = [(5,), (3, 7), (2, 3, 5), (0,), (), (1, 1)]
PLAIN = {"lr": 1.0, "weight_decay": 0.0}


def seen(fragments, grads, hypers, storages=("f64",) * 3):
    """The gradients after the fragments, of tensors in two groups; and the run."""
    half = len(grads) // 2
    own = [grads[:half], grads[half:]]
    groups = [Group({**PLAIN, **hypers}, [Tensor(np.zeros(g.shape)) for g in part]) for part in own]
    files = [ZOO / "lomo.mlir", *(ZOO / "fragments" / f"{name}.mlir" for name in fragments)]
    run = run_definition(files, groups, {}, [own], storages=storages)
    return [-t.param for group in run.groups for t in group.tensors], run


def make_grads(size=1.0, spoil=None):
    rng = np.random.default_rng(5)
    grads = [np.asarray(rng.standard_normal(shape) * size) for shape in SHAPES]
    if spoil is not None:
        grads[1][1, 2] = spoil
    return grads


def clipped_by_torch(grads, max_norm, kind):
    params = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.tensor(grad)
    # torch's infinity norm does not take a tensor without elements.
    full = [p for p in params if p.numel() > 0]
    norm = torch.nn.utils.clip_grad_norm_(full, max_norm, norm_type=kind, foreach=False)
    return [p.grad.numpy() for p in params], norm.item()


@pytest.mark.parametrize("spoil", [None, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("max_norm", [0.5, 1e3, 0.0])
@pytest.mark.parametrize(("name", "kind"), [("clip_by_norm", 2.0), ("clip_by_inf_norm", np.inf)])
def test_clipping_by_a_norm(name, kind, max_norm, spoil):
    grads = make_grads(spoil=spoil)
    actual, run = seen([name], grads, {"max_norm": max_norm})
    expected, norm = clipped_by_torch(grads, max_norm, kind)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    np.testing.assert_allclose(run.report("grad_norm"), [norm], rtol=1e-14)


@pytest.mark.parametrize("name", ["clip_by_norm", "clip_by_inf_norm"])
def test_no_gradient_at_all(name):
    grads = [np.zeros(3), np.zeros((0, 4))]
    actual, run = seen([name], grads, {"max_norm": 1.0})
    np.testing.assert_array_equal(actual[0], np.zeros(3))
    np.testing.assert_array_equal(run.report("grad_norm"), [0.0])


def test_clipping_by_value():
    grads = make_grads(spoil=np.nan)
    grads[2][0, 0, :3] = [np.inf, -np.inf, -0.0]
    actual, _ = seen(["clip_by_value"], grads, {"clip_value": 0.4})
    params = [torch.nn.Parameter(torch.zeros(g.shape, dtype=torch.float64)) for g in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = torch.tensor(grad)
    torch.nn.utils.clip_grad_value_(params, 0.4, foreach=False)
    for one, param in zip(actual, params, strict=True):
        np.testing.assert_array_equal(one, param.grad.numpy())


def test_unscale():
    grads = make_grads(size=700.0)
    actual, _ = seen(["unscale"], grads, {"loss_scale": 3.0})
    for one, grad in zip(actual, grads, strict=True):
        np.testing.assert_array_equal(one, grad / 3.0)


def test_all_in_order():
    grads = make_grads(size=1000.0)
    hypers = {"loss_scale": 1024.0, "clip_value": 0.7, "max_norm": 1.5}
    actual, run = seen(["unscale", "clip_by_value", "clip_by_norm"], grads, hypers)
    bounded = [np.clip(g / 1024.0, -0.7, 0.7) for g in grads]
    expected, norm = clipped_by_torch(bounded, 1.5, 2.0)
    assert norm > 1.5
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    np.testing.assert_allclose(run.report("grad_norm"), [norm], rtol=1e-14)


def test_two_that_have_the_same_names():
    """The second has its fragment's name before what is taken."""
    grads = make_grads(size=5.0)
    hypers = {"max_norm": 3.0, "clip_by_norm.max_norm": 2.0}
    actual, run = seen(["clip_by_inf_norm", "clip_by_norm"], grads, hypers)
    first, largest = clipped_by_torch(grads, 3.0, np.inf)
    second, norm = clipped_by_torch(first, 2.0, 2.0)
    for one, other in zip(actual, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    np.testing.assert_allclose(run.report("grad_norm"), [largest], rtol=1e-14)
    np.testing.assert_allclose(run.report("clip_by_norm.grad_norm"), [norm], rtol=1e-14)


@pytest.mark.parametrize("scaler", ["torch_scaler", "deepspeed_scaler", "colossal_scaler"])
def test_a_scaler_before_clipping(scaler):
    """The norm is that of unscaled gradients; a step that overflows changes nothing."""
    start = 2.0**32 if scaler == "deepspeed_scaler" else 65536.0
    grads = make_grads()
    scaled = [g * start for g in grads]
    actual, run = seen([scaler, "clip_by_norm"], scaled, {"max_norm": 1.0})
    expected, norm = clipped_by_torch(grads, 1.0, 2.0)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)
    np.testing.assert_allclose(run.report("grad_norm"), [norm], rtol=1e-14)
    assert not run.skipped.any()
    scaled[1][0, 0] = np.inf
    actual, run = seen([scaler, "clip_by_norm"], scaled, {"max_norm": 1.0})
    assert run.skipped.all()
    assert not any(one.any() for one in itertools.chain(actual))


def test_f32_rounds_the_squares():
    grads = make_grads(size=37.0)
    actual, run = seen(["clip_by_norm"], grads, {"max_norm": 1.0}, storages=("f32",) * 3)
    expected, norm = clipped_by_torch(grads, 1.0, 2.0)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(run.report("grad_norm"), [norm], rtol=1e-6)
