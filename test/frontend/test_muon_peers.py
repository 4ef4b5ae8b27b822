# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keller Jordan's and Moonshot's Muon beside their sources in plain torch, with all that is in
bfloat16 there in the parameter's dtype. test_written_out.py has what becomes of infinities."""

import copy
import math
import warnings

import pytest
import torch
from common import Written, bits_equal, clone_params, make_params, set_grads, train
from stepc.torch import Muon, moonlight, muon

MATRICES = [(12, 7), (7, 12), (9, 9), (1, 6), (6, 1), (33, 65)]
BATCHES = [(3, 4, 5), (2, 6, 3)]
OTHERS = [(5,), (), (2, 3)]


def orthogonalized(u, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u.mT if u.shape[-2] > u.shape[-1] else u
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if u.shape[-2] > u.shape[-1] else x


def adam(g, step, m, v, betas):
    """The averages, and what they are divided by for their weights' sums."""
    m, v = m + (1 - betas[0]) * (g - m), v + (1 - betas[1]) * (g * g - v)
    return m, v, 1 - betas[0] ** step, 1 - betas[1] ** step


class Jordan(Written):
    """muon.py. A gradient that is missing is of zeros."""

    defaults = {"weight_decay": 0, "use_muon": True}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        super().step()

    def step_one(self, p, group, step=0, m=0.0, v=0.0):
        g = p.grad.to(torch.promote_types(p.dtype, torch.float32))
        kept = p.to(g.dtype) * (1 - group["lr"] * group["weight_decay"])
        if group["use_muon"]:
            m = m + (1 - group["momentum"]) * (g - m)
            u = orthogonalized(g + group["momentum"] * (m - g))
            u = u * math.sqrt(max(1, g.shape[-2] / g.shape[-1]))
        else:
            m, v, c1, c2 = adam(g, step + 1, m, v, group["betas"])
            u = m / c1 / ((v / c2).sqrt() + group["eps"])
        p.copy_(kept - group["lr"] * u)
        return {"step": step + 1, "m": m, "v": v}


class Moonshot(Written):
    """examples/toy_train.py, of groups."""

    defaults = {"nesterov": True}

    def step_one(self, p, group, step=0, m=0.0, v=0.0):
        g = p.grad.to(torch.promote_types(p.dtype, torch.float32))
        kept = p.to(g.dtype) * (1 - group["lr"] * group["wd"])
        if group["use_muon"]:
            m = group["momentum"] * m + g
            u = g + group["momentum"] * m if group["nesterov"] else m
            u = orthogonalized(u, group.get("ns_steps", 5))
            u = 0.2 * math.sqrt(max(g.shape)) * u
        else:
            m, v, c1, c2 = adam(g, step + 1, m, v, group["adamw_betas"])
            u = m / (group["adamw_eps"] + v.sqrt()) / (c1 / c2**0.5)
        p.copy_(kept - group["lr"] * u)
        return {"step": step + 1, "m": m, "v": v}


def pairs_of(shapes):
    return make_params(shapes, torch.float64), make_params(shapes, torch.float64)


def assert_near(optimizer, ours, written, theirs, names, tolerance=1e-9):
    for p, q in zip(ours, theirs, strict=True):
        own, other = optimizer.state[p], written.state[q]
        pairs = [(p.detach(), q.detach())]
        pairs += [(own[n], other[k]) for n, k in names.items() if n in own]
        assert len(pairs) > 1 and int(own["step"]) == other["step"]
        for one, two in pairs:
            size = float(two.abs().max())
            two = two.to(one.dtype)
            torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance * size)


OF_JORDAN = {"momentum_buffer": "m", "exp_avg": "m", "exp_avg_sq": "v"}
OF_MOONSHOT = {"momentum_buffer": "m", "moment1": "m", "moment2": "v"}


def jordan_groups(params, low):
    return [
        {"params": params[:low], "use_muon": True, "lr": 0.05, "momentum": 0.9,
         "weight_decay": 0.1},
        {"params": params[low:], "use_muon": False, "lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3,
         "weight_decay": 0.2},
    ]  # fmt: skip


def test_jordans():
    """With batches of matrices, each with a norm of its own, and gradients that are missing: their
    parameters decay and move all the same."""
    shapes = [*MATRICES, *BATCHES, *OTHERS]
    low = len(shapes) - len(OTHERS)
    ours, theirs = pairs_of(shapes)
    optimizer = muon.SingleDeviceMuonWithAuxAdam(jordan_groups(ours, low))
    written = Jordan(jordan_groups(theirs, low))
    for step in range(12):
        set_grads(ours, theirs, seed=step)
        if step in (0, 5):
            for params in (ours, theirs):
                params[1].grad = params[6].grad = params[-1].grad = None
        optimizer.step()
        written.step()
    assert_near(optimizer, ours, written, theirs, OF_JORDAN)


def test_a_closure_comes_before_zeros():
    """What it gives is not taken for missing."""
    ours, theirs = pairs_of([(3, 4)])
    optimizer = muon.SingleDeviceMuon(ours)
    written = Jordan(theirs, lr=0.02, momentum=0.95)

    def closure():
        set_grads(ours, theirs)
        return 2.5

    assert optimizer.step(closure) == 2.5
    written.step()
    assert_near(optimizer, ours, written, theirs, OF_JORDAN)


def test_within_the_backward_pass_what_is_missing_is_left_out():
    params = make_params([(3, 4), (4, 3)])
    optimizer = muon.SingleDeviceMuon(params, weight_decay=0.5, fused_backward=True)
    before = params[1].detach().clone()
    params[0].square().sum().backward()
    optimizer.step()
    assert params[1].equal(before) and params[1].grad is None
    assert params[0].grad is None and "momentum_buffer" in optimizer.state[params[0]]


@pytest.mark.parametrize("kind", [muon.Muon, muon.MuonWithAuxAdam])
def test_the_largest_are_first(kind):
    """As in the author's distributed classes, which number saved states so."""
    params = make_params([(3, 4), (7, 2), (3, 5)])
    groups = params if kind is muon.Muon else [{"params": params, "use_muon": True}]
    optimizer = kind(groups)
    assert [tuple(p.shape) for p in optimizer.param_groups[0]["params"]] == [(7, 2), (3, 5), (3, 4)]
    named = [(str(k), p) for k, p in enumerate(make_params([(3, 4), (7, 2)]))]
    optimizer = muon.Muon(named)
    assert optimizer.param_groups[0]["param_names"] == ["1", "0"]


def test_defaults_of_jordans_groups():
    params = make_params([(3, 4), (5,)])
    groups = [{"params": params[:1], "use_muon": True}, {"params": params[1], "use_muon": False}]
    optimizer = muon.MuonWithAuxAdam(groups)
    own = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert own == [
        {"use_muon": True, "lr": 0.02, "momentum": 0.95, "weight_decay": 0},
        {"use_muon": False, "lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0},
    ]
    assert muon.Muon(params[:1]).defaults == {"lr": 0.02, "weight_decay": 0, "momentum": 0.95}


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({}, "a group has no 'use_muon', expected True or False"),
        ({"use_muon": True, "betas": (0.9, 0.9)},
         "a group with use_muon=True has 'betas', expected lr, momentum, weight_decay"),
        ({"use_muon": False, "momentum": 0.9, "nesterov": True},
         "use_muon=False has 'momentum', 'nesterov', expected lr, betas, eps, weight_decay"),
        ({"use_muon": True, "momentum": 1.0}, "Invalid momentum value: 1.0"),
        ({"use_muon": True, "lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"use_muon": False, "betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        ({"use_muon": False, "eps": -1.0}, "Invalid epsilon value: -1.0"),
        ({"use_muon": False, "weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
    ],
    ids=str,
)  # fmt: skip
def test_refused_groups_of_jordans(group, words):
    params = make_params([(4, 3)])
    with pytest.raises(ValueError, match=words):
        muon.MuonWithAuxAdam([{"params": params, **group}])
    optimizer = muon.SingleDeviceMuonWithAuxAdam([{"params": params, "use_muon": True}])
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group({"params": make_params([(4, 3)]), **group})
    assert len(optimizer.param_groups) == 1


def test_what_is_no_matrix_is_refused():
    (conv,) = make_params([(8, 3, 2, 5)])
    words = r"'conv' has shape \(8, 3, 2, 5\), .* own, with view='o i h w -> o \(i h w\)'"
    with pytest.raises(ValueError, match=words):
        muon.Muon([("conv", conv), ("matrix", make_params([(3, 4)])[0])])
    with pytest.raises(ValueError, match="expected a matrix: give others as adamw_params"):
        moonlight.Muon(muon_params=[conv])
    with pytest.raises(ValueError, match=r"shape \(4,\), expected a matrix: give others"):
        muon.SingleDeviceMuon(make_params([(4,)]))
    for shape in ((4,), (2, 3, 3)):
        with pytest.raises(ValueError, match="expected a matrix: give others as adamw_params"):
            moonlight.Muon(muon_params=make_params([shape]))


def test_kernels_of_convolutions():
    """As muon.py flattens them. Its scale is of height and width, 1 where these are the same; ours,
    of the rows and columns that are seen, is 1 too where there are no more rows. Where it is
    another one somebody has to say so."""
    ours, theirs = pairs_of([(5, 3, 2, 2), (12, 3, 2, 2)])
    optimizer = muon.SingleDeviceMuon(ours)
    assert optimizer.param_groups[0]["view"] == "o i h w -> o (i h w)"
    buffers = [torch.zeros_like(q) for q in theirs]
    for step in range(5):
        set_grads(ours, theirs, seed=step)
        optimizer.step()
        with torch.no_grad():
            for q, m in zip(theirs, buffers, strict=True):
                m.lerp_(q.grad, 1 - 0.95)
                update = q.grad.lerp(m, 0.95)
                u = orthogonalized(update.view(len(update), -1))
                u = u * max(1, q.size(-2) / q.size(-1)) ** 0.5
                q.add_(u.reshape(q.shape), alpha=-0.02)
    for p, q, m in zip(ours, theirs, buffers, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(optimizer.state[p]["momentum_buffer"], m)
    for shape, words in (((13, 3, 2, 2), "2 / 2, .* 13 / 12"), ((3, 2, 3, 2), "3 / 2, .* 3 / 12")):
        with pytest.raises(ValueError, match=f"by its height and width, {words}; view="):
            optimizer.add_param_group({"params": make_params([shape])})
        optimizer.add_param_group({"params": make_params([shape]), "view": "o i h w -> o (i h w)"})


def moonshots(params, low, **more):
    return moonlight.Muon(muon_params=params[:low], adamw_params=params[low:], **more)


@pytest.mark.parametrize(
    "more",
    [{"lr": 0.03, "wd": 0.2, "adamw_betas": (0.5, 0.7), "adamw_eps": 1e-2},
     {"nesterov": False, "momentum": 0.8, "ns_steps": 3}],
    ids=str,
)  # fmt: skip
def test_moonshots(more):
    """A gradient that is missing leaves its parameter out."""
    shapes, low = [*MATRICES, *OTHERS], len(MATRICES)
    ours, theirs = pairs_of(shapes)
    optimizer = moonshots(ours, low, **more)
    written = Moonshot(
        [{"params": theirs[:low], "use_muon": True}, {"params": theirs[low:], "use_muon": False}],
        **{k: v for k, v in optimizer.defaults.items() if k != "use_muon"},
    )
    for step in range(12):
        set_grads(ours, theirs, seed=step)
        if step in (0, 5):
            for params in (ours, theirs):
                params[1].grad = params[-1].grad = None
        optimizer.step()
        written.step()
    assert_near(optimizer, ours, written, theirs, OF_MOONSHOT)


def test_a_state_of_moonshots_loads():
    """Of one group, in which states say whose a parameter is."""
    ours = make_params([(3, 4), (4, 3), (5,)])
    optimizer = moonshots(ours, 2, lr=0.1)
    train((optimizer,), (ours,), 3)
    saved = copy.deepcopy(optimizer.state_dict())
    first, second = saved["param_groups"]
    first["params"] += second["params"]
    del first["use_muon"]
    for number, own in saved["state"].items():
        own["use_muon"] = number < 2
        if number < 2:
            del own["step"]
    saved["param_groups"] = [first]
    twins = clone_params(ours)
    again = moonshots(twins, 2)
    again.load_state_dict(saved)
    assert [g["lr"] for g in again.param_groups] == [0.1, 0.1]
    train((optimizer, again), (ours, twins), 2, first=3)
    assert bits_equal(ours, twins)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        moonshots(make_params([(3, 4), (4, 3), (5,), (2,)]), 2).load_state_dict(saved)


def test_the_number_of_steps_is_that_of_matrices():
    """Not of a group of others, nor of none, that is before theirs."""
    matrix, vector, other, twin = make_params([(5, 6), (7,), (5, 6), (5, 6)])
    twin.data.copy_(matrix.data)
    optimizer = moonlight.Muon(adamw_params=[vector])
    optimizer.add_param_group({"params": [matrix], "use_muon": True, "ns_steps": 3})
    alone = moonlight.Muon(muon_params=[twin], ns_steps=3)
    set_grads([matrix, vector])
    twin.grad = matrix.grad.clone()
    optimizer.step()
    alone.step()
    assert bits_equal([matrix], [twin])
    optimizer = Muon([{"params": []}, {"params": [other], "ns_steps": 3}])
    set_grads([other])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def test_numbers_of_steps_that_are_refused():
    params = make_params([(3, 4), (4, 3)])
    with pytest.raises(ValueError, match="ns_steps is 100, expected a number from 0 to 99"):
        moonlight.Muon(muon_params=params, ns_steps=100)
    optimizer = moonlight.Muon(muon_params=params[:1])
    optimizer.add_param_group({"params": params[1:], "ns_steps": 4})
    set_grads(params)
    before = clone_params(params)
    with pytest.raises(ValueError, match="ns_steps is 4, and 5 of others, expected one number"):
        optimizer.step()
    optimizer.param_groups[1]["ns_steps"] = -1
    with pytest.raises(ValueError, match="ns_steps is -1, expected a number from 0 to 99"):
        optimizer.step()
    assert bits_equal(params, before)
