# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The LAMBs, whose libraries need a GPU: beside their formulas in float64."""

import copy
import math

import pytest
import torch
from common import bits_equal, clone_params, make_params, set_grads, states, train
from stepc.torch import apex, colossal, deepspeed

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 5), (33, 129), (200, 101)]


class Reference:
    """Moments in float64 of parameters that are stepped by ``formula(p, m, v, t)``."""

    def __init__(self, params, beta1=0.9, beta2=0.999):
        self.params = [p.detach().double() for p in params]
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.betas, self.t = (beta1, beta2), 0

    def step(self, grads, formula, averaging=True, divisor=1.0):
        beta1, beta2 = self.betas
        self.t += 1
        for p, g, m, v in zip(self.params, grads, self.m, self.v, strict=True):
            g = g.double() / divisor
            m.mul_(beta1).add_(g, alpha=1 - beta1 if averaging else 1.0)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            p.sub_(formula(p, m, v, self.t))


def ratio(p, u):
    return float(p.norm() / u.norm()) if p.norm() > 0 and u.norm() > 0 else 1.0


def deepspeed_formula(lr=1e-2, eps=1e-8, decay=0.0, low=0.01, high=10.0, inside=False, bias=True):
    def formula(p, m, v, t):
        u = m / ((v + eps).sqrt() if inside else v.sqrt() + eps) + decay * p
        rate = lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) if bias else lr
        trust = ratio(p, u)
        if p.norm() > 0 and u.norm() > 0:
            trust = min(max(trust, low), high)
        return rate * trust * u

    return formula


def apex_formula(lr=1e-2, eps=1e-6, decay=0.01, bias=True, nvlamb=False):
    def formula(p, m, v, t):
        c1, c2 = (1 - 0.9**t, 1 - 0.999**t) if bias else (1.0, 1.0)
        u = (m / c1) / ((v / c2).sqrt() + eps) + decay * p
        return lr * (ratio(p, u) if decay or nvlamb else 1.0) * u

    return formula


CASES = {
    "deepspeed": (deepspeed.FusedLamb, {}, deepspeed_formula()),
    "deepspeed-inside": (
        deepspeed.FusedLamb,
        {"eps_inside_sqrt": True, "weight_decay": 0.1, "bias_correction": False},
        deepspeed_formula(inside=True, decay=0.1, bias=False),
    ),
    "deepspeed-coeff": (
        deepspeed.FusedLamb,
        {"max_coeff": 0.3, "min_coeff": 0.2},
        deepspeed_formula(low=0.2, high=0.3),
    ),
    "colossal": (
        colossal.Lamb,
        {"weight_decay": 0.1},
        deepspeed_formula(eps=1e-6, decay=0.1, bias=False, low=0.0, high=math.inf),
    ),
    "colossal-bias": (
        colossal.Lamb,
        {"bias_correction": True},
        deepspeed_formula(eps=1e-6, low=0.0, high=math.inf),
    ),
    "colossal-adam": (
        colossal.Lamb,
        {"adam": True},
        deepspeed_formula(eps=1e-6, bias=False, low=1.0, high=1.0),
    ),
}
APEX = {
    "apex": ({}, apex_formula()),
    "apex-plain": ({"bias_correction": False, "weight_decay": 0.0}, apex_formula(1e-2, 1e-6, 0, 0)),
    "apex-nvlamb": ({"use_nvlamb": True, "weight_decay": 0.0}, apex_formula(decay=0, nvlamb=True)),
    "apex-free": ({"max_grad_norm": 0.0}, apex_formula()),
}


def assert_close(params, reference):
    for p, q in zip(params, reference.params, strict=True):
        torch.testing.assert_close(p.detach().double(), q, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_twenty_steps(case):
    kind, kwargs, formula = CASES[case]
    params = make_params(SHAPES)
    params[2].data.zero_()  # a ratio of 1
    reference = Reference(params)
    optimizer = kind(params, lr=1e-2, **kwargs)
    for step in range(20):
        set_grads(params, seed=step)
        reference.step([p.grad for p in params], formula)
        optimizer.step()
    assert_close(params, reference)
    assert all(s == 20 for s in states(optimizer, "step"))


@pytest.mark.parametrize("case", APEX)
def test_twenty_steps_of_apex(case):
    """It clips by the norm of all gradients."""
    kwargs, formula = APEX[case]
    params = make_params(SHAPES)
    reference = Reference(params)
    optimizer = apex.FusedLAMB(params, lr=1e-2, **kwargs)
    for step in range(20):
        set_grads(params, seed=step)
        norm = float(torch.nn.utils.get_total_norm([p.grad.double() for p in params]))
        limit = kwargs.get("max_grad_norm", 1.0)
        divisor = max(1.0, norm / limit) if limit else 1.0
        reference.step([p.grad for p in params], formula, divisor=divisor)
        optimizer.step()
        assert optimizer.last_step.grad_norm == pytest.approx(norm, rel=1e-6)
    assert_close(params, reference)


def test_norm_of_deepspeed():
    params = make_params(SHAPES)
    reference = Reference(params)
    optimizer = deepspeed.FusedLamb(params, lr=1e-2, max_grad_norm=0.5)
    for step in range(5):
        set_grads(params, seed=step)
        norm = float(torch.nn.utils.get_total_norm([p.grad.double() for p in params]))
        divisor = max(1.0, (norm + 1e-6) / 0.5)
        reference.step([p.grad for p in params], deepspeed_formula(), divisor=divisor)
        optimizer.step()
    assert_close(params, reference)


def test_count_of_a_group_of_apex():
    """apex keeps it in the group, and no count for a parameter."""
    params = make_params(SHAPES)
    a = apex.FusedLAMB([{"params": params[:4]}, {"params": params[4:]}], lr=1e-2)
    train((a,), (params,), 4)
    saved = copy.deepcopy(a.state_dict())
    assert [group["step"] for group in saved["param_groups"]] == [4, 4]
    assert "step" not in a.param_groups[0]
    for state in saved["state"].values():
        del state["step"]
    mirror = clone_params(params)
    b = apex.FusedLAMB([{"params": mirror[:4]}, {"params": mirror[4:]}])
    b.load_state_dict(saved)
    assert all(s == 4 for s in states(b, "step")) and "step" not in b.param_groups[0]
    train((a, b), (params, mirror), 3, first=4)
    assert bits_equal(params, mirror)


def test_max_grad_norm_is_one_for_all():
    """A group's own is not read, as by apex."""
    params = make_params(SHAPES)
    groups = [{"params": params[:4], "max_grad_norm": 7.0}, {"params": params[4:]}]
    twin = make_params(SHAPES)
    a, b = apex.FusedLAMB(groups, lr=1e-2), apex.FusedLAMB(twin, lr=1e-2)
    train((a, b), (params, twin), 3)
    assert bits_equal(params, twin)


@pytest.mark.parametrize("kind", [apex.FusedLAMB, deepspeed.FusedLamb, colossal.Lamb])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(kind, dtype):
    params = make_params(SHAPES, dtype)
    optimizer = kind(params, lr=1e-2)
    train((optimizer,), (params,), 3)
    wide = torch.promote_types(dtype, torch.float32)
    assert all(s.dtype == wide for s in states(optimizer, "exp_avg"))
    assert all(bool(p.isfinite().all()) for p in params)
