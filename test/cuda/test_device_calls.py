# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of steps on a device: functions of the host on the stream, with the processor's
bits, that nobody waits for and that find nothing where none is due.
"""

import ctypes
import re

import numpy as np
import pytest
from device_models import DeviceMemory, Memory, assert_same
from device_rules import RuleModel, make_rule_models, make_streamed, step_both
from stepc import errors
from stepc._runtime import Plan
from test_device_steps import FORBIDDEN

# Both sides of leaves, tiles and vectors; one without elements, and one of one element.
SHAPES = [((33, 20), 0, False), ((7, 5), 1, True), ((1, 1), 0, False), ((0, 4), 0, False),
          ((66, 3), 0, False)]  # fmt: skip
STORAGE = ["param=f32"]
GAP = 3  # steps from one decomposition to the next


def make_both(package, double, **hypers):
    values = [hypers.get(h["name"], h["default"]) for h in package.manifest["hypers"]]
    specs = {"specs": SHAPES, "storages": STORAGE, "hypers": values}
    return make_rule_models(package, double, **specs)


def test_bits_and_what_is_called(soap, double):
    """Each part of a finish that the host makes is a function on the stream."""
    models = make_both(soap, double, precondition_frequency=2)
    stages = [s for v in soap.manifest["variants"] for e in v["schedule"] if "stages" in e
              for s in e["stages"]]  # fmt: skip
    before = double.calls("cuLaunchHostFunc")
    for seed in range(5):
        step_both(models, seed)
    assert double.calls("cuLaunchHostFunc") - before == 5 * stages.count("call") > 0
    assert_same(*models)
    assert double.fault() == ""


def test_eigenvalues_come_with_the_vectors(shampoo, double):
    models = make_both(shampoo, double, precondition_frequency=2)
    for seed in range(5):
        step_both(models, seed)
    assert_same(*models)
    assert double.fault() == ""


def test_a_step_waits_for_nothing(soap, double):
    model = RuleModel(soap, DeviceMemory(double), specs=SHAPES, storages=STORAGE)
    model.plan.step()
    before = {name: double.calls(name) for name in (*FORBIDDEN, "cuMemHostAlloc")}
    for _ in range(2):
        model.plan.step()
    after = {name: double.calls(name) for name in (*FORBIDDEN, "cuMemHostAlloc")}
    assert after == before
    assert double.lib.cudaDoublePending() > 0


def test_several_threads(soap, double, monkeypatch):
    """Whoever decomposes a matrix, it has the same bits."""
    monkeypatch.setattr(Plan, "__init__", lambda self, package, threads=1, *, of=Plan.__init__:
                        of(self, package, threads=5))  # fmt: skip
    models = make_both(soap, double, precondition_frequency=1)
    for seed in range(3):
        step_both(models, seed)
    assert_same(*models)


def test_a_graph(soap, double):
    """Each launch of it decomposes."""
    host, device = make_streamed(soap, double, specs=SHAPES, storages=STORAGE)
    for seed in range(2):
        step_both((host, device), seed)
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    for seed in range(2, 15):
        for model in (host, device):
            model.set_grads(seed)
        host.plan.step()
        double.launch(graphs[0], device.stream)
    assert_same(host, device)
    assert double.fault() == ""


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite(bad, soap, double):
    """NaN comes out as on the processor; other matrices go on."""
    models = make_both(soap, double, precondition_frequency=1)
    for seed in range(3):
        for model in models:
            model.set_grads(seed)
            if seed == 1:
                grad = model.tensors[0].of_role("grad")[0]
                values = grad.read()
                values[5] = bad
                grad.write(values)
            model.plan.step()
    assert_same(*models)
    params = [tensor.of_role("param")[0].read() for tensor in models[1].tensors]
    assert np.isnan(params[0]).any() and np.isfinite(params[1]).all()


def test_undue_steps_ask_the_host_for_nothing(soap, double):
    """Records in the memory of the host are as they were, and so is what was handed over: a step
    that is not due writes neither."""
    models = make_both(soap, double, precondition_frequency=GAP)
    due = []
    for seed in range(2 * GAP + 1):
        before = read_pinned(double)
        step_both(models, seed)
        double.synchronize()
        due.append(read_pinned(double) != before)
    assert due[0] and sum(due) == 3, due
    assert_same(*models)


def read_pinned(double):
    """What lies in all memory that was taken by cuMemHostAlloc."""
    size = double.lib.cudaDoublePinned(None, ctypes.c_int64(0))
    room = ctypes.create_string_buffer(size)
    double.lib.cudaDoublePinned(room, ctypes.c_int64(size))
    return room.raw


def test_tensors_that_come_later(soap, double):
    """What is handed over lies elsewhere then; a step is under way."""
    models = [
        RuleModel(soap, memory, specs=SHAPES[:2] + [((40, 41), 0, False)], storages=STORAGE,
                  begin=False) for memory in (Memory(), DeviceMemory(double))
    ]  # fmt: skip
    for model in models:
        late = model.bindings.pop()
        model.tensors, tensors = model.tensors[:-1], model.tensors
        model.begin()
        step_both([model], 1)
        model.ids += model.plan.bind((type(late) * 1)(late))
        model.tensors = tensors
        step_both([model], 2)
        step_both([model], 3)
    assert_same(*models)


def test_memory_of_the_host_is_counted(soap, double):
    device = make_both(soap, double)[1]
    handed = sum(4 * (m * m + n * n) for (m, n), _, _ in SHAPES)
    plain = RuleModel(soap, DeviceMemory(double), specs=SHAPES[2:3], storages=STORAGE)
    more = device.plan.info().bytesAllocated - plain.plan.info().bytesAllocated
    assert more >= handed


def test_threads_are_no_more_than_matrices(soap, double, monkeypatch):
    """What a routine works in is taken for each that may have something to do."""

    def measure(threads, shapes):
        monkeypatch.setattr(Plan, "__init__", lambda self, package, **_:
                            make(self, package, threads=threads))  # fmt: skip
        model = RuleModel(soap, DeviceMemory(double), specs=shapes, storages=STORAGE)
        return model.plan.info().bytesAllocated

    make = Plan.__init__
    one, two = [((33, 20), 0, False)], [((33, 20), 0, False)] * 2
    assert measure(8, one) == measure(1, one)
    assert measure(8, two) == measure(2, two) > measure(1, two)


def test_a_call_that_fails(soap, double):
    device = make_both(soap, double)[1]
    device.plan.step()
    double.fail("cuLaunchHostFunc", 2, 1)
    message = re.escape("cuLaunchHostFunc for 4 tensors, the first 'w0.0' on CUDA device 0: "
                        "CUDA_ERROR_INVALID_VALUE (1)")  # fmt: skip
    with pytest.raises(errors.DeviceError, match=message):
        device.plan.step()
    with pytest.raises(errors.StatusError) as refused:
        device.plan.step()
    assert refused.value.status == "STEPC_POISONED"


def test_a_plan_that_goes_while_its_calls_wait(soap, double):
    device = make_both(soap, double)[1]
    for _ in range(3):
        device.plan.step()
    assert double.lib.cudaDoublePending() > 0
    del device.plan
    assert double.fault() == "" and double.alive()[1:] == (0, 0, 0)


def test_the_double_permits_no_calls_in_functions(double):
    """They would wait for the driver that waits for them."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: double.lib.cuCtxSynchronize() and None
    )
    with double.context(0):
        double.call("cuLaunchHostFunc", None, function, None)
        double.call("cuCtxSynchronize")
    assert double.fault() == "a function of the host calls cuCtxSynchronize"


def test_the_double_orders_functions_as_streams_do(double):
    """A function runs behind what is before it on its stream, while other streams go on; and
    what is behind it waits for its end."""
    order = []
    streams = [double.make_stream() for _ in range(2)]
    slow, fast = (
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _, own=own: order.append(own))
        for own in ("slow", "fast")
    )
    with double.context(0):
        for stream, function in zip(streams, (slow, fast), strict=True):
            double.call("cuLaunchHostFunc", ctypes.c_void_p(stream), function, None)
        assert order == []
        double.call("cuStreamSynchronize", ctypes.c_void_p(streams[1]))
        assert "fast" in order
        double.call("cuCtxSynchronize")
    assert sorted(order) == ["fast", "slow"]
