# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fragments that scale the loss, beside state machines written in Python, over a
hundred thousand steps of which some overflow."""

import itertools

import numpy as np
import pytest
import torch
from models import run_case, run_definition
from oracle import ZOO
from papers import Group, Tensor
from scalers import SCALERS, overflows

STEPS = 100_000
POWERS = {"growth_factor": 2.0, "backoff_factor": 0.5}


def cases():
    for interval, rate in [(7, 0.08), (25, 0.013)]:
        yield "torch_scaler", {**POWERS, "growth_interval": interval}, {}, rate
    for consecutive, late, shift in itertools.product([False, True], [False, True], [1, 2, 3]):
        hypers = {"scale_factor": 2.0, "scale_window": 9, "min_scale": 0.25}
        options = {"consecutive_hysteresis": consecutive, "late_growth": late}
        # Rates at which the scale neither stays at its least nor leaves f64.
        rate = [0.09, 0.14, 0.17][shift - 1] + (0.08 if consecutive and shift > 1 else 0)
        yield "deepspeed_scaler", {**hypers, "delayed_shift": shift}, options, rate
    for hysteresis, most in [(1, 2.0**32), (2, 2.0**32), (4, 2.0**24), (0, 2.0**32)]:
        hypers = {**POWERS, "growth_interval": 9, "hysteresis": hysteresis, "min_scale": 1.0}
        yield "colossal_scaler", {**hypers, "max_scale": most}, {}, 0.09


def run_overflows(name, hypers, options, bad):
    """One tensor takes part in every step, and in those that overflow one of three
    more, whose gradient is no number."""
    fragment = ZOO / "fragments" / f"{name}.mlir"
    group = Group(hypers, [Tensor(np.zeros(2)) for _ in range(4)])
    arrays, tensors = {}, []
    turns = np.cumsum(bad) % 3
    for index, number in enumerate([3.0, np.inf, -np.inf, np.nan]):
        prefix = f"0.{index}/"
        arrays[f"{prefix}param"], arrays[f"{prefix}grad"] = np.zeros(2), np.array([1.0, number])
        parts = [True] if index == 0 else (bad & (turns == index - 1)).tolist()
        tensors.append({"prefix": prefix, "participates": parts})
    files = [ZOO / "lomo.mlir", fragment]
    return run_case(files, [group], options, arrays, tensors, len(bad))


@pytest.mark.parametrize(("name", "hypers", "options", "rate"), list(cases()), ids=str)
def test_scaler(name, hypers, options, rate):
    share = STEPS // sum(case[0] == name for case in cases())
    bad = overflows(share, 1, rate)
    run = run_overflows(name, hypers, options, bad)
    machine, scales, failed = SCALERS[name](**hypers, **options), [], []
    for overflow in bad:
        scales.append(float(machine.scale))
        machine.update(bool(overflow))
        failed.append(getattr(machine, "failed", False))
    np.testing.assert_array_equal(run.report("loss_scale"), scales)
    np.testing.assert_array_equal(run.skipped, bad)
    np.testing.assert_array_equal(run.scalar("scale"), [*scales[1:], float(machine.scale)])
    if name == "deepspeed_scaler":
        np.testing.assert_array_equal(run.report("at_min_scale"), failed)
    assert np.ptp(np.log2(scales)) > 8  # the scale has been somewhere


def test_the_scale_that_unscales_is_that_of_the_backward_pass():
    """In the step in which the scale grows, too."""
    hypers = {**POWERS, "growth_interval": 2}
    group = Group({**hypers, "lr": 1.0}, [Tensor(np.zeros(1))])
    grads = [[[np.array([scale])]] for scale in (65536.0, 65536.0, 131072.0)]
    run = run_definition(
        [ZOO / "lomo.mlir", ZOO / "fragments" / "torch_scaler.mlir"], [group], {}, grads
    )
    assert list(run.report("loss_scale")) == [65536.0, 65536.0, 131072.0]
    np.testing.assert_array_equal(run.groups[0].tensors[0].param, [-3.0])


def test_a_scale_below_f32():
    """Where torch's becomes 0, and stays there."""
    bad = np.ones(170, bool)
    hypers = {**POWERS, "growth_interval": 2}
    run, machine = run_overflows("torch_scaler", hypers, {}, bad), SCALERS["torch_scaler"](**hypers)
    for _ in bad:
        machine.update(True)
    assert (run.scalar("scale")[-1], machine.scale) == (2.0**-154, 0.0)


def test_the_python_machine_is_torchs():
    """torch's own update of the scale, on the CPU."""
    bad = overflows(5000, 2, 0.08)
    machine = SCALERS["torch_scaler"](2.0, 0.5, 7)
    scale, tracker = torch.tensor([65536.0]), torch.tensor([0], dtype=torch.int32)
    for overflow in bad:
        machine.update(bool(overflow))
        found = torch.tensor([float(overflow)])
        torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 7)
        assert (scale.item(), tracker.item()) == (float(machine.scale), machine.tracker)
