# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loss scales by the names that configurations of DeepSpeed and plugins of ColossalAI have."""

import inspect
import math

import pytest
import stepc.torch
import torch
from stepc import errors
from stepc.torch import colossal, deepspeed
from stepc.torch.binding.features import LossScale

INF = math.inf


def run(optimizer, overflows):
    """The scale before each step, and the step that raised, if one did."""
    scales = []
    for number, overflow in enumerate(overflows):
        scales.append(optimizer.loss_scale)
        optimizer.param_groups[0]["params"][0].grad = torch.full((3,), INF if overflow else 1.0)
        try:
            optimizer.step()
        except errors.LossScaleError as error:
            return scales, (number, str(error))
    return scales, None


def sgd(scale):
    return stepc.torch.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.0, loss_scale=scale)


def deepspeeds(overflows, power, window, hysteresis, consecutive, least):
    """update_scale of DeepSpeed's DynamicLossScaler."""
    scale, left, last, scales = 2.0**power, hysteresis, -1, []
    for number, overflow in enumerate(overflows):
        scales.append(scale)
        if overflow:
            if hysteresis == 1 or left == 1:
                if scale == least:
                    return scales, number
                scale = max(scale / 2, least)
            else:
                left -= 1
            last = number
            continue
        left = hysteresis if consecutive else left
        stable = number - last - 1
        if stable > 0 and stable % window == 0:
            left, scale = hysteresis, scale * 2
    return scales, None


@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("hysteresis", [1, 2, 3])
def test_deepspeeds(hysteresis, consecutive):
    """Down to the least, up again, and down to an error."""
    numbers = torch.Generator().manual_seed(hysteresis)
    some = (torch.rand(60, generator=numbers) < 0.3).tolist()
    overflows = [*[True] * 5, *some, *[False] * 12, *[True] * 40]
    scaler = deepspeed.loss_scaler(
        initial_scale_power=5, loss_scale_window=4, hysteresis=hysteresis,
        consecutive_hysteresis=consecutive, min_loss_scale=0.25,
    )  # fmt: skip
    optimizer = sgd(scaler)
    scales, raised = run(optimizer, overflows)
    wanted, number = deepspeeds(overflows, 5, 4, hysteresis, consecutive, 0.25)
    assert scales == wanted and raised[0] == number
    assert "Current loss scale already at minimum - cannot decrease scale" in raised[1]
    assert "it is 0.25" in raised[1]
    assert optimizer.last_step.skipped and optimizer.loss_scale == 0.25
    params = optimizer.param_groups[0]["params"]
    assert params[0].detach().equal(torch.ones(3))
    assert run(optimizer, [False] * 9)[1] is None  # it goes on, where the caller does


def test_an_error_at_the_least_may_be_left_out():
    scaler = deepspeed.DynamicLossScaler(2.0, min_scale=1.0, raise_error_at_min_scale=False)
    optimizer = sgd(scaler)
    assert run(optimizer, [True] * 4) == ([2.0, 1.0, 1.0, 1.0], None)
    assert optimizer.last_step.at_min_scale == 1


def test_defaults_of_fp16():
    """loss_scale 0 is a dynamic one, of 2**16."""
    scaler = deepspeed.loss_scaler()
    assert isinstance(scaler, deepspeed.DynamicLossScaler)
    assert scaler.values() == (2.0, 1000.0, 1.0, 2.0) and scaler.first_scale == 2.0**16
    assert not scaler.consecutive_hysteresis and scaler.late_growth
    scaler = deepspeed.loss_scaler(loss_scale=128, min_loss_scale=0)  # which nothing reads then
    assert isinstance(scaler, LossScale) and sgd(scaler).loss_scale == 128.0


PLUGINS = {
    "LowLevelZeroPlugin": 2.0**32,
    "GeminiPlugin": 2.0**16,
    "HybridParallelPlugin": 2.0**16,
    "MoeHybridParallelPlugin": 2.0**16,
}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_defaults_of_plugins(plugin):
    scaler = colossal.DynamicGradScaler.of_plugin(plugin)
    assert scaler.values() == (2.0, 0.5, 1000.0, 1.0, 2.0**32, 2.0)
    assert scaler.first_scale == PLUGINS[plugin]
    assert colossal.DynamicGradScaler.of_plugin(plugin, initial_scale=4.0).first_scale == 4.0


def test_bounds_of_plugins():
    make = colossal.DynamicGradScaler.of_plugin
    optimizer = sgd(make("HybridParallelPlugin", initial_scale=4.0, hysteresis=1))
    assert run(optimizer, [True] * 4) == ([4.0, 2.0, 1.0, 1.0], None)
    optimizer = sgd(make("LowLevelZeroPlugin", growth_interval=1))
    assert run(optimizer, [False] * 3) == ([2.0**32] * 3, None)
    names = [*inspect.signature(make).parameters]
    assert names == [
        "plugin", "initial_scale", "min_scale", "growth_factor", "backoff_factor",
        "growth_interval", "hysteresis", "max_scale",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: deepspeed.loss_scaler(-1.0), "loss_scale is -1.0, expected a number from 0 on"),
        (lambda: deepspeed.loss_scaler(True), "loss_scale is True, expected a number from 0 on"),
        (lambda: deepspeed.loss_scaler(hysteresis=0), "delayed_shift is 0, expected a positive"),
        (lambda: deepspeed.loss_scaler(min_loss_scale=0), "min_scale is 0, expected a positive"),
        (
            lambda: colossal.DynamicGradScaler.of_plugin("TorchDDPPlugin"),
            "plugin is 'TorchDDPPlugin', expected LowLevelZeroPlugin, GeminiPlugin",
        ),
        (
            lambda: colossal.DynamicGradScaler.of_plugin("GeminiPlugin", max_scale=2.0),
            "initial_scale is 65536.0, expected one from min_scale 1 to max_scale 2.0",
        ),
    ],
)
def test_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
