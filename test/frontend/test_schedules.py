# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc.torch.schedules``: learning rates beside the formulas of DeepSpeed's and ColossalAI's,
saved states of both, and what is refused."""

import copy
import inspect
import pickle

import pytest
import stepc.torch
import torch
from schedule_formulas import CASES, DEEPSPEED, cosine, cycle_place
from stepc.torch import schedules

STEPS = 1000
BASE = (0.01, 0.03)  # of the two groups


def optimizer_of(kind=torch.optim.Adam, tensor=False):
    rates = [torch.tensor(rate, dtype=torch.float64) if tensor else rate for rate in BASE]
    params = [torch.nn.Parameter(torch.ones(2)) for _ in rates]
    groups = [{"params": [p], "lr": rate} for p, rate in zip(params, rates, strict=True)]
    return kind(groups, lr=rates[0])


each_case = pytest.mark.parametrize("name", CASES)


def make(name, optimizer):
    kind, arguments, formula = CASES[name]
    return getattr(schedules, kind)(optimizer, **copy.copy(arguments)), formula


def check(optimizer, formula, k, rel=1e-9):
    got = [float(group["lr"]) for group in optimizer.param_groups]
    wanted = [formula(k, base) for base in BASE]
    assert got == pytest.approx(wanted, rel=rel, abs=1e-15), k


@each_case
@pytest.mark.parametrize("tensor", [False, True])
def test_formulas(name, tensor):
    optimizer = optimizer_of(tensor=tensor)
    schedule, formula = make(name, optimizer)
    rates = [group["lr"] for group in optimizer.param_groups]
    for k in range(STEPS):
        check(optimizer, formula, k)
        assert schedule.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
        optimizer.step()
        schedule.step()
    if tensor:
        assert all(g["lr"] is r for g, r in zip(optimizer.param_groups, rates, strict=True))


@each_case
@pytest.mark.parametrize("stop", [1, 60, 870])
def test_goes_on_from_a_saved_state(name, stop):
    """Of another object, with the optimizer's state: from there the same bits."""
    optimizer = optimizer_of()
    schedule, formula = make(name, optimizer)
    for _ in range(stop):
        optimizer.step()
        schedule.step()
    saved = pickle.loads(pickle.dumps([optimizer.state_dict(), without_calls(schedule)]))
    resumed = optimizer_of()
    other, _ = make(name, resumed)
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    assert other.get_last_lr() == schedule.get_last_lr()
    for k in range(stop, stop + 60):
        check(resumed, formula, k)
        assert [g["lr"] for g in resumed.param_groups] == [g["lr"] for g in optimizer.param_groups]
        for own, of in ((optimizer, schedule), (resumed, other)):
            own.step()
            of.step()


def without_calls(schedule):
    return {k: v for k, v in schedule.state_dict().items() if k != "lr_lambdas"} | (
        {"lr_lambdas": [None] * 2} if "lr_lambdas" in schedule.state_dict() else {}
    )


def test_one_cycle_of_torch():
    own, torchs = optimizer_of(), optimizer_of()
    ours = schedules.OneCycleLR(own, 300, pct_start=0.2)
    theirs = torch.optim.lr_scheduler.OneCycleLR(torchs, list(BASE), total_steps=300, pct_start=0.2)
    for _ in range(299):
        for optimizer, schedule in ((own, ours), (torchs, theirs)):
            optimizer.step()
            schedule.step()
        both = zip(own.param_groups, torchs.param_groups, strict=True)
        assert all(a["lr"] == b["lr"] and a["betas"] == b["betas"] for a, b in both)


def test_momentum_of_one_cycle():
    """The second beta is 0.99, and the first step has the least momentum."""
    optimizer = optimizer_of()
    schedule = schedules.OneCycle(
        optimizer, 0.001, 0.1, cycle_first_step_size=40, cycle_min_mom=[0.7, 0.8],
        cycle_max_mom=0.95, decay_step_size=5, decay_mom_rate=0.01,
    )  # fmt: skip
    for k in range(200):
        for group, low in zip(optimizer.param_groups, (0.7, 0.8), strict=True):
            if k == 0:
                wanted = low
            elif k <= 80:
                wanted = 0.95 - (0.95 - low) * cycle_place(k, 40, 40, 0, 0)
            else:
                wanted = 0.95 * (1 + 0.01 * (k - 80) / 5)
            assert group["betas"] == (pytest.approx(wanted, rel=1e-12), 0.99), k
        optimizer.step()
        schedule.step()


# --- States of the originals, as they write them --------------------------------------------------


@pytest.mark.parametrize("name", DEEPSPEED)
def test_states_of_deepspeed(name):
    optimizer = optimizer_of()
    schedule, formula = make(name, optimizer)
    schedule.load_state_dict({"last_batch_iteration": 122})
    optimizer.step()
    schedule.step()
    check(optimizer, formula, 124)
    assert schedule.state_dict() == {"last_batch_iteration": 123}
    assert schedule.last_batch_iteration == 123


def test_states_of_colossal():
    """One of ColossalAI 0.5 with torch 2.5, in the cosine and in the warm-up."""
    after = {
        "T_max": 90, "eta_min": 0.0, "base_lrs": list(BASE), "last_epoch": 30, "verbose": False,
        "_step_count": 31, "_get_lr_called_within_step": False,
        "_last_lr": [cosine(30, base, 90) for base in BASE],
    }  # fmt: skip
    own = {
        "finished": True, "base_lrs": list(BASE), "last_epoch": 10, "verbose": False,
        "_step_count": 11, "_get_lr_called_within_step": False, "_last_lr": after["_last_lr"],
        "warmup_epochs": 10, "after_scheduler_type": "CosineAnnealingLR",
    }  # fmt: skip
    optimizer = optimizer_of()
    schedule = schedules.CosineAnnealingWarmupLR(optimizer, 100, 10)
    assert set(schedule.state_dict()) >= set(own) - {"verbose"}
    assert set(schedule.state_dict()["after_scheduler_dict"]) >= set(after) - {"verbose"}
    schedule.load_state_dict({**own, "after_scheduler_dict": after})
    for group, rate in zip(optimizer.param_groups, after["_last_lr"], strict=True):
        group["lr"] = rate
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([cosine(31, base, 90) for base in BASE])
    begun = {**own, "finished": False, "last_epoch": 4, "after_scheduler_dict": after}
    schedule.load_state_dict(begun)
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([base * 6 / 10 for base in BASE])


@pytest.mark.parametrize(
    ("kind", "arguments", "state", "words"),
    [
        ("WarmupLR", {}, {"last_epoch": 3}, "no 'last_batch_iteration', which WarmupLR needs"),
        ("OneCycle", {"cycle_min_lr": 1, "cycle_max_lr": 2}, {}, "OneCycle needs; it has none"),
        ("CosineAnnealingWarmupLR", {"total_steps": 9}, {"last_epoch": 3}, "has no 'finished'"),
        (
            "PolynomialWarmupLR",
            {"total_steps": 9},
            {
                "finished": False, "last_epoch": 1, "after_scheduler_dict": {},
                "after_scheduler_type": "CosineAnnealingLR",
            },
            "with CosineAnnealingLR behind, PolynomialWarmupLR has PolynomialLR",
        ),
    ],
)  # fmt: skip
def test_states_of_others_are_refused(kind, arguments, state, words):
    schedule = getattr(schedules, kind)(optimizer_of(), **arguments)
    before = copy.deepcopy(schedule.state_dict())
    with pytest.raises(ValueError, match=words):
        schedule.load_state_dict(state)
    assert schedule.state_dict() == before


# --- With our optimizers, and what is refused ----------------------------------------------------


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("name", ["WarmupLR", "OneCycle", "CosineAnnealingWarmupLR"])
def test_ours_steps_as_torchs(name, tensor):
    """AdamW reads what the schedule writes, learning rates and betas, as torch's does."""
    ends = []
    for kind in (torch.optim.AdamW, stepc.torch.AdamW):
        optimizer = optimizer_of(kind, tensor)
        schedule, _ = make(name, optimizer)
        torch.manual_seed(0)
        for _ in range(20):
            for group in optimizer.param_groups:
                group["params"][0].grad = torch.randn(2)
            optimizer.step()
            schedule.step()
        ends.append([g["params"][0].detach() for g in optimizer.param_groups])
    for theirs, ours in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_a_run_that_goes_on():
    """``last_batch_iteration`` keeps the groups' learning rates until the next step."""
    optimizer = optimizer_of()
    schedule = schedules.WarmupLR(optimizer, 0.0, 0.1, 10, "linear", last_batch_iteration=4)
    assert schedule.get_last_lr() == list(BASE)
    schedule.step()
    assert schedule.get_last_lr() == [0.05, 0.05]
    schedule.step(8)
    assert schedule.get_last_lr() == [pytest.approx(0.08)] * 2


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda o: schedules.WarmupLR(o, [0.0]), ValueError, "expected 2 value for min_lr, got 1"),
        (
            lambda o: schedules.WarmupLR(o, warmup_num_steps=0),
            ValueError,
            "positive integer, got 0",
        ),
        (lambda o: schedules.WarmupCosineLR(o, 9, warmup_num_steps=1.5), ValueError, "got 1.5"),
        (lambda o: schedules.WarmupLR(3), TypeError, "int is not a subclass of torch.optim"),
        (
            lambda o: schedules.LRRangeTest(o, lr_range_test_step_size=-1),
            ValueError,
            "lr_range_test_step_size must be a positive integer, got -1",
        ),
        (lambda o: schedules.OneCycle(o, 0, [1]), ValueError, "expected 2 value for cycle_max_lr"),
        (
            lambda o: schedules.OneCycle(o, 0, 1, cycle_first_step_size=0),
            ValueError,
            "cycle_first_step_size must be positive, got 0.0",
        ),
        (
            lambda o: schedules.OneCycle(o, 0, 1, cycle_second_step_size=-1),
            ValueError,
            "cycle_second_step_size must be non-negative, got -1.0",
        ),
        (lambda o: schedules.FlatAnnealingLR(o, 9, 1.5), ValueError, "pct_start must >= 0.0"),
        (lambda o: schedules.PolynomialLR(o, 9, -1), ValueError, "end_lr must >= 0, got -1"),
        (lambda o: schedules.MultiStepWarmupLR(o, 9), ValueError, "milestones cannot be empty"),
        (
            lambda o: schedules.DelayerScheduler(o, -1, schedules.StepLR(o, 9)),
            ValueError,
            "delay_epochs must >= 0, got -1",
        ),
        (lambda o: schedules.WarmupScheduler(o, 1, None), TypeError, "after_scheduler is None"),
    ],
)
def test_refused(make, kind, words):
    optimizer = optimizer_of()
    with pytest.raises(kind, match=words):
        make(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == list(BASE)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o: schedules.WarmupLR(o, warmup_type="cubic"), "'cubic', expected 'log' or"),
        (lambda o: schedules.WarmupDecayLR(o, 5), "total_num_steps 5 is less than warmup_num_st"),
        (
            lambda o: schedules.LinearWarmupLR(o, 9, steps=3),
            "no 'steps', which is without meaning; it has optimizer, total_steps, warmup_steps",
        ),
    ],
)
def test_told(make, words):
    with pytest.warns(UserWarning, match=words) as told:
        make(optimizer_of())
    assert told[0].filename == __file__


def test_no_momentum_to_cycle():
    optimizer = optimizer_of(torch.optim.SGD)
    with pytest.warns(UserWarning, match="cycle_momentum is True, and SGD has no betas"):
        schedule = schedules.OneCycle(optimizer, 0.1, 0.2)
    assert schedule.get_mom() is None and "betas" not in optimizer.param_groups[0]


def test_all_are_schedulers_of_torch():
    kinds = [getattr(schedules, name) for name in schedules.__all__]
    assert all(issubclass(kind, torch.optim.lr_scheduler.LRScheduler) for kind in kinds)
    tested = {case[0] for case in CASES.values()} | {"OneCycleLR"}
    stages = {"DelayerScheduler", "WarmupDelayerScheduler", "WarmupScheduler"}
    assert tested | stages == set(schedules.__all__)
    assert all(inspect.getdoc(kind) for kind in kinds)


def test_the_cosine_behind_a_warm_up():
    """Ours begins at the group's rate, torch's own above it: docs/schedules.md names both."""
    firsts = []
    for kind in (schedules.CosineAnnealingLR, torch.optim.lr_scheduler.CosineAnnealingLR):
        for stage in (schedules.WarmupScheduler, schedules.DelayerScheduler):
            optimizer = optimizer_of()
            schedule = stage(optimizer, 3, kind(optimizer, 6))
            base = schedule.base_lrs[0]
            for _ in range(3):
                optimizer.step()
                schedule.step()
            firsts.append(optimizer.param_groups[0]["lr"] / base)
    assert firsts[:2] == pytest.approx([1.0, 1.0]) and min(firsts[2:]) > 1.05
