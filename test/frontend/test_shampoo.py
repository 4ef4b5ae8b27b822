# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shampoo beside the formulas of Meta's distributed_shampoo, with torch's decomposition.

A root does not depend on which eigenvectors are found. That of a singular factor has
epsilon^(-1/4) where gradients have had nothing yet, and multiplies what a rounding put there: so
float32 is compared with a larger epsilon, and roots that are older than a gradient, too.
"""

import copy
import enum
import math
import warnings

import pytest
import stepc.torch
import torch
from common import Written, bits_equal, clone_params, make_params, set_grads, train
from stepc.torch import Shampoo

# Square, tall, wide; a row, a column; and what has no factors.
SHAPES = [(9, 9), (12, 7), (7, 12), (2, 2), (1, 6), (6, 1), (1, 1), (5,), ()]
NO_FACTORS = "ignore:stepc. Shampoo has no factors"
pytestmark = pytest.mark.filterwarnings(NO_FACTORS)


def inverse_root(gram, exponent, epsilon):
    """matrix_inverse_root_eigen of distributed_shampoo, with its perturbation."""
    values, vectors = torch.linalg.eigh(gram + epsilon * torch.eye(len(gram), dtype=gram.dtype))
    if values.min() < epsilon:
        values = values - values.min() + epsilon
    return vectors * values**-exponent @ vectors.mT


class Formulas(Written):
    """distributed_shampoo.py and its preconditioner lists, where a block is a matrix. ``group`` as
    ours."""

    defaults = {
        "lr": 1e-2, "betas": (0.9, 1.0), "beta3": -1.0, "epsilon": 1e-12, "weight_decay": 0.0,
        "weight_decay_type": "decoupled", "max_preconditioner_dim": 1024, "peak_lr": 0.01,
        "precondition_frequency": 1, "start_preconditioning_step": -1,
        "use_bias_correction": True, "grafting_type": None, "grafting_beta2": None,
        "grafting_epsilon": 1e-10, "momentum": 0.0, "dampening": 0.0, "use_nesterov": False,
        "inverse_exponent_override": None,
    }  # fmt: skip

    def step_one(self, p, group, **state):
        g = p.grad.to(torch.promote_types(p.dtype, torch.float32))
        state = state or self.begin(g, group)
        state["step"] += 1
        kind, peak = group["weight_decay_type"], group["peak_lr"]
        decays = {"decoupled": 1.0, "corrected": group["lr"] / peak, "independent": 1 / peak}
        if kind == "l2":
            g = g + group["weight_decay"] * p
        self.move_factors(g, state, group)
        grafted = self.grafted(g, state, group)
        update = grafted + decays.get(kind, 0.0) * group["weight_decay"] * p
        if group["momentum"]:
            gain = (1 - group["dampening"]) * update
            state["momentum_buffer"] = group["momentum"] * state["momentum_buffer"] + gain
            update = state["momentum_buffer"]
            if group["use_nesterov"]:
                update = gain + group["momentum"] * update
        p.copy_(p.to(g.dtype) - group["lr"] * update)
        return state

    def begin(self, g, group):
        zeros = {name: torch.zeros_like(g) for name in ("filtered_grad", "adagrad")}
        most = group["max_preconditioner_dim"]
        dims = [d for d, n in enumerate(g.shape) if g.dim() == 2 and 1 < n <= most]
        factors = {d: torch.zeros(g.shape[d], g.shape[d], dtype=g.dtype) for d in dims}
        roots = {d: torch.eye(g.shape[d], dtype=g.dtype) for d in dims}
        buffer = torch.zeros_like(g)
        return {"step": 0, **zeros, "momentum_buffer": buffer, "factors": factors, "roots": roots}

    def move_factors(self, g, state, group):
        t, beta2 = state["step"], group["betas"][1]
        frequency, start = group["precondition_frequency"], group["start_preconditioning_step"]
        start = frequency if start == -1 else start
        corrects = group["use_bias_correction"] and beta2 < 1
        for dim, factor in state["factors"].items():
            other = g if dim == 0 else g.mT
            factor.mul_(beta2).add_(other @ other.mT, alpha=1.0 if beta2 == 1 else 1 - beta2)
            if t == start or (t > start and t % frequency == 0):
                order = len(state["factors"])
                override = (group["inverse_exponent_override"] or {}).get(order, {})
                exponent = override
                if isinstance(override, dict):
                    exponent = override.get(dim if order == 2 else 0, 1 / (2 * order))
                unbiased = factor / (1 - beta2**t if corrects else 1)
                state["roots"][dim] = inverse_root(unbiased, exponent, group["epsilon"])

    def grafted(self, g, state, group):
        t, beta1, corrects = state["step"], group["betas"][0], group["use_bias_correction"]
        beta3 = beta1 if group["beta3"] == -1 else group["beta3"]
        f = g
        if beta1 != 0:
            f = beta3 * state["filtered_grad"] + (1 - beta3) * g
            f = f / (1 - beta3 * beta1 ** (t - 1)) if corrects else f
            state["filtered_grad"] = beta1 * state["filtered_grad"] + (1 - beta1) * g
        kind = group["grafting_type"]
        a = f
        if kind in ("adagrad", "rmsprop", "adam"):
            beta = group["grafting_beta2"] or {"rmsprop": 0.99, "adam": 0.999}.get(kind)
            v = state["adagrad"]
            v = v + g * g if kind == "adagrad" else beta * v + (1 - beta) * g * g
            state["adagrad"] = v
            v = v / (1 - beta**t) if kind == "adam" else v
            a = f / (v.sqrt() + group["grafting_epsilon"])
        start = group["start_preconditioning_step"]
        start = group["precondition_frequency"] if start == -1 else start
        if not state["factors"] or (t < start and kind is not None):
            return a
        x = f
        for dim, root in state["roots"].items():
            x = root @ x if dim == 0 else x @ root
        return x if kind is None else x * (a.norm() / (x.norm() + 1e-16))


def near(x, y, tolerance):
    torch.testing.assert_close(x.detach(), y.detach(), rtol=tolerance, atol=tolerance)


def run(steps=30, dtype=torch.float64, shapes=SHAPES, tolerance=1e-7, **more):
    """Steps of ours and of the formulas from the same gradients."""
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    optimizer, written = Shampoo(ours, **more), Formulas(theirs, **more)
    train((optimizer, written), (ours, theirs), steps)
    names = {"filtered_grad": "filtered_grad", "adagrad": "adagrad", "momentum_buffer": None}
    for p, q in zip(ours, theirs, strict=True):
        near(p, q, tolerance)
        own, other = optimizer.state[p], written.state[q]
        for name in names:
            if name in own:
                near(own[name], other[name].to(own[name].dtype), tolerance)
        have = {int(name[-1]) for name in own if name.startswith("factor_matrix_")}
        assert have == set(other["factors"])
        for dim in have:
            near(own[f"factor_matrix_{dim}"], other["factors"][dim], tolerance)
    return optimizer, ours


def test_as_the_formulas():
    optimizer, ours = run()
    assert set(optimizer.state[ours[0]]) == {
        "step", "filtered_grad", "factor_matrix_0", "inv_factor_matrix_0", "factor_matrix_1",
        "inv_factor_matrix_1",
    }  # fmt: skip
    assert set(optimizer.state[ours[-1]]) == {"step", "filtered_grad"}


MOMENTUM = {"momentum": 0.9, "dampening": 0.1, "use_nesterov": True}
OLD_ROOTS = {"precondition_frequency": 4, "epsilon": 1e-3}


@pytest.mark.parametrize(
    "more",
    [
        {"grafting_type": "sgd", "betas": (0.9, 0.99)},
        {"grafting_type": "adam", "lr": 0.1, **OLD_ROOTS},
        {"grafting_type": "adam", "grafting_beta2": 0.9, "use_bias_correction": False},
        {"grafting_type": "adagrad", "start_preconditioning_step": 7, **OLD_ROOTS},
        {"grafting_type": "rmsprop", "betas": (0.0, 0.95), **MOMENTUM},
        {"momentum": 0.5, "betas": (0.8, 0.9), "beta3": 0.5},
        {"weight_decay": 0.1, "grafting_epsilon": 1e-3, "grafting_type": "adam"},
        {"weight_decay": 0.1, "weight_decay_type": "l2", "betas": (0.9, 0.9)},
        {"weight_decay": 0.1, "weight_decay_type": "corrected"},
        {"weight_decay": 0.01, "weight_decay_type": "independent", **OLD_ROOTS},
        {"inverse_exponent_override": {2: {0: 0.5, 1: 0.1}, 1: 0.3}, "betas": (0.9, 0.9)},
        {"inverse_exponent_override": {2: 0.2}, "start_preconditioning_step": 5},
        {"max_preconditioner_dim": 7},
        {"max_preconditioner_dim": 1, "grafting_type": "adam"},
        {"max_preconditioner_dim": math.inf, "precondition_frequency": 29, "epsilon": 1e-3},
    ],
    ids=str,
)
def test_settings(more):
    run(**more)


def test_float32():
    run(dtype=torch.float32, epsilon=1e-3, tolerance=1e-4, steps=12, grafting_type="adam")


def test_rates_of_a_group():
    """peak_lr is the constructor's, unless a group has its own."""
    pairs = []
    for peak in ({}, {"peak_lr": 0.2}):
        ours, theirs = make_params([(3, 3)], torch.float64), make_params([(3, 3)], torch.float64)
        more = {"weight_decay": 0.1, "weight_decay_type": "corrected"}
        optimizer = Shampoo([{"params": ours, "lr": 0.02, **peak}], lr=0.01, **more)
        written = Formulas(theirs, lr=0.02, **more, **peak)
        train((optimizer, written), (ours, theirs), 4)
        near(ours[0], theirs[0], 1e-9)
        pairs.append(ours[0].detach())
    assert not pairs[0].equal(pairs[1])


def test_a_rate_that_is_a_tensor():
    """Its first value is the peak, whatever becomes of it."""
    ours, theirs = make_params([(3, 3)], torch.float64), make_params([(3, 3)], torch.float64)
    more = {"weight_decay": 0.1, "weight_decay_type": "corrected"}
    rate = torch.tensor(0.5, dtype=torch.float64)
    optimizer, written = Shampoo(ours, lr=rate, **more), Formulas(theirs, **more, peak_lr=0.5)
    for step, value in enumerate((0.5, 0.25, 0.125)):
        rate.fill_(value)
        written.param_groups[0]["lr"] = value
        train((optimizer, written), (ours, theirs), 1, first=step)
    near(ours[0], theirs[0], 1e-9)
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        Shampoo(ours, lr=torch.ones(2))


def test_members_of_enumerations():
    class GraftingType(enum.Enum):
        NONE = 0
        ADAM = 4

    params = make_params([(3, 3)], torch.float32)
    assert Shampoo(params, grafting_type=GraftingType.ADAM).defaults["grafting_type"] == "adam"
    assert Shampoo(params, grafting_type=GraftingType.NONE).defaults["grafting_type"] == "none"


def test_zero_and_rank_one_gradients():
    """A zero gradient moves nothing; one of rank 1 is divided by the root of its square."""
    params = make_params([(6, 4)], torch.float64)
    optimizer = Shampoo(params, betas=(0.0, 1.0), lr=1.0)
    before = params[0].detach().clone()
    params[0].grad = torch.zeros(6, 4, dtype=torch.float64)
    optimizer.step()
    assert params[0].detach().equal(before)
    left, right = torch.ones(6, 1, dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64)
    params[0].grad = left @ right
    optimizer.step()
    near(before - params[0].detach(), left @ right / math.sqrt(24), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_huge_element(dtype):
    """Beside it all other eigenvalues are roundings: what is moved is finite, and as long as the
    grafting method says."""
    params = make_params([(6, 4)], dtype)
    optimizer = Shampoo(params, lr=1.0, betas=(0.0, 1.0), grafting_type="sgd")
    set_grads(params, seed=0)
    params[0].grad[0, 0] = 1e12
    before = params[0].detach().clone()
    optimizer.step()
    near((before - params[0].detach()).norm(), params[0].grad.norm(), 1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite(bad):
    """It spreads over its matrix, and to no other."""
    params = make_params([(6, 4), (4, 6), (5,)], torch.float32)
    optimizer = Shampoo(params, grafting_type="adam")
    set_grads(params, seed=0)
    params[0].grad[2, 3] = bad
    optimizer.step()
    assert params[0].isnan().all()
    assert params[1].isfinite().all() and params[2].isfinite().all()


def test_resumed_between_turns():
    shapes, more = [(12, 7), (7, 12), (5,)], {"precondition_frequency": 3, "betas": (0.9, 0.99)}
    more |= {"max_preconditioner_dim": 9, "grafting_type": "adam", "momentum": 0.5}
    ours = make_params(shapes, torch.float32)
    optimizer = Shampoo(ours, **more)
    for step in range(8):
        saved = copy.deepcopy(optimizer.state_dict())
        others = clone_params(ours)
        resumed = Shampoo(others, **more)
        resumed.load_state_dict(saved)
        set_grads(ours, others, seed=step)
        optimizer.step()
        resumed.step()
        assert bits_equal(ours, others), step


def test_a_root_that_is_not_there_is_made():
    """In any step from the first in which they are made."""
    ours = make_params([(5, 5)], torch.float64)
    optimizer = Shampoo(ours, precondition_frequency=4)
    train((optimizer,), (ours,), 2)
    saved = optimizer.state_dict()
    assert not saved["state"][0]["inv_factor_matrix_0"].any()
    train((optimizer,), (ours,), 3, first=2)
    del optimizer.state[ours[0]]["inv_factor_matrix_1"]
    before = optimizer.state[ours[0]]["inv_factor_matrix_0"].clone()
    train((optimizer,), (ours,), 1, first=5)
    state = optimizer.state[ours[0]]
    for dim in (0, 1):
        root = inverse_root(state[f"factor_matrix_{dim}"], 0.25, 1e-12)
        near(state[f"inv_factor_matrix_{dim}"], root, 1e-6)
    assert not before.equal(state["inv_factor_matrix_0"])


def test_a_start_that_has_passed():
    """Until roots are made the identity is in their place, as the original begins."""
    ours = make_params([(5, 5)], torch.float64)
    optimizer = Shampoo(ours, precondition_frequency=10, start_preconditioning_step=20)
    train((optimizer,), (ours,), 12)
    optimizer.param_groups[0]["start_preconditioning_step"] = 11
    before = ours[0].detach().clone()
    train((optimizer,), (ours,), 1, first=12)
    filtered = optimizer.state[ours[0]]["filtered_grad"] / (1 - 0.9**13)
    near(before - ours[0].detach(), 0.01 * filtered, 1e-9)


def test_a_factor_that_begins_later():
    """As if gradients had always been that of the step."""
    ours = make_params([(9, 5)], torch.float64)
    optimizer = Shampoo(ours, max_preconditioner_dim=5, betas=(0.9, 0.9))
    train((optimizer,), (ours,), 12)
    optimizer.param_groups[0]["max_preconditioner_dim"] = 9
    train((optimizer,), (ours,), 1, first=12)
    g, state = ours[0].grad, optimizer.state[ours[0]]
    near(state["factor_matrix_0"], g @ g.mT * (1 - 0.9**13), 1e-9)
    root = inverse_root(g @ g.mT, 0.25, 1e-12)
    near(state["inv_factor_matrix_0"] @ g, root @ g, 1e-5)


def test_a_dim_keeps_its_factor():
    ours = make_params([(9, 5)], torch.float32)
    optimizer = Shampoo(ours)
    train((optimizer,), (ours,), 3)
    before = copy.deepcopy(optimizer.state_dict())
    optimizer.param_groups[0]["max_preconditioner_dim"] = 8
    set_grads(ours, seed=5)
    with pytest.raises(ValueError, match="max_preconditioner_dim is 8, but parameter 0 of shape"):
        optimizer.step()
    state = optimizer.state_dict()["state"][0]
    assert all(state[name].equal(value) for name, value in before["state"][0].items())


@pytest.mark.filterwarnings("error")
def test_what_has_no_factor_is_named():
    shapes = [(4, 3), (9, 3), (3,), (1, 9), (), (1, 4)]
    named = zip(("a", "b", "c", "d", "e", "f"), make_params(shapes, torch.float32), strict=True)
    with pytest.warns(RuntimeWarning, match="no factors") as caught:
        optimizer = Shampoo(named, max_preconditioner_dim=5)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "parameters 'b' (9, 3), 'c' (3,), 'd' (1, 9) are" in str(caught[0].message)
    more = make_params([(9,)] * 10, torch.float32)
    with pytest.warns(RuntimeWarning, match=r"7 \(9,\) and 2 more, which are logged"):
        Shampoo(more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Shampoo(make_params([(4, 4), (1, 1), ()], torch.float32))
    assert len(optimizer.param_groups) == 1


def test_a_checkpoint_of_blocks_is_refused():
    ours = make_params([(3, 3)], torch.float32)
    optimizer = Shampoo(ours)
    state = {0: {"block_0": {"filtered_grad": torch.ones(3, 3)}, "step": torch.tensor(3)}}
    with pytest.raises(ValueError, match="parameter 0 has blocks, as that of Distributed"):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lr": -1.0}, "Invalid lr=-1.0. Must be >= 0.0."),
        ({"betas": (1.0, 0.9)}, r"Invalid betas\[0\]=1.0. Must be in \[0.0, 1.0\)."),
        ({"betas": (0.9, 1.1)}, r"Invalid betas\[1\]=1.1. Must be in \[0.0, 1.0\]."),
        ({"beta3": 1.0}, "Invalid beta3=1.0"),
        ({"epsilon": 0.0}, "Invalid epsilon=0.0. Must be > 0.0."),
        ({"weight_decay": -0.1}, "Invalid weight_decay=-0.1"),
        ({"weight_decay_type": "lazy"}, "weight_decay_type is 'lazy', expected one of l2, dec"),
        ({"weight_decay_type": "corrected", "lr": 0.0}, "Invalid peak_lr=0.0. Must be > 0.0 wh"),
        ({"max_preconditioner_dim": 0}, "max_preconditioner_dim is 0, expected a whole number"),
        ({"max_preconditioner_dim": 2.5}, "max_preconditioner_dim is 2.5, expected a whole"),
        ({"precondition_frequency": 0}, "precondition_frequency is 0, expected a whole number"),
        ({"start_preconditioning_step": -2}, "start_preconditioning_step is -2, expected"),
        (
            {"precondition_frequency": 5, "start_preconditioning_step": 4},
            "Invalid start_preconditioning_step=4. Must be >= precondition_frequency=5.",
        ),
        ({"grafting_type": "lars"}, "grafting_type is 'lars', expected one of none, sgd"),
        ({"grafting_beta2": 0.0}, r"Invalid grafting_beta2=0.0. Must be in \(0.0, 1.0\]."),
        ({"grafting_epsilon": 0.0}, "Invalid grafting_epsilon=0.0"),
        ({"momentum": 1.0}, "Invalid momentum=1.0"),
        ({"dampening": 1.0}, "Invalid dampening=1.0"),
        ({"inverse_exponent_override": {3: 0.1}}, "inverse_exponent_override has 3: 0.1, exp"),
        ({"inverse_exponent_override": {1: {1: 0.1}}}, "inverse_exponent_override has 1: {1: 0"),
        ({"inverse_exponent_override": {2: -0.1}}, r"Invalid inverse_exponent_override\[2\]=-0.1"),
    ],
    ids=str,
)
def test_refused(more, words):
    params = make_params([(3, 3)], torch.float32)
    with pytest.raises(ValueError, match=words):
        Shampoo(params, **more)
    optimizer = Shampoo(params)
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group({"params": make_params([(2, 2)]), "peak_lr": 0.0, **more})
    assert len(optimizer.param_groups) == 1


def test_more_than_two_dims_are_refused():
    optimizer = stepc.torch.Shampoo(make_params([(3, 3)], torch.float32))
    kernel = torch.nn.Parameter(torch.ones(2, 3, 3))
    with pytest.raises(ValueError, match=r"parameter 0 has shape \(2, 3, 3\), expected at most"):
        optimizer.add_param_group({"params": [kernel]})
    assert len(optimizer.param_groups) == 1
