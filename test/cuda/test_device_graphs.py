# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps captured in a graph: what the graph's launches read lies on the device."""

import pytest
from device_models import DeviceMemory, Memory, Model, assert_same
from stepc.errors import StatusError


@pytest.fixture
def models(package, double):
    stream = double.make_stream()
    device = Model(package, DeviceMemory(double), stream=stream)
    device.stream = stream
    return Model(package, Memory()), device


def step_reference(models, seed):
    for model in models:
        model.set_grads(seed)
    models[0].plan.step()


def test_replayed_steps(models, double):
    """Counts go on, on the device, and hyper-parameters are told between launches."""
    host, device = models
    for seed in range(2):
        step_reference(models, seed)
        device.plan.step()
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    for seed in range(3):
        step_reference(models, 10 + seed)
        double.launch(graphs[0], device.stream)
    assert_same(device, host)
    assert device.plan.count(device.ids[0]) == 5
    hypers = list(host.hypers)
    hypers[0] /= 4
    for model in models:
        model.plan.set_hypers(model.groups[0], tuple(hypers))
    device.plan.upload()
    step_reference(models, 20)
    double.launch(graphs[0], device.stream)
    assert_same(device, host)
    # And steps outside of the graph, with a gradient less.
    for model in models:
        model.plan.set_grad(model.ids[1], None)
    step_reference(models, 21)
    device.plan.step()
    assert_same(device, host)
    for ids in zip(host.ids, device.ids, strict=True):
        assert host.plan.count(ids[0]) == device.plan.count(ids[1])


def test_a_first_step_is_captured(models, double):
    host, device = models
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    assert device.plan.count(device.ids[0]) == 0
    for seed in range(2):
        step_reference(models, seed)
        double.launch(graphs[0], device.stream)
    assert_same(device, host)
    assert device.plan.count(device.ids[0]) == 2


def test_gradients_that_move_in_the_capture(models, double):
    """As those of a framework do that allocates in the graph's own memory."""
    host, device = models
    step_reference(models, 1)
    device.plan.step()
    device.plan.upload()
    grad = device.tensors[0].of_role("grad")[0]
    grad.address, grad.array = device.memory.place_array(grad.array, 0)
    with double.capture(device.stream) as graphs:
        device.plan.set_grad(device.ids[0], grad.describe(grad.storage))
        device.plan.step()
    step_reference(models, 2)
    double.launch(graphs[0], device.stream)
    assert_same(device, host)


def refuse(message, call):
    with pytest.raises(StatusError, match=message) as refused:
        call()
    assert refused.value.status == "STEPC_WRONG_STATE"


def test_what_a_capture_refuses(models, double):
    """Nothing that each launch would store again, and nothing that waits."""
    _, device = models
    device.plan.step()
    with double.capture(device.stream):
        device.plan.set_hypers(device.groups[0], tuple(v / 2 for v in device.hypers))
        refuse("counts or hyper-parameters have changed since the last step", device.plan.step)
        refuse("stepcPlanUpload while the stream captures a graph", device.plan.upload)
        refuse("stepcStepBegin while the stream captures a graph", device.plan.step_begin)
        device.plan.set_grad(device.ids[0], None)
        refuse("other tensors have gradients than in the last step", device.plan.step)
    device.plan.step()
    device.plan.upload()
    with double.capture(device.stream):
        device.plan.step()
    refuse("stepcStepBegin, but steps of the plan were captured", device.plan.step_begin)


def test_counts_are_set_after_launches(models, double):
    host, device = models
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    step_reference(models, 3)
    double.launch(graphs[0], device.stream)
    host_group = host.plan.add_group({}, tuple(host.hypers))
    assert device.plan.add_group({}, tuple(device.hypers)) == host_group
    step_reference(models, 4)
    device.plan.step()
    assert_same(device, host)
    assert device.plan.count(device.ids[0]) == 2
