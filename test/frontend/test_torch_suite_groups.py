# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's tests of its optimizers on ours: groups, schedulers, learning rates that
are tensors, closures, and gradients that come and go."""

import inspect

import pytest
import torch
from common import bits_equal, clone_params, make_params, set_grads, train
from torch.optim import lr_scheduler, swa_utils
from torch_table import (
    INFOS,
    assert_agree,
    default_dtype,
    each_input,
    each_optimizer,
    ours,
    pair,
    theirs,
)

MANY = [(3,), (2, 4), (5, 2), (4,)]
# Nothing falls back to torch's own step, which would agree with itself.
pytestmark = pytest.mark.filterwarnings("error:stepc:RuntimeWarning", "ignore:.*lr_scheduler")


@pytest.fixture(autouse=True)
def in_f64():
    with default_dtype(torch.float64):
        yield


def both(name, make, shapes=MANY):
    """Both optimizers on the groups that ``make`` makes of parameters."""
    left = make_params(shapes, torch.float64)
    right = clone_params(left)
    return (left, ours(name, make(left))), (right, theirs(name, make(right)))


def run(left, right, steps=6, first=0):
    train((left[1], right[1]), (left[0], right[0]), steps, first)
    assert_agree(left, right)


# --- Groups -------------------------------------------------------------------

# Another value of each hyper-parameter that a group can have.
OTHERS = {
    "lr": 0.037, "weight_decay": 0.21, "eps": 1e-3, "betas": (0.7, 0.8), "momentum": 0.6,
    "dampening": 0.3, "rho": 0.7, "alpha": 0.6, "lambd": 0.2, "t0": 2, "lr_decay": 0.2,
    "initial_accumulator_value": 0.4, "momentum_decay": 0.3, "etas": (0.3, 1.7),
    "step_sizes": (1e-3, 0.02), "beta2_decay": -0.5, "d": 1.5, "amsgrad": True,
    "maximize": True, "centered": True, "decoupled_weight_decay": True,
    # With momentum, and without dampening.
    "nesterov": True,
}  # fmt: skip
FLAGS = {"foreach", "capturable", "differentiable", "fused"}


def settable(name):
    """What a group can have, of the constructor's arguments."""
    defaults = theirs(name, make_params([(2,)])).defaults
    names = set(inspect.signature(getattr(torch.optim, name)).parameters) & set(defaults)
    return sorted(names - FLAGS)


@each_optimizer
def test_each_value_can_be_a_groups_own(name):
    """A group for each, beside one that has the defaults."""
    names = settable(name)
    assert set(names) <= set(OTHERS)

    def groups(params):
        made = [{"params": [params[0]]}]
        for key, param in zip(names, params[1:], strict=True):
            made.append({"params": [param], key: OTHERS[key]})
            if name == "Adafactor" and key == "eps":
                made[-1]["eps"] = (1e-5, 1e-2)
            if key == "nesterov":
                made[-1]["momentum"] = 0.9
        return made

    left, right = both(name, groups, [(3, 4)] * (len(names) + 1))
    run(left, right)
    moved = [not torch.equal(left[0][0], p) for p in left[0][1:]]
    assert all(moved)


@each_optimizer
def test_each_value_can_change_between_steps(name):
    """As a user changes it, in the group; also by what has crossed zero."""
    left, right = both(name, lambda params: params)
    run(left, right, 2)
    for step, key in enumerate(settable(name)):
        for _, optimizer in (left, right):
            (group,) = optimizer.param_groups
            if key in ("amsgrad", "centered", "momentum"):
                continue  # torch makes no state later
            group[key] = OTHERS[key]
            if name == "Adafactor" and key == "eps":
                group["eps"] = (1e-5, 1e-2)
            if key == "nesterov":
                group[key] = False
        run(left, right, 2, first=2 + 2 * step)


def test_state_that_torch_would_miss():
    """Momentum that comes later: torch's RMSprop has a KeyError, here it begins as 0."""
    left, right = both("RMSprop", lambda params: params)
    run(left, right, 2)
    for _, optimizer in (left, right):
        optimizer.param_groups[0]["momentum"] = 0.9
    set_grads(left[0], right[0])
    with pytest.raises(KeyError, match="momentum_buffer"):
        right[1].step()
    left[1].step()
    assert all("momentum_buffer" in state for state in left[1].state.values())


def test_momentum_below_zero_is_none():
    """No constructor takes it, but a group has it: torch's RMSprop leaves it out."""
    left, right = both("RMSprop", lambda params: params)
    for _, optimizer in (left, right):
        optimizer.param_groups[0]["momentum"] = -0.5
    run(left, right)
    assert all("momentum_buffer" not in state for state in left[1].state.values())


@each_optimizer
def test_add_param_group(name):
    left = make_params(MANY, torch.float64)
    right = clone_params(left)
    a, b = ours(name, left[:2]), theirs(name, right[:2])
    train((a, b), (left[:2], right[:2]), 2)
    a.add_param_group({"params": left[2:], "lr": 0.05})
    b.add_param_group({"params": right[2:], "lr": 0.05})
    run((left, a), (right, b))


@each_optimizer
def test_group_that_is_no_group(name):
    optimizer = ours(name, make_params([(3,)]))
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group(make_params([(2,)]))
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": optimizer.param_groups[0]["params"]})
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        optimizer.add_param_group({"params": [3.0]})
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optimizer.add_param_group({"params": [make_params([(2,)])[0] * 2]})


# --- Learning rates -----------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@each_optimizer
def test_tensor_lr(name, shape):
    """It is as good as its value, and stays what it is; filled in place it takes effect."""
    left = make_params(MANY)
    right = clone_params(left)
    lr = torch.full(shape, 0.01)
    a, b = ours(name, left), ours(name, right)
    a.param_groups[0]["lr"], b.param_groups[0]["lr"] = lr, 0.01
    for step in range(4):
        train((a, b), (left, right), 1, first=step)
        lr.mul_(0.5)
        b.param_groups[0]["lr"] *= 0.5
    assert a.param_groups[0]["lr"] is lr
    assert bits_equal(left, right)


@each_optimizer
def test_lr_on_another_device(name):
    """Refused in torch's words by what checks it; without memory there is no value."""
    lr = torch.tensor(0.01, device="meta")
    caught = []
    for make in (theirs, ours):
        with pytest.raises(Exception) as error:
            make(name, make_params([(3,)])).__class__(make_params([(3,)]), lr=lr)
        caught.append((error.type, str(error.value)))
    assert caught[0] == caught[1]
    params = make_params([(3,)])
    optimizer = ours(name, params)
    set_grads(params)
    optimizer.param_groups[0]["lr"] = lr
    with pytest.raises(ValueError, match="hyper-parameter 'lr' of group 0 is tensor"):
        optimizer.step()


# --- Schedulers ---------------------------------------------------------------

s = lr_scheduler
SCHEDULERS = {
    "LambdaLR": lambda o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: s.MultiplicativeLR(o, lambda epoch: 0.8),
    "StepLR": lambda o: s.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: s.MultiStepLR(o, [2, 5], 0.5),
    "ConstantLR": lambda o: s.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: s.LinearLR(o, 0.1, 1.0, 4),
    "ExponentialLR": lambda o: s.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda o: s.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingLR": lambda o: s.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: s.CosineAnnealingWarmRestarts(o, 3),
    "SequentialLR": lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1), s.StepLR(o, 2)], [3]),
    "ChainedScheduler": lambda o: s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)]),
    "ReduceLROnPlateau": lambda o: s.ReduceLROnPlateau(o, patience=1, factor=0.5),
    "CyclicLR": lambda o: s.CyclicLR(o, 1e-3, 0.1, 3, cycle_momentum=cycles(o)),
    "OneCycleLR": lambda o: s.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=cycles(o)),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.05, 4),
}


def cycles(optimizer):
    """Whether there is a momentum that these change in every step, too."""
    return "momentum" in optimizer.defaults or "betas" in optimizer.defaults


def test_every_scheduler_is_here():
    abstract = {"LRScheduler"}
    assert set(lr_scheduler.__all__) - abstract == set(SCHEDULERS) - {"SWALR"}


def rates(optimizer):
    return tuple(float(group["lr"]) for group in optimizer.param_groups)


def scheduled(schedule, left, right):
    """Steps of both, each with a scheduler: of the same rates, which change."""
    plans = [SCHEDULERS[schedule](o) for _, o in (left, right)]
    seen = set()
    for step in range(8):
        train((left[1], right[1]), (left[0], right[0]), 1, first=step)
        for plan in plans:
            plan.step(*([1.0] if schedule == "ReduceLROnPlateau" else []))
        assert rates(left[1]) == rates(right[1])
        seen.add(rates(left[1]))
    assert_agree(left, right)
    assert len(seen) > 1


@pytest.mark.parametrize("schedule", SCHEDULERS)
@each_optimizer
def test_schedulers(name, schedule):
    """Of two groups, each from its own lr, as torch's param_group_with_lrscheduler asks."""
    kwargs = {"momentum": 0.5} if name in ("SGD", "RMSprop") else {}

    def groups(params):
        return [{"params": params[:2], "lr": 0.03, **kwargs}, {"params": params[2:], **kwargs}]

    left, right = both(name, groups)
    assert len(set(rates(left[1]))) == 2
    scheduled(schedule, left, right)
    for mine, other in zip(left[1].param_groups, right[1].param_groups, strict=True):
        assert [mine.get(k) for k in ("lr", "betas", "momentum")] == [
            other.get(k) for k in ("lr", "betas", "momentum")
        ]


@pytest.mark.parametrize("schedule", SCHEDULERS)
@each_optimizer
def test_schedulers_of_a_tensor_lr(name, schedule):
    """They fill it in place, and a step takes what is in it. All of torch's take one."""
    params = make_params([(3,), (2, 4)], torch.float64)
    left, right = pair(name, params=params, lr=torch.tensor(0.03))
    given = left[1].param_groups[0]["lr"]
    scheduled(schedule, left, right)
    assert left[1].param_groups[0]["lr"] is given and isinstance(given, torch.Tensor)


@pytest.mark.parametrize("name", [n for n in INFOS if len(INFOS[n].scheduler_inputs) > 1])
def test_schedulers_of_torchs_table(name):
    """And the loss gets smaller, as torch asks of it."""
    for makers in INFOS[name].scheduler_inputs:
        weight, bias = make_params([(10, 5), (10,)], torch.float64)
        optimizer = ours(name, [weight, bias], lr=0.01)
        plans = [make(optimizer) for make in makers]
        given = torch.randn(5)

        def closure(optimizer=optimizer, weight=weight, bias=bias, given=given):
            optimizer.zero_grad()
            loss = (weight.mv(given) + bias).pow(2).sum()
            loss.backward()
            return loss

        first = closure().item()
        for _ in range(20):
            loss = optimizer.step(closure)
            for plan in plans:
                plan.step(*([loss.item()] if isinstance(plan, s.ReduceLROnPlateau) else []))
        assert closure().item() < first


# --- Gradients ----------------------------------------------------------------


@each_input
def test_goes_in_the_right_direction(name, kwargs):
    params = make_params([(3, 2), (4,)], torch.float64)
    optimizer = ours(name, params, **kwargs)
    sign = -1.0 if kwargs.get("maximize") else 1.0

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = sign * sum((p * p).sum() for p in params)
        loss.backward()
        return loss

    with torch.no_grad():
        first = optimizer.step(closure)
    for _ in range(10):
        last = optimizer.step(closure=closure)
    assert sign * last.item() < sign * first.item()
    assert optimizer.step() is None


@each_optimizer
def test_gradients_that_come_and_go(name):
    """Also to None between steps, and of none at all."""
    left, right = both(name, lambda params: params)
    for step in range(12):
        set_grads(left[0], right[0], seed=step)
        for i in range(len(MANY)):
            if (step >> i) & 1 or (i == 2 and step < 6):
                left[0][i].grad = right[0][i].grad = None
        for _, optimizer in (left, right):
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 3 != 0)
    assert_agree(left, right)


@each_optimizer
def test_nothing_without_gradients(name):
    params = make_params(MANY, torch.float64)
    before = clone_params(params)
    optimizer = ours(name, params)
    kept = {key: {k: v.clone() for k, v in own.items()} for key, own in optimizer.state.items()}
    for set_to_none in (True, False):
        optimizer.zero_grad(set_to_none)
        optimizer.step()
    assert bits_equal(params, before)
    assert optimizer.state.keys() == kept.keys()
    assert all(optimizer.state[p][k].equal(v) for p, own in kept.items() for k, v in own.items())


@each_optimizer
def test_frozen_and_shared_gradients(name):
    """Gradients that are views of one buffer, as DDP's are, and not in the parameter's
    memory order."""
    left, right = both(name, lambda params: params)
    for step in range(4):
        for params in (left[0], right[0]):
            generator = torch.Generator().manual_seed(step)
            buffer = torch.randn(sum(p.numel() for p in params), generator=generator)
            parts = buffer.split([p.numel() for p in params])
            for index, (param, part) in enumerate(zip(params, parts, strict=True)):
                turned = part.view(param.shape[::-1]).t() if param.dim() == 2 else part
                param.grad = turned if index != 3 else None
        left[1].step()
        right[1].step()
    assert_agree(left, right)
