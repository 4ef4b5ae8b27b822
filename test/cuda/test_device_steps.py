# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps on a device of the double have the bits of the processor's, wait for nothing,
allocate nothing, and tell the device only what has changed.
"""

import pytest
from device_models import SPECS, DeviceMemory, Memory, Model, Tensor, assert_same, name_variants
from device_rules import SPECS as RULE_SPECS
from device_rules import make_rule_models, make_rule_package
from double import ZOO, compile_package, make_zip, read_interface
from stepc import _structures as structures
from stepc._runtime import Package

# The storages that have kernels of their own: vectors of 4 and of 8 elements.
STORAGES = [
    "param=f32",
    "param=bf16,grad=bf16,state=f32",
]
# What a step must not do.
OF_MATRICES = {"muon", "gram_muon", "normuon", "jordan_muon", "moonlight_muon"}  # alone
FORBIDDEN = (
    "cuMemAlloc", "cuMemFree", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemsetD8Async",
    "cuStreamSynchronize", "cuCtxSynchronize", "cuModuleLoadDataEx", "cuModuleGetFunction",
)  # fmt: skip


def make_both(package, double, **arguments):
    return Model(package, Memory(), **arguments), Model(package, DeviceMemory(double), **arguments)


def step_both(models, seed):
    for model in models:
        model.set_grads(seed)
        model.plan.step()


@pytest.mark.sample(one_of=5)
@pytest.mark.parametrize("name", sorted({p.stem for p in ZOO.glob("*.mlir")}))
def test_zoo(name, double, tmp_path):
    """Every definition, over several steps."""
    members = compile_package(name, name_variants(read_interface(name), STORAGES), tmp_path)
    package = Package.from_bytes(make_zip(members))
    if any(variant["space"] == "tiles" for variant in package.manifest["variants"]):
        # Muon takes matrices alone.
        specs = [s for s in RULE_SPECS if name not in OF_MATRICES or len(s[0]) == 2]
        models = make_rule_models(package, double, specs=specs)
    else:
        models = make_both(package, double)
    before = models[1].results()
    for seed in range(3):
        step_both(models, seed)
    assert_same(*models)
    assert any((a != b).any() for a, b in zip(before, models[1].results(), strict=True))
    assert double.fault() == ""


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize(
    ("name", "storage"), [("adafactor", 0), ("came", 1), ("lamb", 0), ("lamb", 1)]
)
def test_reproducible_sums(name, storage, double, tmp_path):
    """So many along rows that shared memory has room for parts of rows alone."""
    storages = STORAGES[storage:][:1]
    package = make_rule_package(name, tmp_path, storages=storages, flags=["--reproducible"])
    models = make_rule_models(package, double, specs=RULE_SPECS[:5], storages=storages)
    for seed in range(2):
        step_both(models, seed)
    assert_same(*models)
    assert double.fault() == ""


def test_runtime_allocates_states(package, double):
    """Zeros on the device; counts and scalars go on from there."""
    models = make_both(package, double, own_states=True)
    for seed in range(4):
        step_both(models, seed)
    assert_same(*models)
    assert models[1].plan.count(models[1].ids[0]) == 4


def test_initial_values_other_than_zero(double, tmp_path):
    package = Package.from_bytes(
        make_zip(compile_package("rprop", ["--variant=param=f32"], tmp_path))
    )

    models = make_both(package, double, own_states=True)
    for seed in range(2):
        step_both(models, seed)
    assert_same(*models)


def test_a_step_waits_for_nothing_and_allocates_nothing(package, double):
    model = Model(package, DeviceMemory(double))
    model.plan.step()
    before = {name: double.calls(name) for name in FORBIDDEN}
    for _ in range(3):
        model.plan.step()
    model.plan.set_hypers(
        model.groups[0], tuple(2 * value for value in model.hypers[:3]) + (1e-6, 0.0)
    )
    model.plan.step()
    assert {name: double.calls(name) for name in FORBIDDEN} == before
    assert double.lib.cudaDoublePending() > 0


def test_nothing_is_told_twice(package, double):
    """A step that is like the one before it stores nothing; what moves is stored alone."""
    model = Model(package, DeviceMemory(double))

    def stores():
        return model.plan.info().deviceStores

    model.plan.step()
    first = stores()
    assert first > 0
    launches = double.calls("cuLaunchKernel")
    model.plan.step()
    model.plan.step()
    assert stores() == first
    # The scalars of two variants, their dense and strided rows, and the counts.
    assert double.calls("cuLaunchKernel") - launches == 2 * (2 + 4 + 1)
    grad = model.tensors[0].of_role("grad")[0]
    grad.address, grad.array = model.memory.place_array(grad.array, 0)
    model.plan.set_grad(model.ids[0], grad.describe(grad.storage))
    model.plan.step()
    assert stores() == first + 1
    hypers = list(model.hypers)
    hypers[0] /= 2
    model.plan.set_hypers(model.groups[0], tuple(hypers))
    model.plan.step()
    assert stores() == first + 2


def test_what_moves_is_seen(package, double):
    models = make_both(package, double)
    step_both(models, 1)
    for model in models:
        for k in (0, 3, 8):
            grad = model.tensors[k].of_role("grad")[0]
            grad.address, grad.array = model.memory.place_array(grad.array, 2)
            model.plan.set_grad(model.ids[k], grad.describe(grad.storage))
        param = model.tensors[1].of_role("param")[0]
        values = param.read()
        param.address, param.array = model.memory.place_array(values, 1)
        model.plan.set_param(model.ids[1], param.describe(param.storage))
    step_both(models, 2)
    assert_same(*models)


def test_tensors_without_gradients(package, double):
    """Counts differ then, so that one variant has several rows of scalars."""
    models = make_both(package, double, groups=2)
    for seed in range(5):
        for model in models:
            for k, tensor in enumerate(model.tensors):
                grad = tensor.of_role("grad")[0]
                has = (k + seed) % 3 != 0
                model.plan.set_grad(model.ids[k], grad.tensor if has else None)
        step_both(models, seed)
        for ids in zip(models[0].ids, models[1].ids, strict=True):
            assert models[0].plan.count(ids[0]) == models[1].plan.count(ids[1])
    assert_same(*models)


def test_hypers_of_groups(package, double):
    models = make_both(package, double, groups=3)
    for seed in range(3):
        for model in models:
            for group in model.groups:
                hypers = list(model.hypers)
                hypers[0] = 0.01 * (1 + group) / (1 + seed)
                model.plan.set_hypers(group, tuple(hypers))
        step_both(models, seed)
    assert_same(*models)


def test_many_tensors(package, double):
    """Tables and lists that take several stores."""
    specs = [((7 * k % 97 + 1,), k % 3, False) for k in range(120)]
    models = make_both(package, double, specs=specs)
    for seed in range(2):
        step_both(models, seed)
    assert_same(*models)


def test_binding_more_tensors(package, double):
    """The lists grow: the device gets them anew, and steps go on."""
    models = make_both(package, double, specs=SPECS[:1])
    step_both(models, 1)
    for model in models:
        variant = model.tensors[0].variant
        more = [
            Tensor(model.memory, variant, f"v{k}", (3 + k,), 0, False, 50 + k) for k in range(200)
        ]
        bindings = (structures.Binding * len(more))(*(t.binding(0) for t in more))
        model.ids += model.plan.bind(bindings)
        model.tensors += more
    step_both(models, 2)
    step_both(models, 3)
    assert_same(*models)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_streams(seed, package, double):
    """Work of two plans on streams of their own, run in orders that the seed decides."""
    double.reset(seed=seed)
    streams = [double.make_stream() for _ in range(2)]
    own = [Model(package, DeviceMemory(double), stream=stream) for stream in streams]
    expected = Model(package, Memory())
    for step in range(3):
        for model in (*own, expected):
            model.set_grads(step)
        for model in (*own, expected):
            model.plan.step()
        if step == 1:
            double.synchronize(streams[0])
    for model in own:
        assert_same(model, expected)


def test_a_later_stream(package, double):
    models = make_both(package, double)
    step_both(models, 1)
    double.synchronize()
    stream = double.make_stream()
    models[1].plan.set_stream(stream)
    step_both(models, 2)
    assert_same(*models)


def test_parts_of_steps(package, double):
    models = make_both(package, double)
    for seed in range(3):
        for model in models:
            model.set_grads(seed)
            model.plan.step_begin()
            model.plan.step_tensors(model.ids[:2])
            model.plan.step_tensors(model.ids[4 : 6 + seed])
            model.plan.step_end()
    step_both(models, 7)
    assert_same(*models)
    for ids in zip(models[0].ids, models[1].ids, strict=True):
        assert models[0].plan.count(ids[0]) == models[1].plan.count(ids[1])


def test_two_devices(package, double):
    double.reset(devices=2)
    models = [Model(package, DeviceMemory(double, device)) for device in (0, 1)]
    expected = Model(package, Memory())
    for seed in range(2):
        for model in (*models, expected):
            model.set_grads(seed)
            model.plan.step()
    for model in models:
        assert_same(model, expected)
    assert double.alive()[1] == 2 and double.alive()[3] == 0


def test_plans_share_a_module(package, double):
    models = [Model(package, DeviceMemory(double)) for _ in range(2)]
    assert double.alive()[1] == 1
    del models
    assert double.alive()[1] == 0


def test_nothing_is_left(package, double):
    memory = DeviceMemory(double)
    model = Model(package, memory, own_states=True)
    allocations = double.alive()[0]
    model.plan.step()
    own = 2 * len(model.tensors) * 2
    del model.plan
    assert double.alive() == (double.alive()[0], 0, 0, 0)
    assert double.alive()[0] < allocations and double.alive()[0] <= 2 * own
