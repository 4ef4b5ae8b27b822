# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics over tensors, scalars of the program and steps that are skipped: all of it is
decided on the device, while the host waits for nothing.
"""

import numpy as np
import pytest
from device_models import assert_same
from device_rules import (
    RuleTensor,
    make_rule_models,
    make_rule_package,
    make_streamed,
    set_grads,
    step_both,
)
from stepc import _structures as structures
from stepc import errors
from test_device_steps import FORBIDDEN


@pytest.fixture
def models(scaled, double):
    return make_streamed(scaled, double)


def assert_all_same(models):
    host, device = models
    assert_same(device, host)
    assert device.counts() == host.counts()


def assert_same_steps(models):
    host, device = models
    assert_all_same(models)
    assert device.last_step() == host.last_step()
    for field in ("steps", "rounds", "skippedSteps"):
        assert getattr(device.plan.info(), field) == getattr(host.plan.info(), field), field


@pytest.mark.parametrize(
    ("name", "fragments"),
    [
        ("dadapt_adam", ()),
        ("dadapt_sgd", ("clip_by_inf_norm",)),
        ("lamb", ("grad_scaler", "clip_by_norm")),
        ("adafactor", ("deepspeed_scaler", "skip_nonfinite")),
        ("sgd", ("colossal_scaler", "clip_by_value", "ema")),
    ],
)
def test_fragments(name, fragments, double, tmp_path):
    """Over two groups, with tensors that have no gradient in some of the steps."""
    package = make_rule_package(name, tmp_path, *fragments)
    models = make_rule_models(package, double, groups=2)
    for seed in range(4):
        for model in models:
            for k, tensor in enumerate(model.tensors):
                grad = tensor.of_role("grad")[0]
                has = seed in (0, 3) or (k + seed) % 3 != 0
                model.plan.set_grad(model.ids[k], grad.tensor if has else None)
        step_both(models, seed, overflow=seed == 2)
        assert_same_steps(models)
    assert double.fault() == ""


def test_skipped_steps(models, double):
    """Nothing changes but scalars that are always updated, and steps go on."""
    host, device = models
    for seed, overflow in enumerate([False, True, True, False, True, False]):
        before = device.results()
        counts = device.counts()
        step_both(models, seed, overflow)
        assert_same_steps(models)
        assert device.last_step()[0] == int(overflow)
        if overflow:
            assert device.counts() == counts
            for own, old in zip(device.results()[:-1], before[:-1], strict=True):
                np.testing.assert_array_equal(own, old)
    assert device.counts() == [3] * len(device.ids)
    assert device.plan.scalar("scale") == host.plan.scalar("scale") == 65536.0 / 8
    assert device.plan.info().skippedSteps == 3


def test_nothing_has_a_gradient(models, double):
    host, device = models
    step_both(models, 1, overflow=True)
    for model in models:
        for id in model.ids:
            model.plan.set_grad(id, None)
    for model in models:
        model.plan.step()
    assert_same_steps(models)
    assert device.last_step() == (0, -1, 0)


def test_a_step_waits_for_nothing(models, double):
    _, device = models
    device.plan.step()
    set_grads(models[1:], 3, overflow=True)
    before = {name: double.calls(name) for name in FORBIDDEN}
    stores = double.calls("cuLaunchKernel:step_store")
    for _ in range(3):
        device.plan.step()
    assert {name: double.calls(name) for name in FORBIDDEN} == before
    assert double.calls("cuLaunchKernel:step_store") == stores
    assert double.lib.cudaDoublePending() > 0
    assert device.plan.info().skippedSteps == 3


def test_scalars_are_set(models, double):
    host, device = models
    step_both(models, 1)
    for seed, value in enumerate([1024.0, 0.5]):
        for model in models:
            model.plan.set_scalar("scale", value)
            assert model.plan.scalar("scale") == value
        step_both(models, seed, overflow=seed == 1)
        assert_same_steps(models)
    with pytest.raises(errors.StatusError, match="has no scalar 'x', it has: scale"):
        device.plan.set_scalar("x", 1.0)


def test_hypers_change(models, double):
    for seed in range(3):
        for model in models:
            hypers = list(model.hypers)
            names = [hyper["name"] for hyper in model.package.manifest["hypers"]]
            hypers[names.index("max_norm")] = 0.5 / (1 + seed)
            model.plan.set_hypers(0, tuple(hypers))
        step_both(models, seed)
    assert_same_steps(models)


def test_groups_and_tensors_are_added(models, double):
    """What rounds have computed goes on from where it was."""
    step_both(models, 1, overflow=True)
    for model in models:
        assert model.plan.add_group({}, tuple(model.hypers)) == 1
        more = [
            RuleTensor(model.memory, ("f32", "f32"), f"v{k}", (3 + k,), 0, False, 60 + k)
            for k in range(150)
        ]
        bindings = (structures.Binding * len(more))(*(t.binding(k % 2) for k, t in enumerate(more)))
        model.ids += model.plan.bind(bindings)
        model.tensors += more
        model.groups.append(1)
    for seed in (2, 3, 4):
        step_both(models, seed, overflow=seed == 3)
        assert_same_steps(models)


def test_groups_have_their_own_statistics(double, dadapt):
    """And a group in which no tensor takes part does not run its calls."""
    specs = [((k % 40 + 1,), k % 3, False) for k in range(100)]
    models = make_rule_models(dadapt, double, specs=specs, groups=3, storages=["param=f32"])
    for seed in range(4):
        for model in models:
            for k in range(0, len(model.ids), 3):
                grad = model.tensors[k].of_role("grad")[0]
                model.plan.set_grad(model.ids[k], None if seed == 2 else grad.tensor)
        step_both(models, seed)
        assert_same_steps(models)


# --- Graphs -------------------------------------------------------------------------


def capture(models, double):
    device = models[1]
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    return graphs[0]


def launch_both(models, double, graph, seed, overflow=False):
    set_grads(models, seed, overflow)
    models[0].plan.step()
    double.launch(graph, models[1].stream)


def test_a_graph_skips(models, double):
    """What the definition decides, it decides in each launch of the graph."""
    host, device = models
    step_both(models, 0)
    graph = capture(models, double)
    for seed, overflow in enumerate([True, False, True, False]):
        launch_both(models, double, graph, 10 + seed, overflow)
        assert_all_same(models)
        assert device.last_step() == host.last_step()
    assert device.counts() == [3] * len(device.ids)
    # And with steps outside of the graph between its launches.
    step_both(models, 20)
    step_both(models, 21, overflow=True)
    launch_both(models, double, graph, 22)
    assert_all_same(models)


def test_scalars_change_under_a_graph(models, double):
    host, device = models
    step_both(models, 0)
    graph = capture(models, double)
    for seed, value in enumerate([16.0, 2.0]):
        for model in models:
            model.plan.set_scalar("scale", value)
        device.plan.upload()
        launch_both(models, double, graph, seed, overflow=seed == 1)
        assert_all_same(models)
    assert host.plan.scalar("scale") == 1.0


def refuse(message, call):
    with pytest.raises(errors.StatusError, match=message) as refused:
        call()
    assert refused.value.status == "STEPC_WRONG_STATE"


def test_what_a_capture_refuses(models, double):
    """A new value that each launch would store again, and whatever waits."""
    _, device = models
    device.plan.step()
    device.plan.set_scalar("scale", 8.0)
    with double.capture(device.stream):
        refuse("counts, scalars or hyper-parameters have changed since", device.plan.step)
    device.plan.upload()
    with double.capture(device.stream):
        device.plan.step()
        capturing = "from the device, and the stream captures a graph"
        refuse(f"scalars and reports have to be read {capturing}",
               lambda: device.plan.scalar("scale"))  # fmt: skip
        refuse(f"counts have to be read {capturing}", device.counts)
        refuse(f"skipped steps have to be read {capturing}", device.last_step)
        refuse(r"set_scalar\(\) while the stream captures a graph",
               lambda: device.plan.set_scalar("scale", 1.0))  # fmt: skip
        refuse(r"add_param_group\(\) while the stream captures a graph",
               lambda: device.plan.add_group({}, tuple(device.hypers)))  # fmt: skip
        assert device.plan.info().skippedSteps == 0
