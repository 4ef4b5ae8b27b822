# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalars that are kept from step to step (--exclusive-writes): read on the device, checked
there one a step, and told of when somebody asks.
"""

import numpy as np
import pytest
from device_models import assert_same
from device_rules import STORAGES, RuleTensor, make_streamed, set_grads, step_both
from stepc import _structures as structures
from stepc import errors
from test_device_graphs import set_count
from test_device_steps import FORBIDDEN

SPECS = [((67, 31), 0, False), ((1500,), 0, False), ((7, 5), 0, True), ((0, 4), 0, False)]


def make_models(carried, double, specs=SPECS):
    return make_streamed(carried, double, specs=specs, storages=["param=f32"])


def write_params(models, told):
    """What others do to every parameter between steps."""
    for model in models:
        for tensor in model.tensors:
            param = tensor.of_role("param")[0]
            param.write((param.read() * 3 + 1).astype(np.float32))
        if told:
            model.plan.parameters_written()


def test_steps(carried, double):
    """With tensors that take part at times, and steps that are skipped."""
    host, device = models = make_models(carried, double)
    for seed in range(6):
        for model in models:
            for k, tensor in enumerate(model.tensors):
                has = (k + seed) % 4 != 0
                model.plan.set_grad(model.ids[k], tensor.of_role("grad")[0].tensor if has else None)
        step_both(models, seed, overflow=seed in (2, 4))
        assert_same(device, host)
        assert device.last_step() == host.last_step()
        assert device.plan.info().leftOut == host.plan.info().leftOut
    assert device.plan.info().skippedSteps == 2


def test_a_step_waits_for_nothing(carried, double):
    _, device = make_models(carried, double)
    device.plan.step()
    before = {name: double.calls(name) for name in FORBIDDEN}
    for _ in range(2):
        device.plan.step()
    assert {name: double.calls(name) for name in FORBIDDEN} == before


def test_what_others_write_is_told(carried, double):
    host, device = models = make_models(carried, double)
    for seed in range(2):
        step_both(models, seed)
    write_params(models, told=True)
    for seed in range(2, 5):
        step_both(models, seed)
        assert_same(device, host)
        device.last_step()


def test_what_is_not_told_is_found(carried, double):
    """Once; from then on the right ones are computed."""
    device = make_models(carried, double)[1]
    for seed in range(2):
        step_both([device], seed)
    device.last_step()
    write_params([device], told=False)
    step_both([device], 2)
    with pytest.raises(errors.StaleStatisticsError, match=r"tensor 'w0\.\d': its parameter was"):
        device.last_step()
    for seed in range(3, 6):
        step_both([device], seed)
        device.last_step()


@pytest.mark.parametrize("call", ["add_group", "bind", "set_count", "set_scalar", "step"])
def test_what_is_found_keeps_nobody_from_his_work(call, carried, double):
    """Who asks is told, and not a call that takes over what the device has computed."""
    device = make_models(carried, double)[1]
    plan, more = device.plan, RuleTensor(device.memory, STORAGES["param=f32"], "v", *SPECS[0], 9)
    for seed in range(2):
        step_both([device], seed)
    device.last_step()
    write_params([device], told=False)
    step_both([device], 2)
    if call == "add_group":
        assert plan.add_group({}, tuple(device.hypers)) == 1
    elif call == "bind":
        assert plan.bind((structures.Binding * 1)(more.binding(0))) == [len(SPECS)]
    elif call == "set_count":
        set_count(device, 0, 7)
    elif call == "set_scalar":
        plan.set_scalar("scale", 2.0)
    else:
        plan.set_grad(device.ids[1], None)
        plan.step()
    with pytest.raises(errors.StaleStatisticsError):
        device.last_step()
    if call == "set_scalar":
        assert plan.scalar("scale") == 2.0
    elif call == "set_count":
        assert plan.count(device.ids[0]) == 7


def move_param(models, k, factor):
    for model in models:
        param = model.tensors[k].of_role("param")[0]
        param.address, param.array = model.memory.place_array(param.read() * factor, 0)
        model.plan.set_param(model.ids[k], param.describe(param.storage))


def step_parts(models, seed, *tensors, between=lambda: None):
    set_grads(models, seed)
    for model in models:
        model.plan.step_begin()
    between()
    for model in models:
        model.plan.step_tensors([model.ids[k] for k in tensors])
        model.plan.step_end()


@pytest.mark.parametrize("when", ["before", "within"])
def test_parts(when, carried_parts, double):
    """A tensor that no list had when the step began."""
    host, device = models = make_models(carried_parts, double, SPECS[:1])
    step_parts(models, 0, 0)
    for model in models:
        more = RuleTensor(model.memory, STORAGES["param=f32"], "v", (90,), 0, False, 9)
        model.ids += model.plan.bind((structures.Binding * 1)(more.binding(0)))
        model.tensors.append(more)
    step_parts(models, 1, 0, 1)
    if when == "before":
        write_params(models, told=True)
        step_parts(models, 2, 1)
    else:
        step_parts(models, 2, 1, between=lambda: move_param(models, 1, np.float32(3)))
    assert_same(device, host)
    for seed in (3, 4):
        step_parts(models, seed, 0, 1)
        assert_same(device, host)


def test_a_parameter_that_moves(carried, double):
    host, device = models = make_models(carried, double)
    for seed in range(2):
        step_both(models, seed)
    move_param(models, 0, 2)
    for seed in range(2, 5):
        step_both(models, seed)
        assert_same(device, host)
        device.last_step()


def test_a_graph(carried, double):
    """Each launch checks one; what is told with an upload is heard."""
    host, device = models = make_models(carried, double)
    for seed in range(2):
        step_both(models, seed)
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    for seed in range(2, 6):
        if seed == 4:
            write_params(models, told=True)
            device.plan.upload()
        set_grads(models, seed, overflow=seed == 3)
        host.plan.step()
        double.launch(graphs[0], device.stream)
        assert_same(device, host)
        assert device.last_step()[0] == int(seed == 3)
    write_params([device], told=False)
    for _ in range(3):
        double.launch(graphs[0], device.stream)
    with pytest.raises(errors.StaleStatisticsError):
        device.last_step()


def test_a_capture_does_not_store(carried, double):
    device = make_models(carried, double)[1]
    device.plan.step()
    device.plan.parameters_written()
    refused = pytest.raises(errors.StatusError, match="have changed since the last step")
    with double.capture(device.stream), refused:
        device.plan.step()
