# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps captured in a graph: what the graph's launches read lies on the device."""

import ctypes

import pytest
from device_models import DeviceMemory, Memory, Model, Tensor, assert_same
from stepc import _library
from stepc import _runtime as runtime
from stepc import _structures as structures
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
        refuse("counts, scalars or hyper-parameters have changed since", device.plan.step)
        refuse(r"upload\(\) while the stream captures a graph", device.plan.upload)
        refuse(
            "the begin of a step in parts while the stream captures a graph", device.plan.step_begin
        )
        device.plan.set_grad(device.ids[0], None)
        refuse("other tensors have gradients than in the last step", device.plan.step)
    device.plan.step()
    device.plan.upload()
    with double.capture(device.stream):
        device.plan.step()
    refuse(
        "the begin of a step in parts, but steps of the plan were captured", device.plan.step_begin
    )


def test_a_plan_that_goes_in_a_capture(models, double):
    """Its memory is freed once its steps are done, its code unloaded; who captures does not see
    it."""
    host, device = models
    other = Model(device.package, DeviceMemory(double), stream=double.make_stream())
    other.plan.step()
    alive = double.alive()
    step_reference(models, 1)
    device.plan.step()
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
        del other
    assert double.alive()[0] < alive[0]
    assert double.fault() == ""
    step_reference(models, 2)
    double.launch(graphs[0], device.stream)
    assert_same(device, host)


def test_the_last_plan_goes_in_a_capture_of_others(models, double):
    """The module goes with it."""
    _, device = models
    device.plan.step()
    stream = double.make_stream()
    with double.capture(stream):
        device.plan = device.tensors = device.bindings = None
    assert double.alive()[1:] == (0, 0, 0)
    assert double.fault() == ""


def test_a_plan_is_put_on_a_stream_that_captures(models, double):
    """It is refused before anything is loaded or allocated; the capture goes on."""
    _, device = models
    device.plan.step()
    device.plan.upload()
    device.plan.step()
    plan, alive = runtime.Plan(device.package, threads=1), double.alive()
    with double.capture(device.stream):
        calls = double.calls("cuMemAlloc"), double.calls("cuModuleLoadDataEx")
        refuse("choosing a CUDA device while the stream captures a graph",
               lambda: plan.set_cuda(0, device.stream))  # fmt: skip
        assert calls == (double.calls("cuMemAlloc"), double.calls("cuModuleLoadDataEx"))
        assert double.alive() == alive
        device.plan.step()
    plan.set_cuda(0, device.stream)


def test_the_default_stream_beside_a_capture(package, double):
    """Of a stream that the default one would wait for: it says so, and nothing is spoiled."""
    host, device = Model(package, Memory()), Model(package, DeviceMemory(double))
    for model in (host, device):
        model.plan.step()
    other = double.make_stream(blocking=True)
    with double.capture(other):
        words = "is the default one of CUDA device 0, which cannot be used while another stream"
        for call in (device.plan.step, device.plan.upload, device.plan.step_begin):
            refuse(words, call)
    # One that does not block has nothing to do with it.
    with double.capture(double.make_stream()):
        device.plan.step()
    host.plan.step()
    assert_same(device, host)
    gone = Model(package, DeviceMemory(double))
    gone.plan.step()
    with double.capture(other):
        gone.plan = None
    assert double.fault() == ""


def capture(device, double):
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    return graphs[0]


def launch_both(models, double, graph, seed):
    step_reference(models, seed)
    double.launch(graph, models[1].stream)


def set_count(model, id, count):
    lib = model.package._lib
    status = lib.stepcPlanSetCount(
        ctypes.c_void_p(model.plan.address), ctypes.c_int64(id), ctypes.c_int64(count)
    )
    _library.check(lib, status)


def assert_same_counts(models):
    counts = [[model.plan.count(id) for id in model.ids] for model in models]
    assert counts[0] == counts[1]


def add_tensors(models, count):
    for model in models:
        variant = model.tensors[0].variant
        more = [
            Tensor(model.memory, variant, f"v{k}", (3 + k,), 0, False, 70 + k) for k in range(count)
        ]
        model.ids += model.plan.bind((structures.Binding * count)(*(t.binding(0) for t in more)))
        model.tensors += more


def place_grad(model, k, place):
    """The gradient of a tensor in this memory."""
    grad = model.tensors[k].of_role("grad")[0]
    grad.address, grad.array = place
    model.plan.set_grad(model.ids[k], grad.describe(grad.storage))


STALE = "1 launches of graphs did nothing: other tensors have gradients than when they were"


def test_a_group_is_added_after_launches(models, double):
    host, device = models
    graph = capture(device, double)
    launch_both(models, double, graph, 3)
    host_group = host.plan.add_group({}, tuple(host.hypers))
    assert device.plan.add_group({}, tuple(device.hypers)) == host_group
    step_reference(models, 4)
    device.plan.step()
    assert_same(device, host)
    assert device.plan.count(device.ids[0]) == 2


def test_counts_are_set_after_launches(models, double):
    """Of all tensors, and of one; the graph goes on from them."""
    host, device = models
    graph = capture(device, double)
    for seed in range(3):
        launch_both(models, double, graph, seed)
    for model in models:
        for id in model.ids:
            set_count(model, id, 0)
        assert model.plan.count(model.ids[0]) == 0
    device.plan.upload()
    launch_both(models, double, graph, 10)
    assert_same(device, host)
    assert_same_counts(models)
    for model in models:
        set_count(model, model.ids[1], 40)
    step_reference(models, 11)
    device.plan.step()
    assert_same(device, host)
    assert_same_counts(models)


def test_tensors_are_bound_after_launches(models, double):
    """So many that the list of counts moves."""
    host, device = models
    graph = capture(device, double)
    for seed in range(2):
        launch_both(models, double, graph, seed)
    add_tensors(models, 150)
    assert_same_counts(models)
    step_reference(models, 4)
    device.plan.step()
    assert_same(device, host)
    assert_same_counts(models)


def test_steps_beside_a_graph_have_their_own_gradients(models, double):
    """What a capture stores is not done by the capture, and is done again by each launch."""
    host, device = models
    step_reference(models, 0)
    device.plan.step()
    device.plan.upload()
    grad = device.tensors[0].of_role("grad")[0]
    own, in_graph = (
        (grad.address, grad.array), device.memory.place_array(grad.read(), 0)
    )  # fmt: skip
    with double.capture(device.stream) as graphs:
        place_grad(device, 0, in_graph)
        device.plan.step()
    # It is not launched, and might never be.
    step_reference(models, 10)
    device.plan.step()
    assert_same(device, host)
    for seed, place in enumerate([own, in_graph, own, own, in_graph, in_graph]):
        grad.address, grad.array = place
        step_reference(models, 20 + seed)
        if place is in_graph:
            double.launch(graphs[0], device.stream)
        else:
            place_grad(device, 0, place)
            device.plan.step()
        assert_same(device, host)
    assert_same_counts(models)


def test_two_graphs(models, double):
    host, device = models
    step_reference(models, 0)
    device.plan.step()
    grad = device.tensors[2].of_role("grad")[0]
    graphs = []
    for k in range(2):
        place_grad(device, 2, device.memory.place_array(grad.read(), k))
        graphs.append((capture(device, double), grad.address, grad.array))
    for seed, k in enumerate([0, 1, 1, 0, 1]):
        graph, grad.address, grad.array = graphs[k]
        launch_both(models, double, graph, seed)
        assert_same(device, host)


@pytest.mark.parametrize("change", ["gradient", "back", "strides", "bind", "group"])
def test_graphs_from_before_do_nothing(change, models, double):
    """Where lists or memory have changed that a graph relies on; the plan says so, once."""
    host, device = models
    step_reference(models, 0)
    device.plan.step()
    graph = capture(device, double)
    launch_both(models, double, graph, 1)
    if change == "bind":
        add_tensors(models, 150)
    elif change == "group":
        for _ in range(150):
            for model in models:
                model.plan.add_group({}, tuple(model.hypers))
    elif change == "strides":
        for model in models:
            grad = model.tensors[4].of_role("grad")[0]
            values, grad.strides = grad.read(), (ctypes.c_int64 * 2)(1, 129)
            grad.address, grad.array = model.memory.place_array(values, 0)
            model.plan.set_grad(model.ids[4], grad.describe(grad.storage))
    else:
        for model in models:
            model.plan.set_grad(model.ids[3], None)
            model.plan.set_grad(model.ids[1], None)
    if change not in ("bind", "group"):
        step_reference(models, 2)
        device.plan.step()
    if change == "back":
        for model in models:
            for k in (1, 3):
                grad = model.tensors[k].of_role("grad")[0]
                model.plan.set_grad(model.ids[k], grad.tensor)
        step_reference(models, 3)
        device.plan.step()
    double.launch(graph, device.stream)
    assert_same(device, host)
    assert double.fault() == ""
    device.plan.upload()
    refuse(STALE, lambda: device.plan.count(device.ids[0]))
    assert_same_counts(models)
    again = capture(device, double)
    for seed in range(2):
        launch_both(models, double, again, 30 + seed)
    step_reference(models, 40)
    device.plan.step()
    assert_same(device, host)
    assert_same_counts(models)
