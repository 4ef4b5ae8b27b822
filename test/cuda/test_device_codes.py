# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are codes on a device of the double: parameters, codes and scales have the bits of
the processor's, whatever window they are in."""

import ctypes

import numpy as np
import pytest
from device_codes import SPECS, CodedModel, assert_same_bits, make_both, make_streamed
from device_models import DeviceMemory
from device_rules import make_rule_package, set_grads, step_both
from double import MEMBER, make_zip
from stepc import _structures as structures
from stepc import errors
from stepc._mesh import Layout, Mesh, communicator_of
from stepc._runtime import Package, Plan
from test_device_steps import FORBIDDEN

F32 = ["param=f32"]
WINDOW = 16 << 20  # bytes of f32 in a window (runtime/cuda/CodedWindows.h)


@pytest.fixture(scope="module")
def lamb_alone(tmp_path_factory):
    """Whose rows are taken as wholes."""
    return make_rule_package("lamb", tmp_path_factory.mktemp("lamb"), storages=F32)


FORMATS = pytest.mark.parametrize(
    "formats", [("q8",), ("f8_e4m3",), ("f8_e4m3", "q8"), ("q4",), ("q4", "q8")], ids=str
)


@FORMATS
def test_steps(formats, package, double):
    models = make_both(package, double, plain={1, 8}, formats=formats)
    for seed in range(3):
        step_both(models, seed)
        assert_same_bits(models)
    assert double.fault() == ""


@FORMATS
def test_whole_rows(formats, lamb_alone, double):
    models = make_both(lamb_alone, double, plain={2}, storages=F32, formats=formats)
    for seed in range(3):
        step_both(models, seed)
        assert_same_bits(models)
    assert double.fault() == ""


@pytest.mark.parametrize("format", ["q8", "q4"])
def test_initial_values_other_than_zero(format, double, tmp_path):
    package = make_rule_package("rprop", tmp_path, storages=F32)
    models = make_both(package, double, storages=F32, formats=(format,))
    assert_same_bits(models)
    for seed in range(2):
        step_both(models, seed)
    assert_same_bits(models)


def count_launches(double, models, seed):
    set_grads(models, seed)
    models[0].plan.step()
    before = double.calls("cuLaunchKernel")
    models[1].plan.step()
    return double.calls("cuLaunchKernel") - before


@pytest.mark.parametrize("space", ["elements", "tiles"])
def test_several_windows(space, package, lamb_alone, double):
    """Rows of elements are cut where chunks begin, others never. What is decoded takes the memory
    of one window."""
    sizes = [(3, 100), (520, 4160), (31, 1000)] if space == "elements" else [(300, 4160)] * 2
    own = package if space == "elements" else lamb_alone
    models = make_both(own, double, specs=[(size, 0, False) for size in sizes], storages=F32)
    info = models[1].plan.info()
    elements = sum(int(np.prod(size)) for size in sizes)
    assert WINDOW < 8 * elements < 2 * WINDOW
    assert WINDOW < info.deviceBytes - 2 * elements * (1 + 4 / 64) < WINDOW + (1 << 20)
    step_both(models, 0)
    entries = [e for e in own.manifest["variants"][0]["schedule"] if "kernel" in e or "finish" in e]
    # Scalars, then what is decoded, stepped and encoded, and the counts.
    assert count_launches(double, models, 1) == 1 + 2 * (len(entries) + 2) + 1
    assert_same_bits(models)


def test_a_row_larger_than_a_window(package, double):
    """Of blocks that are no whole ones: it has a window of its own, and the memory for it."""
    models = make_both(package, double, specs=[((1, 2_100_001), 0, False)], storages=F32)
    step_both(models, 0)
    assert_same_bits(models)


def test_a_step_waits_for_nothing_and_tells_nothing_twice(package, double):
    models = make_both(package, double)
    step_both(models, 0)
    stores = models[1].plan.info().deviceStores
    set_grads(models, 1)
    before = {name: double.calls(name) for name in FORBIDDEN}
    for _ in range(2):
        models[1].plan.step()
    assert {name: double.calls(name) for name in FORBIDDEN} == before
    assert models[1].plan.info().deviceStores == stores


def test_tensors_without_gradients(package, double):
    """Rows move in the table that the device has, and windows have other pieces."""
    models = make_both(package, double, groups=2)
    for seed in range(4):
        for model in models:
            for k, tensor in enumerate(model.tensors):
                grad = tensor.of_role("grad")[0]
                has = (k + seed) % 3 != 0
                model.plan.set_grad(model.ids[k], grad.tensor if has else None)
        step_both(models, seed)
        assert_same_bits(models)


def test_parts_of_steps(package, double):
    models = make_both(package, double)
    for seed in range(2):
        for model in models:
            model.set_grads(seed)
            model.plan.step_begin()
            model.plan.step_tensors(model.ids[:2])
            model.plan.step_tensors(model.ids[3 : 5 + seed])
            model.plan.step_end()
    assert_same_bits(models)


def test_binding_more_tensors(package, double):
    models = make_both(package, double, specs=SPECS[:1])
    step_both(models, 0)
    for model in models:
        model.bind_more()
    for seed in range(2):
        step_both(models, 1 + seed)
    assert_same_bits(models)


def test_skipped_steps(scaled, double):
    """What is decoded in a step that is skipped is not encoded."""
    models = make_both(scaled, double)
    for seed, overflow in enumerate([False, True, False, True]):
        before = models[1].results()
        step_both(models, seed, overflow)
        assert_same_bits(models)
        assert models[1].last_step()[0] == int(overflow)
        if overflow:
            for own, old in zip(models[1].results()[:-1], before[:-1], strict=True):
                np.testing.assert_array_equal(own, old)


def test_graphs(package, double):
    host, device = models = make_streamed(package, double)
    step_both(models, 0)
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    for seed in range(2):
        set_grads(models, 1 + seed)
        host.plan.step()
        double.launch(graphs[0], device.stream)
    assert_same_bits(models)
    # Where what is decoded lies elsewhere, graphs from before do nothing.
    for model in models:
        model.bind_more()
    device.plan.upload()
    double.launch(graphs[0], device.stream)
    step_both(models, 5)
    assert_same_bits(models)
    with pytest.raises(errors.StatusError, match="1 launches of graphs did nothing"):
        device.plan.count(device.ids[0])


def test_a_package_without_the_kernels(members, double):
    """As earlier compilers wrote them."""
    image = members[MEMBER].replace(b"code_q8", b"code_XX")
    package = Package.from_bytes(make_zip({**members, MEMBER: image}))
    expected = (
        "tensor 'w0.0': state 'exp_avg' is kept as codes, for which package '.*' has no kernels on "
        "CUDA device 0; compile it anew"
    )
    with pytest.raises(errors.StatusError, match=expected) as refused:
        CodedModel(package, DeviceMemory(double))
    assert refused.value.status == "STEPC_UNSUPPORTED_TARGET"


def test_blocks_that_ranks_cut(package, double, monkeypatch):
    """They have whole ones on a device."""
    mesh = Mesh(("tp",), (2,))
    layout = Layout((20, 400), ((1, ("tp",)),), start=(0, 0)).struct(mesh)
    communicator = communicator_of(lambda calls: None, lambda calls, stream: None)
    monkeypatch.setattr(
        Plan, "add_group",
        lambda self, *given, add=Plan.add_group: (
            self.set_mesh(mesh.struct(0), communicator), add(self, *given)
        )[1],
    )  # fmt: skip
    model = CodedModel(package, DeviceMemory(double), specs=SPECS[:1], storages=F32, begin=False)
    model.bindings[0].layout = ctypes.addressof(layout)
    expected = (
        "tensor 'w0.0': state 'exp_avg' is kept as codes, and ranks cut blocks of 64 elements: a "
        "plan on CUDA device 0 has whole ones"
    )
    with pytest.raises(errors.StatusError, match=expected) as refused:
        model.begin()
    assert refused.value.status == "STEPC_LAYOUT_UNSUPPORTED"


def describe(address, shape, bits, device):
    extents = (ctypes.c_int64 * len(shape))(*shape)
    tensor = structures.DLTensor(
        address, structures.DLDevice(*device), len(shape),
        structures.DLDataType(1 if bits == 8 else 2, bits, 1),
        ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64)), None, 0,
    )  # fmt: skip
    return tensor, extents


@pytest.mark.parametrize("where", ["device", "unknown"])
def test_codes_of_the_caller(where, package, double):
    """They lie on the device with their scales, or are refused."""
    models = make_both(package, double, specs=SPECS[:1], storages=F32)
    memory, shape = models[1].memory, SPECS[0][0]
    codes, kept = [], []
    for values in (np.zeros(shape, np.uint8), np.zeros((shape[0], 3), np.float32)):
        address = memory.place_array(values, 0)[0]
        if where == "unknown" and values.dtype == np.float32:
            address = values.ctypes.data
        pair = [describe(address, values.shape, 8 * values.itemsize, memory.place), values]
        again = memory.place_array(values, 0)[0]
        kept += [pair, describe(again, values.shape, 8 * values.itemsize, memory.place)]
        codes.append((ctypes.c_void_p * 2)(*(ctypes.addressof(t[0]) for t in (pair[0], kept[-1]))))
    model = CodedModel(
        package, memory, specs=SPECS[:1], storages=F32, begin=False
    )  # fmt: skip
    (binding,) = model.bindings
    binding.states, binding.scales = map(ctypes.addressof, codes)
    if where == "unknown":
        expected = "tensor 'w0.0': scales of state 'exp_avg' is at address .*, which the driver"
        with pytest.raises(errors.StatusError, match=expected):
            model.begin()
        return
    model.begin()
    models = models[0], model
    for seed in range(2):
        step_both(models, seed)
    assert_same_bits(models)
