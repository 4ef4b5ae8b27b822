# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fifty steps beside torch's own optimizers: differences of the size of rounding.

Differences are in units of the last place (see ``common.distance``) and printed
(``pytest -rP``). The bounds are about three times what is seen; a formula that
is wrong anywhere is off by thousands.
"""

import pytest
import stepc.torch
import torch
from common import clone_params, distance, make_params, set_grads, states, train

STEPS = 50
ADAMW = {
    "default": {},
    "all": {"lr": 3e-3, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.2},
    "amsgrad": {"lr": 1e-2, "amsgrad": True},
    "maximize": {"maximize": True, "weight_decay": 0.3},
    "no decay": {"weight_decay": 0.0},
}
SGD = {
    "plain": {"lr": 0.1},
    "momentum": {"lr": 0.05, "momentum": 0.9},
    "dampening": {"lr": 0.05, "momentum": 0.8, "dampening": 0.3},
    "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "decay": {"lr": 0.05, "weight_decay": 0.1},
    "all": {"lr": 0.05, "momentum": 0.7, "weight_decay": 0.1, "maximize": True},
}
CASES = [("AdamW", name, kwargs) for name, kwargs in ADAMW.items()]
CASES += [("SGD", name, kwargs) for name, kwargs in SGD.items()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("kind", "name", "kwargs"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_fifty_steps(kind, name, kwargs, dtype):
    ours = make_params(dtype=dtype)
    theirs = clone_params(ours)
    a = getattr(stepc.torch, kind)(ours, **kwargs)
    b = getattr(torch.optim, kind)(theirs, **kwargs)
    train((a, b), (ours, theirs), STEPS)
    apart = {"parameters": distance(ours, theirs)}
    for state in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer"):
        if states(b, state):
            assert len(states(a, state)) == len(ours)
            apart[state] = distance(states(a, state), states(b, state))
    assert [len(s) for s in a.state.values()] == [len(s) for s in b.state.values()]
    print(f"{kind} {name} {dtype}: " + ", ".join(f"{k} {v:.1f} ulp" for k, v in apart.items()))
    assert max(apart.values()) < 50


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_bf16_parameters_with_f32_state(kind):
    """As torch in f32 on the same gradients, the parameter rounded at each step."""
    kwargs = {"AdamW": {"lr": 1e-2}, "SGD": {"lr": 0.1, "momentum": 0.9}}[kind]
    ours = make_params(dtype=torch.bfloat16)
    exact = [torch.nn.Parameter(p.detach().float()) for p in ours]
    a = getattr(stepc.torch, kind)(ours, **kwargs)
    b = getattr(torch.optim, kind)(exact, **kwargs)
    for step in range(STEPS):
        set_grads(ours, seed=step)
        for p, q in zip(ours, exact, strict=True):
            q.grad = p.grad.float()
        a.step()
        b.step()
        with torch.no_grad():
            for q in exact:
                q.copy_(q.bfloat16())
    for state in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
        assert all(s.dtype == torch.float32 for s in states(a, state))
        if states(b, state):
            assert distance(states(a, state), states(b, state)) < 50
    apart = distance(ours, [q.detach().bfloat16() for q in exact])
    same = sum(int((p == q.bfloat16()).sum()) for p, q in zip(ours, exact, strict=True))
    total = sum(p.numel() for p in ours)
    print(f"{kind} bfloat16: {apart:.1f} ulp, {same} of {total} elements equal")
    assert apart <= 4 and same > 0.99 * total


def lion_reference(param, state, lr, betas, weight_decay):
    """The authors' code, on f64."""
    param.mul_(1 - lr * weight_decay)
    update = state * betas[0] + param.grad * (1 - betas[0])
    param.add_(torch.sign(update), alpha=-lr)
    state.mul_(betas[1]).add_(param.grad, alpha=1 - betas[1])


def test_lion_against_its_authors_code():
    kwargs = {"lr": 1e-2, "betas": (0.85, 0.97), "weight_decay": 0.1}
    ours = make_params(dtype=torch.float64)
    theirs = clone_params(ours)
    a = stepc.torch.Lion(ours, **kwargs)
    momenta = [torch.zeros_like(p) for p in theirs]
    for step in range(STEPS):
        set_grads(ours, theirs, seed=step)
        a.step()
        with torch.no_grad():
            for p, m in zip(theirs, momenta, strict=True):
                lion_reference(p, m, **kwargs)
    apart = distance(ours, theirs), distance(states(a, "exp_avg"), momenta)
    print(f"Lion float64: {apart[0]:.1f}, {apart[1]:.1f} ulp")
    assert max(apart) < 50


def test_strides():
    """Views of every kind, as parameters and as gradients."""

    def views(seed):
        g = torch.Generator().manual_seed(seed)
        base = torch.randn(40, 60, generator=g)
        return [
            base[:8, :10].t(),
            base[8:16:2, 0:30:3],
            base[16:24, 5],
            torch.randn(2, 3, 5, 7, generator=g).to(memory_format=torch.channels_last),
            torch.randn(5, 4, 3, generator=g).permute(2, 0, 1),
            torch.randn(6, 1, 4, generator=g).transpose(0, 2),
        ]

    ours = [torch.nn.Parameter(v) for v in views(0)]
    theirs = [torch.nn.Parameter(v.clone()) for v in views(0)]
    assert not any(p.is_contiguous() for p in ours[:3])
    a = stepc.torch.AdamW(ours, lr=1e-2)
    b = torch.optim.AdamW(theirs, lr=1e-2)
    for step in range(10):
        for p, q, v in zip(ours, theirs, views(step + 1), strict=True):
            p.grad = v if step % 2 else v.contiguous()
            q.grad = v.clone()
        a.step()
        b.step()
    assert distance(ours, theirs) < 50
    for p, q in zip(ours, theirs, strict=True):
        ones = torch.zeros_like(p, memory_format=torch.preserve_format)
        assert a.state[p]["exp_avg"].stride() == ones.stride()
        assert a.state[p]["exp_avg"].shape == q.shape


def test_large_tensor():
    """Larger than the limit for common blocks; states of its own."""
    ours = [torch.nn.Parameter(torch.linspace(-1, 1, 300 * 257).view(300, 257))]
    theirs = clone_params(ours)
    a, b = stepc.torch.AdamW(ours), torch.optim.AdamW(theirs)
    train((a, b), (ours, theirs), 5)
    assert distance(ours, theirs) < 50
    assert a.state[ours[0]]["exp_avg"]._base is None


def test_mixed_in_one_optimizer():
    """All dtypes, strides and options in one object, one plan, one package."""
    one = make_params([(5,), (4, 6)], torch.float32)
    two = make_params([(3, 3), (70,)], torch.bfloat16, seed=1)
    three = make_params([(9,), (2, 2)], torch.float64, seed=2)
    groups = [
        {"params": [one[0], two[0], three[0]], "lr": 1e-2},
        {"params": [one[1], two[1], three[1]], "amsgrad": True, "maximize": True},
    ]
    a = stepc.torch.AdamW(groups)
    solo = {}
    for p, kwargs in [
        *((p, {"lr": 1e-2}) for p in groups[0]["params"]),
        *((p, {"amsgrad": True, "maximize": True}) for p in groups[1]["params"]),
    ]:
        copy = clone_params([p])
        solo[p] = (copy, stepc.torch.AdamW(copy, **kwargs))
    for step in range(5):
        for p, (copy, optimizer) in solo.items():
            set_grads([p], copy, seed=step)
            optimizer.step()
        a.step()
    for p, (copy, _) in solo.items():
        assert p.detach().equal(copy[0].detach())
    info = a._binding.plan.info()
    assert info.steps == 5 and info.parallelRegions <= 5
    assert info.numTensors == 6
