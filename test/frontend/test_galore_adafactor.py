# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GaLore-Adafactor beside its authors' formulas, with singular vectors by torch; without a rank
beside transformers' of Stepc, to the bit."""

import copy
import math

import pytest
import torch
from common import Written, bits_equal, clone_params, make_params, set_grads, train
from stepc.torch import GaLoreAdafactor
from stepc.torch.hf import Adafactor
from test_galore import PROJECTIONS, SHAPES, VECTORS, WrittenGaLore, groups_of

FIXED = {"lr": 0.01, "relative_step": False}


class WrittenAdafactor(Written):
    """The authors' adafactor.py."""

    defaults = {
        "lr": None, "eps": (1e-30, 1e-3), "clip_threshold": 1.0, "decay_rate": -0.8,
        "beta1": None, "weight_decay": 0.0, "scale_parameter": True, "relative_step": True,
        "warmup_init": False,
    }  # fmt: skip
    bases = WrittenGaLore.bases

    def rate(self, p, group, step):
        rate = group["lr"]
        if group["relative_step"]:
            rate = min(1e-6 * step if group["warmup_init"] else 1e-2, 1 / math.sqrt(step))
        size = float(p.norm(2) / p.numel() ** 0.5)
        return rate * max(group["eps"][1], size) if group["scale_parameter"] else rate

    def step_one(self, p, group, step=0, bases=None, **kept):
        wide = torch.promote_types(p.dtype, torch.float32)
        g = p.grad.to(wide)
        if "rank" in group:
            if step % group["update_proj_gap"] == 0:
                bases = self.bases(g, group)
            left, right = bases
            g = g if left is None else left.mT @ g
            g = g if right is None else g @ right
        step += 1
        rate, weight = self.rate(p.to(wide), group, step), step ** group["decay_rate"]
        square = g**2 + group["eps"][0]
        if g.dim() < 2:
            moved = {"exp_avg_sq": square}
        else:
            moved = {"exp_avg_sq_row": square.mean(-1), "exp_avg_sq_col": square.mean(-2)}
        moved = {n: (1 - weight) * kept.get(n, 0.0) + weight * v for n, v in moved.items()}
        if g.dim() < 2:
            u = g * moved["exp_avg_sq"].rsqrt()
        else:
            rows, columns = moved["exp_avg_sq_row"], moved["exp_avg_sq_col"]
            by_row = (rows / rows.mean(-1, keepdim=True)).rsqrt().unsqueeze(-1)
            u = g * by_row * columns.rsqrt().unsqueeze(-2)
        size = float(u.norm(2) / u.numel() ** 0.5)
        u = u / max(1.0, size / group["clip_threshold"]) * rate
        if group["beta1"] is not None:
            u = group["beta1"] * kept.get("exp_avg", 0.0) + (1 - group["beta1"]) * u
            moved["exp_avg"] = u
        if "rank" in group:
            u = u if left is None else left @ u
            u = u if right is None else u @ right.mT
            u = u * group["scale"]
        p.copy_(p.to(wide) * (1 - group["weight_decay"] * rate) - u)
        return {"step": step, "bases": bases, **moved}


def assert_near(optimizer, ours, written, theirs, tolerance):
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)
        other = dict(written.state[q])
        bases = [b for b in other.pop("bases") or () if b is not None]
        other |= dict(zip(("projection", "projection_right"), bases, strict=False))
        own = optimizer.state[p]
        assert set(own) == set(other)
        for name in set(other) - {"step"}:
            assert own[name].shape == other[name].shape, name
            expected = other[name].to(own[name].dtype)
            size = float(expected.abs().max())
            torch.testing.assert_close(own[name], expected, rtol=tolerance, atol=tolerance * size)


def run(steps=20, dtype=torch.float64, tolerance=1e-8, group=None, **more):
    """Steps of ours and of the formulas from the same gradients."""
    shapes, low = [*SHAPES, *VECTORS], len(SHAPES)
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    group = group or {}
    optimizer = GaLoreAdafactor(groups_of(ours[:low], ours[low:], **group), **more)
    written = WrittenAdafactor(groups_of(theirs[:low], theirs[low:], **group), **more)
    train((optimizer, written), (ours, theirs), steps)
    assert_near(optimizer, ours, written, theirs, tolerance)


@pytest.mark.parametrize("rank", [3, 100])
@pytest.mark.parametrize("proj_type", PROJECTIONS)
def test_as_the_formulas(proj_type, rank):
    # In its own bases, as "full" has both of, a gradient has zeros beside the diagonal.
    eps = (1e-8, 1e-3) if proj_type == "full" else (1e-30, 1e-3)
    run(group={"proj_type": proj_type, "rank": rank}, beta1=0.8, eps=eps)


@pytest.mark.parametrize(
    "more",
    [
        {}, FIXED, {"warmup_init": True, "weight_decay": 0.3},
        {**FIXED, "scale_parameter": False, "weight_decay": 0.2, "clip_threshold": 0.3},
        {"decay_rate": -0.5, "eps": (1e-2, 2.0), "beta1": 0.5},
    ],
    ids=str,
)  # fmt: skip
def test_hyper_parameters(more):
    run(steps=10, **more)


def test_in_single_precision():
    run(dtype=torch.float32, tolerance=2e-5, steps=10, beta1=0.9)


def test_without_a_rank_it_is_transformers():
    shapes = [(12, 7), (2, 3, 4), (5,), ()]
    ours, theirs = make_params(shapes), make_params(shapes)
    more = {"beta1": 0.9, "weight_decay": 0.1}
    pair = GaLoreAdafactor(ours, **more), Adafactor(theirs, **more)
    train(pair, (ours, theirs), 5)
    assert bits_equal(ours, theirs)
    for p, q in zip(ours, theirs, strict=True):
        one, other = pair[0].state[p], pair[1].state[q]
        assert list(one) == list(other) and bits_equal(one.values(), other.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_resumed_in_the_middle_of_a_gap(dtype):
    params = make_params(SHAPES, dtype)
    one = GaLoreAdafactor(groups_of(params, [], update_proj_gap=5), beta1=0.9)
    train((one,), (params,), 7)
    mirror = clone_params(params)
    other = GaLoreAdafactor(groups_of(mirror, [], rank=1))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    train((one, other), (params, mirror), 5, first=7)
    assert bits_equal(params, mirror)
    assert other.state[mirror[0]]["exp_avg_sq_col"].shape == (3,)


def test_a_gradient_of_zeros():
    """eps1 alone is in the factors; nothing but the decay moves."""
    params = make_params(SHAPES)
    optimizer = GaLoreAdafactor(groups_of(params, []), **FIXED, weight_decay=0.5,
                                scale_parameter=False)  # fmt: skip
    before = [p.detach().clone() for p in params]
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    for param, old in zip(params, before, strict=True):
        torch.testing.assert_close(param.detach(), old * 0.995)


def test_the_rate_that_a_schedule_reports():
    """transformers' AdafactorSchedule asks for it: of the whole parameter."""
    (param,) = make_params([(12, 7)], torch.float64)
    optimizer = GaLoreAdafactor(groups_of([param], []))
    train((optimizer,), ([param],), 1)
    size = float(param.detach().square().mean().sqrt())
    group = optimizer.param_groups[0]
    assert optimizer._get_lr(group, optimizer.state[param]) == pytest.approx(1e-2 * size)


@pytest.mark.parametrize(
    ("more", "group", "words"),
    [
        ({"lr": 0.1}, {}, "Cannot combine manual `lr` and `relative_step=True` options"),
        ({"lr": 0.1, "relative_step": False, "warmup_init": True}, {},
         "`warmup_init=True` requires `relative_step=True`"),
        ({}, {"rank": 0}, "rank is 0, expected a whole number from 1 on"),
        ({}, {"update_proj_gap": 0}, "update_proj_gap is 0, expected a whole number"),
        ({}, {"proj_type": "up"}, "proj_type is 'up', expected one of std, reverse_std"),
        ({}, {"dim": 3}, "dim is 3, expected 2: only matrices are projected"),
    ],
    ids=str,
)  # fmt: skip
def test_refused(more, group, words):
    with pytest.raises(ValueError, match=words):
        GaLoreAdafactor(groups_of(make_params([(4, 3)]), [], **group), **more)


def test_vectors_have_no_rank():
    optimizer = GaLoreAdafactor(make_params([(4, 3)]))
    with pytest.raises(ValueError, match=r"parameter 0 of a group with rank 3 has shape \(5,\)"):
        optimizer.add_param_group({"params": make_params([(5,)]), "rank": 3})
    assert len(optimizer.param_groups) == 1
    set_grads(optimizer.param_groups[0]["params"])
    optimizer.step()
