# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bind that is refused behind what it reserved for states in a store changes nothing."""

import pytest
from device_models import DeviceMemory, Model, Tensor
from stepc import _runtime as runtime
from stepc import _structures as structures
from stepc import errors
from stepc._store import Store


@pytest.mark.parametrize("refused", ["overlap", "memory"])
def test_a_refused_bind(double, package, tmp_path, refused):
    model = Model(package, DeviceMemory(double), specs=[((1500,), 0, False)], begin=False)
    store = Store(str(tmp_path))
    model.plan = runtime.Plan(package, threads=1)
    model.plan.set_cuda(0)
    model.plan.set_store(store)
    model.plan.add_group({}, tuple(model.hypers))
    model.ids = model.plan.bind((structures.Binding * len(model.bindings))(*model.bindings))
    model.plan.step()
    more = Tensor(model.memory, model.tensors[0].variant, "more", (20000,), 0, False, 5)
    kept = []
    for operand in more.of_role("state"):
        kept.append(store.take(80000))
        operand.tensor.data = kept[-1].address
    [param], [grad] = more.of_role("param"), more.of_role("grad")
    own = param.tensor.data
    if refused == "overlap":
        param.tensor.data = grad.tensor.data
    else:
        double.fail("cuMemAlloc", 1, 2)
    with pytest.raises(errors.StepcError):
        model.plan.bind((structures.Binding * 1)(more.binding(0)))
    model.plan.step()  # which is of no windows
    param.tensor.data = own
    model.plan.bind((structures.Binding * 1)(more.binding(0)))
    model.plan.step()
    assert store.info().bytesRead > 0
    double.synchronize()
    assert double.fault() == ""
