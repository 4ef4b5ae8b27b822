# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Adams of DeepSpeed and ColossalAI: beside torch's, which they are but for
rounding, and beside what their sources say of counts, in float64."""

import copy
import pickle

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, distance, make_params, set_grads, train
from stepc.torch import colossal, deepspeed

KINDS = {
    "deepspeed.FusedAdam": (deepspeed.FusedAdam, "adam_w_mode"),
    "deepspeed.DeepSpeedCPUAdam": (deepspeed.DeepSpeedCPUAdam, "adamw_mode"),
    "colossal.FusedAdam": (colossal.FusedAdam, "adamw_mode"),
    "colossal.CPUAdam": (colossal.CPUAdam, "adamw_mode"),
    "colossal.HybridAdam": (colossal.HybridAdam, "adamw_mode"),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
HYPERS = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}
STEPS = 20
# In units of the last place: each of some 20 roundings a step may differ.
ULPS = 50


def make(kind, params, decoupled=True, **kwargs):
    cls, mode = KINDS[kind]
    return cls(params, **{mode: decoupled}, **{**HYPERS, **kwargs})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("decoupled", [False, True])
@each_kind
def test_is_torchs(kind, decoupled, dtype):
    ours = make_params(dtype=dtype)
    theirs = clone_params(ours)
    a = make(kind, ours, decoupled)
    b = (torch.optim.AdamW if decoupled else torch.optim.Adam)(theirs, **HYPERS)
    train((a, b), (ours, theirs), STEPS)
    assert distance(ours, theirs) < ULPS
    for name in ("exp_avg", "exp_avg_sq"):
        pair = [[o.state[p][name] for p in ps] for o, ps in ((a, ours), (b, theirs))]
        assert distance(*pair) < ULPS


def reference(param, grad, state, count, h, *, decoupled, corrected, squares_first=False):
    """A step as the originals' kernels make it."""
    beta1, beta2 = h["betas"]
    if not decoupled:
        grad = grad + h["weight_decay"] * param
    state["m"] = beta1 * state["m"] + (1 - beta1) * grad
    gain = (1 - beta2) * (grad * grad) if squares_first else (1 - beta2) * grad * grad
    state["v"] = beta2 * state["v"] + gain
    c1, c2 = (1 - beta1**count, 1 - beta2**count) if corrected else (1, 1)
    update = state["m"] / c1 / ((state["v"] / c2).sqrt() + h["eps"])
    if decoupled:
        update = update + h["weight_decay"] * param
    return param - h["lr"] * update


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("corrected", [False, True])
@each_kind
def test_counts(kind, corrected, decoupled):
    """One parameter misses gradients: its count is its own, or its group's."""
    ours = make_params([(5,), (3, 4)], torch.float64)
    values = [p.detach().clone() for p in ours]
    states = [{"m": torch.zeros_like(v), "v": torch.zeros_like(v)} for v in values]
    counts = [0, 0]
    optimizer = make(kind, ours, decoupled, bias_correction=corrected)
    for step in range(12):
        set_grads(ours, seed=step)
        if step in (0, 1, 4, 7):
            ours[1].grad = None
        optimizer.step()
        for i, param in enumerate(ours):
            if param.grad is not None:
                counts[i] += 1
                count = step + 1 if kind == "colossal.FusedAdam" else counts[i]
                values[i] = reference(
                    values[i], param.grad, states[i], count, HYPERS,
                    decoupled=decoupled, corrected=corrected,
                )  # fmt: skip
    assert distance(ours, values) < ULPS
    if kind == "colossal.FusedAdam":
        assert optimizer.scalars["step"] == [12] and "step" not in optimizer.state[ours[0]]
    else:
        assert [float(optimizer.state[p]["step"]) for p in ours] == counts


@pytest.mark.parametrize(("betas", "largest"), [(HYPERS["betas"], 3e19), ((0.0, 0.0), 1e18)])
@each_kind
def test_one_huge_gradient(kind, betas, largest):
    """multi_tensor_adam.cu has (1 - beta2) * g * g, from the left, and goes on; the CPU
    kernels square first: there an element whose square overflows stays where it is. With
    no decays nothing is left of the gradient in the next step."""
    hypers = {**HYPERS, "betas": betas}
    ours = [torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))]
    value = ours[0].detach().clone()
    state = {"m": torch.zeros_like(value), "v": torch.zeros_like(value)}
    optimizer = make(kind, ours, betas=betas)
    for step in range(30):
        last = largest if step == 20 else 1.0
        ours[0].grad = torch.tensor([1.0, -1e-3 if step > 20 else 1e3, last])
        optimizer.step()
        value = reference(
            value, ours[0].grad, state, step + 1, hypers,
            decoupled=True, corrected=True, squares_first="FusedAdam" not in kind,
        )  # fmt: skip
        assert bool(value.isfinite().all())
        assert distance(ours, [value]) < ULPS


@each_kind
def test_weight_decay_below_zero(kind):
    """The CPU kernels know none: what is not positive is 0 for them."""
    ours = make_params([(5,)])
    theirs = clone_params(ours)
    a = make(kind, ours, weight_decay=-0.1)
    b = make(kind, theirs, weight_decay=0.0)
    train((a, b), (ours, theirs), 3)
    assert bits_equal(ours, theirs) == ("FusedAdam" not in kind)


# --- Checkpoints --------------------------------------------------------------


@each_kind
def test_saved_counts_are_integers(kind):
    """As the originals': their kernels take no tensor."""
    ours = make_params([(5,), (3,)])
    optimizer = make(kind, ours)
    train((optimizer,), (ours,), 3)
    packed = optimizer.state_dict()
    if kind == "colossal.FusedAdam":
        assert packed["param_groups"][0]["step"] == 3
        assert "scalars" not in packed["param_groups"][0]
    else:
        assert [type(s["step"]) for s in packed["state"].values()] == [int, int]
        assert [s["step"] for s in packed["state"].values()] == [3, 3]


@each_kind
def test_goes_on_where_it_was_saved(kind):
    ours = make_params([(5,), (3, 4), (2,)])
    groups = [{"params": ours[:2]}, {"params": ours[2:], "lr": 0.1}]
    optimizer = make(kind, groups)
    for step in range(5):
        set_grads(ours, seed=step)
        if step < 3:
            ours[1].grad = None
        if step < 2:
            ours[2].grad = None
        optimizer.step()
    mirror = clone_params(ours)
    other = make(kind, [{"params": mirror[:2]}, {"params": mirror[2:]}])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train((optimizer, other), (ours, mirror), 4, first=9)
    assert bits_equal(ours, mirror)
    again = pickle.loads(pickle.dumps(optimizer))
    mirror = [p for group in again.param_groups for p in group["params"]]
    train((optimizer, again), (ours, mirror), 2, first=20)
    assert bits_equal(ours, mirror)


def foreign(params, counts, group_step=None):
    """A checkpoint with these counts, and moments of what followed from one gradient."""
    packed = torch.optim.SGD(params).state_dict()
    group = {**HYPERS, "bias_correction": True, "params": packed["param_groups"][0]["params"]}
    if group_step is not None:
        group["step"] = group_step
    state = {}
    for index, (param, count) in enumerate(zip(params, counts, strict=True)):
        moments = {"exp_avg": torch.full_like(param, 0.3), "exp_avg_sq": torch.ones_like(param)}
        state[index] = {**({} if count is None else {"step": count}), **moments}
    return {"state": state, "param_groups": [group]}


@pytest.mark.parametrize(
    ("kind", "counts", "group_step"),
    [
        # As DeepSpeed saves them: the last parameter alone was counted for.
        ("deepspeed.FusedAdam", [0, 0, 7], 0),
        # As it did when it counted for the group.
        ("deepspeed.FusedAdam", [None, None, None], 7),
        ("deepspeed.DeepSpeedCPUAdam", [7, 7, 7], None),
        ("colossal.CPUAdam", [7, 7, 7], None),
        ("colossal.HybridAdam", [7, 7, 7], None),
        ("colossal.FusedAdam", [None, None, None], 7),
    ],
)
def test_checkpoints_of_the_originals(kind, counts, group_step):
    ours = make_params([(5,), (3,), (2,)], torch.float64)
    values = [p.detach().clone() for p in ours]
    optimizer = make(kind, ours, lr=1.0)
    optimizer.load_state_dict(foreign(ours, counts, group_step))
    set_grads(ours)
    optimizer.step()
    for param, value in zip(ours, values, strict=True):
        state = {"m": torch.full_like(value, 0.3), "v": torch.ones_like(value)}
        expected = reference(value, param.grad, state, 8, HYPERS, decoupled=True, corrected=True)
        assert distance([param], [expected]) < ULPS


# --- Refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (
            lambda p: deepspeed.FusedAdam(p, amsgrad=True),
            RuntimeError,
            "FusedAdam does not support the AMSGrad variant.",
        ),
        (
            lambda p: colossal.FusedAdam(p, amsgrad=True),
            RuntimeError,
            "FusedAdam does not support the AMSGrad variant.",
        ),
        (
            lambda p: deepspeed.DeepSpeedCPUAdam(p, amsgrad=True),
            RuntimeError,
            "DeepSpeedCPUAdam does not support the AMSGrad variant.",
        ),
        (
            lambda p: deepspeed.DeepSpeedCPUAdam(p, fp32_optimizer_states=False),
            ValueError,
            "fp32_optimizer_states is False, expected True",
        ),
        (
            lambda p: colossal.HybridAdam(p, nvme_offload_fraction=1.5),
            ValueError,
            "nvme_offload_fraction is 1.5, expected a number from 0 to 1",
        ),
        (
            lambda p: colossal.CPUAdam(
                p, nvme_offload_fraction=0.5, place=stepc.torch.Place("host")
            ),
            ValueError,
            "nvme_offload_fraction and place both say where states lie",
        ),
    ],
)
def test_refusals(make, kind, words):
    with pytest.raises(kind, match=words):
        make(make_params([(2,)]))


@pytest.mark.parametrize("kind", ["deepspeed.FusedAdam", "colossal.FusedAdam"])
def test_set_grad_none(kind):
    for set_to_none in (False, True):
        params = make_params([(2,)])
        optimizer = make(kind, params, set_grad_none=set_to_none)
        set_grads(params)
        optimizer.zero_grad()
        assert (params[0].grad is None) is set_to_none
    optimizer.zero_grad(set_to_none=False)


def test_with_all_features():
    """A scaler's kept scalars beside a group's count, saved and loaded."""
    ours = make_params([(5,), (3,)])
    settings = {"loss_scale": stepc.torch.DynamicLossScale(4.0), "clip": stepc.torch.ClipByNorm(1)}
    optimizer = make("colossal.FusedAdam", ours, **settings)
    train((optimizer,), (ours,), 2)
    ours[0].grad[0] = float("inf")
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.loss_scale == 2.0
    assert optimizer.scalars["step"] == [2]
    packed = optimizer.state_dict()
    assert packed["param_groups"][0]["step"] == 2
    other = make("colossal.FusedAdam", clone_params(ours), **settings)
    other.load_state_dict(packed)
    assert other.scalars["step"] == [2.0] and other.loss_scale == 2.0
