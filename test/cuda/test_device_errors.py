# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the driver or the caller does wrong: a status with words, nothing left behind, and
a plan that is poisoned if tensors may have been updated in part.
"""

import pytest
from device_models import CUDA, SPECS, DeviceMemory, Memory, Model, Tensor, assert_same
from device_rules import FEW, RuleModel, make_rule_models
from double import ERRORS
from stepc import _library, errors
from stepc import _runtime as runtime
from stepc import _structures as structures
from stepc._runtime import Plan

# Every function that the engine calls, but for those that tell of errors.
FUNCTIONS = [
    "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent", "cuModuleLoadDataEx", "cuModuleGetFunction",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuMemAlloc", "cuMemsetD8Async",
    "cuPointerGetAttribute", "cuStreamSynchronize", "cuStreamIsCapturing", "cuLaunchKernel",
]  # fmt: skip
# Those of which there are more, or others, where there are rounds.
TILE_FUNCTIONS = [
    "cuMemAlloc", "cuMemsetD8Async", "cuMemcpyDtoHAsync", "cuStreamSynchronize",
    "cuStreamIsCapturing", "cuLaunchKernel",
]  # fmt: skip
# What ends a life cannot be told of; nothing else may go wrong then.
CLOSING = ["cuCtxPopCurrent", "cuCtxSynchronize", "cuDevicePrimaryCtxRelease", "cuMemFree",
           "cuModuleUnload"]  # fmt: skip


def run_life(model):
    """A plan with three steps; the error that ended it."""
    try:
        model.begin()
        for _ in range(3):
            model.plan.step()
        model.plan.count(model.ids[0])
    except errors.StatusError as error:
        return error
    return None


def fail_each_call(function, error, double, make_model):
    """The first call, the second, and so on, as long as there is one."""
    nth = 0
    while True:
        nth += 1
        double.reset()
        model = make_model()
        allocations = double.alive()[0]
        double.fail(function, nth, error)
        before = double.calls(function)
        failed = run_life(model)
        if double.calls(function) - before < nth:
            break
        assert failed is not None, f"call {nth} of {function} failed, and nothing was said"
        code = f"{ERRORS[error]} ({error}): "
        unknown = function == "cuPointerGetAttribute" and error == 1
        expected = "which the driver does not know" if unknown else code
        assert expected in str(failed) and (unknown or str(failed).startswith(function))
        assert "CUDA device 0" in str(failed) or unknown
        if not unknown:
            status = "STEPC_OUT_OF_MEMORY" if error == 2 else "STEPC_DEVICE_ERROR"
            assert failed.status == status
        del model.plan, failed
        if error != 700:  # after that nothing can be freed
            assert double.alive() == (allocations, 0, 0, 0), f"call {nth} of {function}"
        assert double.alive()[3] == 0
    assert nth > 1


@pytest.mark.parametrize("error", [1, 2, 700])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_fails(function, error, package, double):
    fail_each_call(function, error, double, lambda: Model(
        package, DeviceMemory(double), specs=SPECS[:2], own_states=True, begin=False
    ))  # fmt: skip


@pytest.mark.parametrize("error", [1, 2, 700])
@pytest.mark.parametrize("function", TILE_FUNCTIONS)
def test_each_call_of_rounds_fails(function, error, scaled, double):
    """Of a plan in the tiles space, whose steps may be skipped."""
    fail_each_call(function, error, double, lambda: RuleModel(
        scaled, DeviceMemory(double), specs=FEW[:2], storages=["param=f32"], begin=False
    ))  # fmt: skip


def test_launches_of_a_step_with_rounds(scaled, double):
    """One that fails leaves a plan that takes the step again, or none."""
    count, nth, poisoned = 1, 0, []
    while nth < count:
        double.reset()
        models = make_rule_models(scaled, double, specs=FEW[:2], storages=["param=f32"])
        for model in models:
            model.plan.step()
        launches = double.calls("cuLaunchKernel")
        if nth:
            double.fail("cuLaunchKernel", nth, 1)
            with pytest.raises(errors.DeviceError, match="^cuLaunchKernel of '"):
                models[1].plan.step()
        nth += 1
        try:
            models[1].plan.step()
        except errors.StatusError as refused:
            assert refused.status == "STEPC_POISONED"
            poisoned.append(nth)
            assert models[1].plan.info().steps == 1
            continue
        if nth == 1:  # None has failed.
            count = double.calls("cuLaunchKernel") - launches
        models[0].plan.step()
        assert_same(*models)
        assert models[0].counts() == models[1].counts()
        assert poisoned == []
    assert count > 10 and len(poisoned) > count // 2


def make_more(model, count):
    """Bindings of more tensors."""
    variant = model.tensors[0].variant
    more = [
        Tensor(model.memory, variant, f"v{k}", (3 + k,), 0, False, 70 + k, own_states=True)
        for k in range(count)
    ]
    return more, (structures.Binding * count)(*(tensor.binding(0) for tensor in more))


def bind_more(model, more, bindings):
    model.ids += model.plan.bind(bindings)
    model.tensors += more


def step_all(models, seed):
    for model in models:
        model.set_grads(seed)
        model.plan.step()


@pytest.mark.parametrize("captures", [False, True])
def test_a_bind_that_is_refused_changes_nothing(captures, package, double):
    """For lack of device memory, at each of its allocations: steps go on, and then the same
    bind."""
    nth, refused = 0, True
    while refused:
        nth += 1
        double.reset()
        stream = double.make_stream()
        host = Model(package, Memory(), own_states=True)
        device = Model(package, DeviceMemory(double), own_states=True, stream=stream)
        models = host, device
        step_all(models, 0)
        if captures:
            device.plan.upload()
            with double.capture(stream) as graphs:
                device.plan.step()
            host.plan.step()
            double.launch(graphs[0], stream)
        more = make_more(device, 300)
        double.fail("cuMemAlloc", nth, 2)
        try:
            bind_more(device, *more)
            refused = False
        except errors.StatusError as error:
            assert error.status == "STEPC_OUT_OF_MEMORY"
            step_all(models, 1)
            assert_same(*models)
            assert device.plan.count(device.ids[0]) == 2 + captures
            bind_more(device, *more)
        double.fail("", 0, 0)
        bind_more(host, *make_more(host, 300))
        step_all(models, 2)
        assert_same(*models)
        assert double.fault() == ""
    assert nth > 4


@pytest.mark.parametrize("function", CLOSING)
def test_an_end_that_fails(function, package, double):
    model = Model(package, DeviceMemory(double), specs=SPECS[:2], begin=False)
    double.fail(function, 1, 1)
    assert run_life(model) is None
    del model.plan
    assert double.calls(function) > 0


def launches_of_a_step(package, double):
    model = Model(package, DeviceMemory(double), specs=SPECS[:6], own_states=True)
    model.plan.step()
    before = double.calls("cuLaunchKernel")
    model.plan.step()
    return double.calls("cuLaunchKernel") - before


@pytest.mark.parametrize("error", [1, 701])
def test_launches_of_a_step(error, package, double):
    """Before the first kernel nothing has changed, and the step can be taken again; after
    it the plan is poisoned."""
    count = launches_of_a_step(package, double)
    scalars = 2  # of two variants, before anything is written
    for nth in range(1, count + 1):
        double.reset()
        models = [Model(package, memory, specs=SPECS[:6], own_states=True)
                  for memory in (Memory(), DeviceMemory(double))]  # fmt: skip
        for model in models:
            model.plan.step()
        double.fail("cuLaunchKernel", nth, error)
        with pytest.raises(errors.DeviceError, match="^cuLaunchKernel of '") as failed:
            models[1].plan.step()
        if nth > scalars + 1:
            with pytest.raises(errors.StatusError) as refused:
                models[1].plan.step()
            assert refused.value.status == "STEPC_POISONED"
            assert models[1].plan.info().steps == 1
            continue
        if nth == scalars + 1:
            assert "phase0' for " in str(failed.value) and "the first 'w0.0'" in str(failed.value)
        assert models[1].plan.count(models[1].ids[0]) == 1
        for model in models:
            model.set_grads(5)
            model.plan.step()
        assert_same(*models)


def test_a_store_that_fails_is_made_again(package, double):
    models = [Model(package, memory) for memory in (Memory(), DeviceMemory(double))]
    stores = double.calls("cuLaunchKernel:step_store")
    assert stores == 0
    models[0].plan.step()
    nth = 0
    while True:
        nth += 1
        double.fail("cuLaunchKernel:step_store", nth, 1)
        try:
            models[1].plan.step()
            break
        except errors.DeviceError as error:
            assert "cuLaunchKernel of 'step_store' on CUDA device 0" in str(error)
            nth = 0 if nth == 1 and double.calls("cuLaunchKernel:step_store") < 2 else nth
        double.fail("", 0, 0)
    assert_same(*models)


def test_a_kernel_that_faults(package, double):
    """It is told at a later call; tensors are in an unknown state then."""
    memory = DeviceMemory(double)
    model = Model(package, memory, specs=SPECS[:1])
    grad = model.tensors[0].of_role("grad")[0]
    # What an address has room for is the caller's promise: this one is its last element's.
    grad.tensor.data += grad.array.nbytes - grad.array.itemsize
    model.plan.set_grad(model.ids[0], grad.tensor)
    model.plan.step()
    assert double.synchronize() == 700
    assert "that is in no allocation" in double.fault() and "phase0'" in double.fault()
    with pytest.raises(errors.DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        model.plan.step()
    with pytest.raises(errors.StatusError, match="an earlier step of the plan failed midway"):
        model.plan.step()


def test_tensors_elsewhere(package, double):
    double.reset(devices=2)

    def refuse(message, tensor_memory, device=0):
        class Other(tensor_memory):
            place = CUDA, device

            def __init__(self, *arguments):
                if arguments:
                    super().__init__(*arguments)
                self.place = CUDA, device

        memory = Other() if tensor_memory is Memory else Other(double, 1)
        with pytest.raises(errors.TensorError, match=message) as refused:
            Model(package, memory, specs=SPECS[:1])
        assert refused.value.status == "STEPC_DEVICE_MISMATCH"

    refuse("tensor 'w0.0': parameter is at address 0x.*, which the driver does not know", Memory)
    refuse("parameter is in memory of CUDA device 1, the plan runs on 0", DeviceMemory)
    model = Model(package, DeviceMemory(double), specs=SPECS[:1])
    host = Model(package, Memory(), specs=SPECS[:1])
    for plan, tensor, message in (
        (model, host, "gradient is on the cpu, the plan runs on CUDA device 0"),
        (host, model, "gradient is on CUDA device 0, the plan runs on the cpu"),
    ):
        grad = tensor.tensors[0].of_role("grad")[0]
        with pytest.raises(errors.TensorError, match=message):
            plan.plan.set_grad(0, grad.tensor)


def test_gradients_elsewhere(package, double):
    """Addresses are looked at whenever they change."""
    double.reset(devices=2)
    model = Model(package, DeviceMemory(double), specs=SPECS[:6])
    other = DeviceMemory(double, 1)
    param, grad = (model.tensors[0].of_role(role)[0].tensor for role in ("param", "grad"))
    move = model.plan._lib.stepcPlanMoveGrad
    assert not move(model.plan._handle, model.ids[0], param, grad)  # it does not ask the driver
    for k in (0, 5):  # One looks as before, the other has other strides.
        for role, call in (("grad", model.plan.set_grad), ("param", model.plan.set_param)):
            operand = model.tensors[k].of_role(role)[0]
            for address, message in (
                (other.place_array(operand.read(), 0)[0], "is in memory of CUDA device 1, the"),
                (4096, "is at address 0x1000, which the driver does not know"),
            ):
                moved = structures.DLTensor.from_buffer_copy(operand.tensor)
                moved.data = address
                if k == 5:
                    moved.strides = None
                with pytest.raises(errors.TensorError, match=f"'w0.{k}': .* {message}") as refused:
                    call(model.ids[k], moved)
                assert refused.value.status == "STEPC_DEVICE_MISMATCH"
    model.plan.step()
    expected = Model(package, Memory(), specs=SPECS[:6])
    expected.plan.step()
    assert_same(model, expected)


def test_states_of_a_plan(package, double):
    plan = Plan(package)
    for call in (plan.upload, lambda: plan.set_stream(0)):
        with pytest.raises(errors.StatusError, match="but the plan runs on the cpu"):
            call()
    with pytest.raises(errors.StatusError, match="CUDA device 3 does not exist, the driver has 1"):
        plan.set_cuda(3)
    plan.set_cuda(0)
    with pytest.raises(errors.StatusError, match="the plan runs on CUDA device 0 already"):
        plan.set_cuda(0)
    model = Model(package, Memory(), specs=SPECS[:1])
    with pytest.raises(errors.StatusError, match="a CUDA device after 2 tensors were bound"):
        model.plan.set_cuda(0)


def test_a_context_of_the_caller(package, double):
    double.reset(devices=2)
    context = double.contexts[0].value
    models = [Model(package, Memory()), Model(package, DeviceMemory(double), context=context)]
    for model in models:
        model.plan.step()
    assert_same(*models)
    assert double.alive()[2] == 0
    with pytest.raises(
        errors.TensorError, match="is one of CUDA device 0, the plan is to run on 1"
    ):
        Plan(package).set_cuda(1, context=context)


def test_reserved_fields(package, double):
    plan, lib = Plan(package), package._lib
    config = structures.CudaConfig(runtime.ctypes.sizeof(structures.CudaConfig), 0, 7)
    with pytest.raises(errors.StatusError, match="a reserved field of the config is 7, not 0"):
        _library.check(lib, lib.stepcPlanSetCuda(plan.address, config))
