# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Twenty steps beside the original classes: parameters, states, checkpoints."""

import copy
import pickle

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, make_params, set_grads, train
from stepc.torch import came, hf

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 5), (130,), (33, 129), (200, 101)]


def theirs_hf(params, **kwargs):
    return pytest.importorskip("transformers.optimization").Adafactor(params, **kwargs)


def theirs_came(params, **kwargs):
    return pytest.importorskip("came_pytorch").CAME(params, **kwargs)


def theirs_lars(params, **kwargs):
    return pytest.importorskip("pytorch_optimizer").LARS(params, **kwargs)


FIXED = {"lr": 1e-2, "relative_step": False}
CASES = {
    "torch": (stepc.torch.Adafactor, torch.optim.Adafactor, {}),
    "torch-decay": (
        stepc.torch.Adafactor,
        torch.optim.Adafactor,
        {"lr": 0.1, "weight_decay": 0.1, "d": 2.0, "eps": (1e-20, 1e-2), "beta2_decay": -0.5},
    ),
    "torch-maximize": (stepc.torch.Adafactor, torch.optim.Adafactor, {"maximize": True}),
    "hf": (hf.Adafactor, theirs_hf, {}),
    "hf-warmup": (hf.Adafactor, theirs_hf, {"warmup_init": True, "clip_threshold": 0.5}),
    "hf-fixed": (hf.Adafactor, theirs_hf, {**FIXED, "scale_parameter": False}),
    "hf-momentum": (hf.Adafactor, theirs_hf, {**FIXED, "beta1": 0.9, "weight_decay": 0.1}),
    "came": (came.CAME, theirs_came, {"lr": 1e-2}),
    "came-decay": (came.CAME, theirs_came, {"lr": 1e-2, "weight_decay": 0.1}),
    "lars": (stepc.torch.LARS, theirs_lars, {"lr": 0.1, "weight_decay": 0.1}),
    "lars-nesterov": (stepc.torch.LARS, theirs_lars, {"lr": 0.1, "nesterov": True}),
    "lars-plain": (stepc.torch.LARS, theirs_lars, {"lr": 0.1, "momentum": 0.0}),
}
each_case = pytest.mark.parametrize("case", CASES)
kept = pytest.mark.parametrize("case", ["torch-decay", "hf", "hf-momentum", "came", "lars"])


def pair(case, shapes=SHAPES, dtype=torch.float32):
    """Ours and theirs, with parameters that are equal."""
    ours_class, theirs_class, kwargs = CASES[case]
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    return ours, theirs, ours_class(ours, **kwargs), theirs_class(theirs, **kwargs)


def assert_near(left, right, limit=2e-5):
    """Differences beside the larger of an element and the mean magnitude: where
    values cancel, small ones have the error of large ones."""
    left, right = left.detach().double(), right.detach().double()
    scale = torch.maximum(right.abs(), right.abs().mean()).clamp(min=1e-30)
    assert float(((left - right).abs() / scale).max()) < limit


def assert_close(ours, theirs):
    for left, right in zip(ours, theirs, strict=True):
        assert_near(left, right)


def assert_states_close(a, b, ours, theirs):
    """All that the original keeps from step to step is there, alike in shape."""
    for p, q in zip(ours, theirs, strict=True):
        left, right = a.state[p], b.state[q]
        names = set(right) - a._transient_states
        assert set(left) == names
        for name in names - {"step"}:
            assert left[name].shape == right[name].shape
            assert_near(left[name], right[name], 1e-4)
        if "step" in names:
            assert float(left["step"]) == float(right["step"])


@each_case
def test_twenty_steps(case):
    ours, theirs, a, b = pair(case)
    train((a,), (ours,), 20)
    train((b,), (theirs,), 20)
    assert_close(ours, theirs)
    assert_states_close(a, b, ours, theirs)


@pytest.mark.parametrize("case", ["torch-decay", "hf", "hf-momentum", "came", "lars"])
def test_f64(case):
    ours, theirs, a, b = pair(case, dtype=torch.float64)
    train((a,), (ours,), 20)
    train((b,), (theirs,), 20)
    for p, q in zip(ours, theirs, strict=True):
        assert_near(p, q, 1e-12)
    kinds = {v.dtype for s in a.state.values() for k, v in s.items() if k != "step"}
    assert kinds == {torch.float64}


@each_case
def test_bf16(case):
    """Compared with the original on f32 copies, rounded after each step: the originals
    differ in what they keep in bf16."""
    ours, theirs, a, b = pair(case, dtype=torch.bfloat16)
    wide = [torch.nn.Parameter(p.detach().float()) for p in theirs]
    kwargs = CASES[case][2]
    if "torch" in case:
        kwargs = {"eps": (torch.finfo(torch.bfloat16).eps, 1e-3), **kwargs}
    b = CASES[case][1](wide, **kwargs)
    for step in range(10):
        set_grads(ours, seed=step)
        for p, q in zip(ours, wide, strict=True):
            q.grad = p.grad.float()
        a.step()
        b.step()
        for q in wide:
            q.data = q.data.bfloat16().float()
    for p, q in zip(ours, wide, strict=True):
        torch.testing.assert_close(p.detach().float(), q.detach(), rtol=2e-2, atol=2e-3)


@kept
def test_checkpoint_of_the_original(case):
    ours, theirs, a, b = pair(case)
    train((b,), (theirs,), 5)
    for p, q in zip(ours, theirs, strict=True):
        p.data.copy_(q.data)
    a.load_state_dict(copy.deepcopy(b.state_dict()))
    assert_states_close(a, b, ours, theirs)
    train((a,), (ours,), 5, first=5)
    train((b,), (theirs,), 5, first=5)
    assert_close(ours, theirs)
    assert_states_close(a, b, ours, theirs)


@kept
def test_checkpoint_for_the_original(case):
    ours, theirs, a, b = pair(case)
    train((a,), (ours,), 5)
    for p, q in zip(ours, theirs, strict=True):
        q.data.copy_(p.data)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    train((a,), (ours,), 5, first=5)
    train((b,), (theirs,), 5, first=5)
    assert_close(ours, theirs)


@kept
def test_resume_is_no_resume(case):
    whole, half, a, _ = pair(case)
    b = CASES[case][0](half, **CASES[case][2])
    train((a,), (whole,), 10)
    train((b,), (half,), 5)
    saved = copy.deepcopy(b.state_dict())
    resumed = clone_params(half)
    c = CASES[case][0](resumed, **CASES[case][2])
    c.load_state_dict(saved)
    train((c,), (resumed,), 5, first=5)
    assert bits_equal(whole, resumed)
    for p, q in zip(whole, resumed, strict=True):
        assert bits_equal(list(a.state[p].values()), list(c.state[q].values()))


@kept
@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_go_on(case, how):
    ours, _, a, _ = pair(case)
    train((a,), (ours,), 3)
    again = how(a)
    mirror = again.param_groups[0]["params"]
    train((a, again), (ours, mirror), 3, first=3)
    assert bits_equal(ours, mirror)


@kept
def test_missing_gradients_and_frozen_parameters(case):
    """Skipped, with no state; counts are each parameter's own."""
    ours, theirs, a, b = pair(case, [(3, 5), (7,), (4, 6), (2, 3, 4)])
    for params in (ours, theirs):
        params[3].requires_grad_(False)
    for step in range(6):
        set_grads(ours, theirs, seed=step)
        for params in (ours, theirs):
            params[3].grad = None
            params[0].grad = None if step in (0, 3) else params[0].grad
            params[1].grad = None if step < 5 else params[1].grad
        before = ours[0].detach().clone()
        a.step()
        b.step()
        assert (ours[3] not in a.state) and (step >= 5 or ours[1] not in a.state)
        assert step not in (0, 3) or ours[0].equal(before)
    assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("case", "other"),
    [
        ("torch", {"lr": 0.5, "weight_decay": 0.2, "d": 3.0}),
        ("hf-fixed", {"lr": 0.5, "beta1": 0.5, "scale_parameter": True}),
        ("came", {"lr": 0.5, "betas": (0.5, 0.9, 0.99)}),
        ("lars", {"lr": 0.5, "momentum": 0.0, "trust_coefficient": 0.1}),
    ],
)
def test_groups_with_their_own_values(case, other):
    ours_class, theirs_class, kwargs = CASES[case]
    lists = [make_params(seed=s) for _ in range(2) for s in (0, 1)]
    lists = [[p for p in params if p.numel()] for params in lists]
    a = ours_class([{"params": lists[0]}, {"params": lists[1], **other}], **kwargs)
    b = theirs_class([{"params": lists[2]}, {"params": lists[3], **other}], **kwargs)
    train((a,), (lists[0] + lists[1],), 5)
    train((b,), (lists[2] + lists[3],), 5)
    assert_close(lists[0] + lists[1], lists[2] + lists[3])
    a.param_groups[1]["lr"] = b.param_groups[1]["lr"] = 0.25
    train((a,), (lists[0] + lists[1],), 2, first=5)
    train((b,), (lists[2] + lists[3],), 2, first=5)
    assert_close(lists[0] + lists[1], lists[2] + lists[3])


@kept
def test_empty_tensors(case):
    """The originals divide by zero; here nothing happens to them."""
    ours_class, _, kwargs = CASES[case]
    params = make_params([(0,), (0, 3), (3, 0), (2, 3)])
    optimizer = ours_class(params, **kwargs)
    before = params[3].detach().clone()
    train((optimizer,), (params,), 3)
    assert not params[3].equal(before) and bool(params[3].isfinite().all())


def test_strided_parameters():
    ours, theirs, a, b = pair("hf", [(5, 7), (3, 4, 6)])
    for params in (ours, theirs):
        for p in params:
            p.data = p.data.transpose(-1, -2).contiguous().transpose(-1, -2)
    train((a,), (ours,), 5)
    train((b,), (theirs,), 5)
    assert not ours[0].is_contiguous()
    assert_close(ours, theirs)
    assert_states_close(a, b, ours, theirs)


def test_closure_and_maximize():
    params = make_params([(3, 5)])
    optimizer = stepc.torch.Adafactor(params)

    def closure():
        optimizer.zero_grad()
        loss = params[0].square().sum()
        loss.backward()
        return loss.detach()

    first = float(optimizer.step(closure))
    assert float(optimizer.step(closure)) < first


def test_schedule_of_transformers():
    """It asks the optimizer for the rates that it reports."""
    schedules = pytest.importorskip("transformers.optimization")
    ours, theirs, a, b = pair("hf-warmup", [(3, 5), (7,)])
    left, right = schedules.AdafactorSchedule(a, 0.5), schedules.AdafactorSchedule(b, 0.5)
    assert left.get_lr() == right.get_lr() == [0.5]
    for step in range(3):
        train((a,), (ours,), 1, first=step)
        train((b,), (theirs,), 1, first=step)
        left.step()
        right.step()
        # Theirs is by the parameter before the step.
        assert left.get_lr()[0] == pytest.approx(float(right.get_lr()[0]), rel=1e-3)
    assert_close(ours, theirs)
