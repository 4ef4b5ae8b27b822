# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every optimizer of torch with what Stepc adds to all: clipping and loss scaling inside
the step, averages and copies, and gradients that stay where they are. Beside torch's
functions and loop."""

import copy
import types

import pytest
import stepc.torch
import torch
from common import ZOO, bits_equal, clone_params, distance, make_params, set_grads, train
from torch.optim import swa_utils
from torch_table import ULPS, ULPS_OF, assert_agree, default_dtype, each_optimizer, ours, theirs

MANY = [(3,), (2, 4), (5, 2)]
SCALE = 1024.0
# Nothing falls back to torch's own step, which neither clips nor unscales.
pytestmark = pytest.mark.filterwarnings("error:stepc:RuntimeWarning")


@pytest.fixture(autouse=True)
def in_f64():
    with default_dtype(torch.float64):
        yield


def kwargs_of(name):
    """With a momentum where there may be one."""
    return {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}


@each_optimizer
def test_unscaled_and_clipped(name):
    """By value and then by the norm of all, of gradients of a scaled loss."""
    left = make_params(MANY, torch.float64)
    right = clone_params(left)
    clip = [stepc.torch.ClipByValue(0.9), stepc.torch.ClipByNorm(0.5)]
    a = ours(name, left, **kwargs_of(name), clip=clip, loss_scale=SCALE)
    b = theirs(name, right, **kwargs_of(name))
    for step in range(6):
        set_grads(left, right, seed=step)
        torch.nn.utils.clip_grad_value_(right, 0.9)
        norm = torch.nn.utils.clip_grad_norm_(right, 0.5)
        for param in left:
            param.grad *= SCALE
        a.step()
        b.step()
        assert a.last_step.grad_norm == pytest.approx(norm.item(), rel=1e-12)
    assert_agree((left, a), (right, b))


@each_optimizer
def test_an_overflow_changes_nothing(name):
    """No parameter, state or count; and in a first step it makes no state."""
    left = make_params(MANY, torch.float64)
    right = clone_params(left)
    scale = stepc.torch.DynamicLossScale(SCALE)
    a = ours(name, left, **kwargs_of(name), loss_scale=scale)
    b = theirs(name, right, **kwargs_of(name))
    scales = []
    for step in range(7):
        overflows = step in (0, 3)
        set_grads(left, right, seed=step)
        for param in left:
            param.grad *= a.loss_scale
        before = clone_params(left)
        if overflows:
            left[1].grad[0, 1] = float("nan" if step else "inf")
        else:
            b.step()
        a.step()
        assert a.last_step.skipped is overflows
        assert bits_equal(left, before) is overflows
        scales.append(a.loss_scale)
        assert_agree((left, a), (right, b))
    assert scales == [SCALE / 2] * 3 + [SCALE / 4] * 4


@each_optimizer
def test_static_gradients(name):
    left = make_params(MANY, torch.float64)
    right = clone_params(left)
    a = ours(name, left, **kwargs_of(name), static_grads=True)
    b = ours(name, right, **kwargs_of(name))
    set_grads(left, right)
    for step in range(4):
        for p, q in zip(left, right, strict=True):
            p.grad.fill_(0.1 * (step - 1.5))
            q.grad = p.grad.clone()
        a.step()
        b.step()
    assert bits_equal(left, right)


AVERAGES = {
    "ema": (stepc.torch.EMA(0.9), swa_utils.get_ema_multi_avg_fn(0.9)),
    "swa": (stepc.torch.SWA(), swa_utils.get_swa_multi_avg_fn()),
}


@pytest.mark.parametrize("kind", AVERAGES)
@each_optimizer
def test_averaged_accumulated_and_copied(name, kind):
    """All at once: sums of three backward passes, of which torch's step is given the mean,
    averages behind each step, and copies in float32."""
    average, rule = AVERAGES[kind]
    left = make_params(MANY, torch.float64)
    right = clone_params(left)
    given = {"average": copy.copy(average), "param_copy": torch.float32}
    a = ours(name, left, **kwargs_of(name), accumulation_steps=3, **given)
    b = theirs(name, right, **kwargs_of(name))
    expected = swa_utils.AveragedModel(torch.nn.ParameterList(right), multi_avg_fn=rule)
    for step in range(4):
        set_grads(right, seed=step)
        for param, other in zip(left, right, strict=True):
            param.grad = torch.zeros_like(param)
            for part in (0.5, 1.5, 1.0):
                param.grad += part * other.grad
        a.step()
        b.step()
        expected.update_parameters(torch.nn.ParameterList(right))
        assert a.scalars["n_averaged"] == float(expected.n_averaged)
    own = {p: {k: v for k, v in a.state[p].items() if k not in (kind, "param_copy")} for p in left}
    assert_agree((left, types.SimpleNamespace(state=own)), (right, b))
    limit = ULPS_OF.get(name, ULPS)
    assert distance(a.averaged_parameters(), list(expected.parameters())) < limit
    assert not bits_equal(a.averaged_parameters(), left)
    assert bits_equal(a.parameter_copies(), [p.detach().float() for p in left])


@each_optimizer
def test_as_a_file(name):
    """The definition itself, for those who change it: states have their kept dims."""
    mine = getattr(stepc.torch, name)
    left = make_params(MANY)
    right = clone_params(left)
    a = ours(name, left)
    path = ZOO / f"{mine._zoo_name}.mlir"
    values = dict(zip(mine._hypers, a._read_hypers(a.param_groups[0]), strict=True))
    b = stepc.torch.Optimizer(right, path, **values)
    train((a, b), (left, right), 4)
    assert bits_equal(left, right)
    for key in mine._scalar_states:
        assert b.state[right[0]][key].shape == (1,)
        assert torch.equal(b.state[right[0]][key][0], a.state[left[0]][key])
