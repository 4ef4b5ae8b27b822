# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Averages and copies of the parameters, accumulation, and skipping, as arguments of every
class; averages beside torch.optim.swa_utils."""

import copy
import math
import pickle

import numpy as np
import pytest
import stepc.torch
import torch
from common import ZOO, bits_equal, clone_params, distance, make_params, set_grads, train
from stepc import errors
from stepc.torch import EMA, SWA, ClipByNorm, DynamicLossScale
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

SHAPES = [(3, 5), (7,), (33, 129), (20000,)]
KINDS = {
    "adamw": (stepc.torch.AdamW, {"lr": 1e-2}),
    "sgd": (stepc.torch.SGD, {"lr": 0.1, "momentum": 0.9}),
    "adafactor": (stepc.torch.hf.Adafactor, {"lr": 1e-2, "relative_step": False}),
    "lamb": (stepc.torch.colossal.Lamb, {"lr": 1e-2}),
    "file": (lambda p, **k: stepc.torch.Optimizer(p, ZOO / "lion.mlir", **k), {"lr": 1e-2}),
}
AVERAGES = {
    "ema": (lambda: EMA(0.9), lambda: get_ema_multi_avg_fn(0.9)),
    "swa": (SWA, get_swa_multi_avg_fn),
}


class Model(torch.nn.Module):
    def __init__(self, params):
        super().__init__()
        self.params = torch.nn.ParameterList(params)


def make(kind, params, **features):
    construct, kwargs = KINDS[kind]
    return construct(params, **kwargs, **features)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_like_averaged_model(kind, average):
    """Over 20 steps, of which some rest, behind the parameters of our own step."""
    ours, theirs = AVERAGES[average]
    params = make_params(SHAPES)
    optimizer = make(kind, params, average=ours())
    expected = AveragedModel(Model(params), multi_avg_fn=theirs())
    for step in range(20):
        optimizer.average.active = step % 7 != 3
        train((optimizer,), (params,), 1, first=step)
        if optimizer.average.active:
            expected.update_parameters(Model(params))
        assert optimizer.scalars["n_averaged"] == float(expected.n_averaged)
    assert distance(optimizer.averaged_parameters(), list(expected.parameters())) < 4
    assert not bits_equal(optimizer.averaged_parameters(), params)


@pytest.mark.parametrize("average", AVERAGES)
def test_the_update_is_the_same(average):
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a = make("adamw", ours, average=AVERAGES[average][0](), param_copy=torch.bfloat16)
    b = make("adamw", theirs)
    train((a, b), (ours, theirs), 3)
    assert bits_equal(ours, theirs)
    assert bits_equal(a.parameter_copies(), [p.detach().bfloat16() for p in theirs])


def test_bits_of_the_formula():
    """As the definition says, each operation rounded once."""
    params = make_params([(1000,)])
    optimizer = make("sgd", params, average=EMA(0.99))
    expected, weight = None, np.float32(1.0 - 0.99)
    for step in range(5):
        train((optimizer,), (params,), 1, first=step)
        value = params[0].detach().numpy().copy()
        expected = value if expected is None else expected + weight * (value - expected)
    assert np.array_equal(optimizer.averaged_parameters()[0].numpy(), expected)


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
@pytest.mark.parametrize("average", AVERAGES)
def test_saving(average, how):
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a, b = (make("adamw", p, average=AVERAGES[average][0]()) for p in (ours, theirs))
    train((a, b), (ours, theirs), 4)
    if how == "state_dict":
        state = copy.deepcopy(a.state_dict())
        a = make("adamw", ours, average=AVERAGES[average][0]())
        a.load_state_dict(state)
    else:
        again = copy.deepcopy(a) if how == "deepcopy" else pickle.loads(pickle.dumps(a))
        ours, a = [p for group in again.param_groups for p in group["params"]], again
    for step in range(4, 7):
        train((a, b), (ours, theirs), 1, first=step)
    assert bits_equal(ours, theirs)
    assert bits_equal(a.averaged_parameters(), b.averaged_parameters())
    assert a.scalars == b.scalars == {"n_averaged": 7.0}


@pytest.mark.parametrize("form", ["f32", "remainder"])
@pytest.mark.parametrize("average", AVERAGES)
def test_behind_masters(average, form):
    """Of the float32 that the parameters are rounded from, and as of float32 parameters."""
    params = make_params(SHAPES, torch.bfloat16)
    wide = [torch.nn.Parameter(p.detach().float()) for p in params]
    a = make("adamw", params, average=AVERAGES[average][0](), master=form)
    b = make("adamw", wide, average=AVERAGES[average][0]())
    for step in range(4):
        set_grads(params, seed=step)
        for param, other in zip(params, wide, strict=True):
            other.grad = param.grad.float()
        a.step()
        b.step()
    assert bits_equal(a.averaged_parameters(), b.averaged_parameters())
    again = make_params(SHAPES, torch.bfloat16)
    other = make("adamw", again, average=AVERAGES[average][0](), master=form)
    other.load_state_dict(copy.deepcopy(a.state_dict()))
    assert bits_equal(a.averaged_parameters(), other.averaged_parameters())


def test_a_parameter_that_joins_later():
    """Its average was the parameter until then, as torch's."""
    params = make_params(SHAPES)
    optimizer = make("adamw", params, average=EMA(0.9))
    expected = AveragedModel(Model(params), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for step in range(6):
        set_grads(params, seed=step)
        if step < 3:
            params[1].grad = None
        optimizer.step()
        expected.update_parameters(Model(params))
        if step < 3:
            assert optimizer.averaged_parameters()[1] is params[1]
    assert distance(optimizer.averaged_parameters(), list(expected.parameters())) < 4


def test_a_checkpoint_without_averages():
    ours = make_params(SHAPES)
    plain = make("adamw", ours)
    train((plain,), (ours,), 2)
    optimizer = make("adamw", ours, average=SWA())
    optimizer.load_state_dict(plain.state_dict())
    expected = AveragedModel(Model(ours))
    for step in range(2, 5):
        train((optimizer,), (ours,), 1, first=step)
        expected.update_parameters(Model(ours))
    assert optimizer.state[ours[0]]["step"] == 5
    assert distance(optimizer.averaged_parameters(), list(expected.parameters())) < 4


def test_a_skipped_step_averages_nothing():
    params = make_params(SHAPES)
    optimizer = make("adamw", params, average=EMA(0.5), loss_scale=DynamicLossScale(4.0))
    train((optimizer,), (params,), 2)
    before = [a.clone() for a in optimizer.averaged_parameters()]
    params[0].grad[0, 0] = math.inf
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.scalars["n_averaged"] == 2.0
    assert bits_equal(before, optimizer.averaged_parameters())


def test_the_model_with_its_averages():
    params = make_params(SHAPES, dtype=torch.bfloat16)
    optimizer = make("sgd", params, average=EMA(0.5))
    train((optimizer,), (params,), 3)
    before = [p.detach().clone() for p in params]
    averages = [a.bfloat16() for a in optimizer.averaged_parameters()]
    assert optimizer.averaged_parameters()[0].dtype is torch.float32
    with pytest.raises(ZeroDivisionError), optimizer.averaged():
        assert bits_equal(params, averages) and not bits_equal(params, before)
        with pytest.raises(errors.StepcError, match="have the values of their averages"):
            optimizer.step()
        with pytest.raises(errors.StepcError, match="behind averaged"), optimizer.averaged():
            pass
        raise ZeroDivisionError
    assert bits_equal(params, before)
    train((optimizer,), (params,), 1)


def test_the_copies_stay_the_same_tensors():
    params = make_params(SHAPES)
    optimizer = make("sgd", params, param_copy=torch.bfloat16)
    assert optimizer.parameter_copies() == [None] * len(params)
    train((optimizer,), (params,), 1)
    copies = optimizer.parameter_copies()
    train((optimizer,), (params,), 1, first=1)
    assert all(a is b for a, b in zip(copies, optimizer.parameter_copies(), strict=True))
    assert bits_equal(copies, [p.detach().bfloat16() for p in params])
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    train((optimizer,), (params,), 1, first=2)
    assert bits_equal(optimizer.parameter_copies(), [p.detach().bfloat16() for p in params])


@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
def test_accumulation(kind):
    """The mean of four passes; 4 is a power of two, so the bits are the same."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    clip = {"clip": ClipByNorm(0.5)}
    a, b = make(kind, ours, accumulation_steps=4, **clip), make(kind, theirs, **clip)
    for steps in (4, 4, 8):
        a.accumulation_steps = steps
        set_grads(ours, theirs, seed=steps)
        for p in ours:
            p.grad.mul_(steps)
        a.step()
        b.step()
        assert a.last_step.grad_norm == b.last_step.grad_norm
    assert bits_equal(ours, theirs)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_skipping(bad):
    params = make_params(SHAPES)
    optimizer = make("adamw", params, skip_nonfinite=True, clip=ClipByNorm(1.0))
    train((optimizer,), (params,), 2)
    before = clone_params(params)
    params[2].grad[1, 1] = bad
    optimizer.step()
    assert optimizer.last_step.skipped and bits_equal(before, params)
    assert optimizer.state[params[0]]["step"] == 2
    train((optimizer,), (params,), 1)
    assert optimizer.state[params[0]]["step"] == 3


@pytest.mark.parametrize(
    ("features", "kind", "words"),
    [
        ({"average": 0.9}, TypeError, r"average is 0.9, expected EMA\(\), SWA\(\) or None"),
        ({"accumulation_steps": 0}, ValueError, "accumulation_steps is 0, expected a positive"),
        ({"accumulation_steps": 1.5}, ValueError, "accumulation_steps is 1.5"),
        ({"param_copy": torch.float64}, ValueError, "param_copy is torch.float64, expected"),
    ],
)
def test_refused(features, kind, words):
    with pytest.raises(kind, match=words):
        make("adamw", make_params([(3,)]), **features)


def test_refused_later():
    with pytest.raises(ValueError, match="decay is 1.5, expected a number from 0 to 1"):
        EMA(1.5)
    optimizer = make("adamw", make_params([(3,)]))
    assert optimizer.average is None and optimizer.accumulation_steps == 1
    with pytest.raises(ValueError, match="made without average"):
        optimizer.averaged_parameters()
    with pytest.raises(ValueError, match="made without param_copy"):
        optimizer.parameter_copies()
    with pytest.raises(ValueError, match="made without accumulation_steps"):
        optimizer.accumulation_steps = 2
