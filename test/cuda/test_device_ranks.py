# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of several ranks on devices of the double have the bits of the same ranks on the
processor: ranges of elements, sharded dims, whole tensors, and whatever is idle on some.
"""

import ctypes
import os

import numpy as np
import pytest
from device_models import DeviceMemory, Memory, assert_same, bits, get_hypers
from device_ranks import (
    LINE,
    MESH,
    PARTLY,
    SPECS,
    AloneCommunicator,
    RankModel,
    RankTensor,
    World,
    compile_ranks,
)
from double import ZOO, make_zip
from stepc import _structures as structures
from stepc import errors
from stepc._mesh import CommunicatorStruct, Mesh
from stepc._runtime import Package, Plan
from test_device_steps import FORBIDDEN

FACTORED = {"min_dim_size_to_factor": 2}
# Each has a part that others have not; STEPC_DEVICE_RANKS_FULL=1 takes the whole zoo.
NAMES = ["came", "fused_adam", "lars", "sgd"]
if os.environ.get("STEPC_DEVICE_RANKS_FULL") == "1":
    NAMES = sorted({path.stem for path in ZOO.glob("*.mlir")})


def make_worlds(package, double, specs=SPECS, devices=1, mesh=MESH, **arguments):
    arguments.setdefault("options", FACTORED)
    return (
        World(package, mesh, specs, **arguments),
        World(package, mesh, specs, double, devices, **arguments),
    )


def step_both(worlds, *arguments, **options):
    for world in worlds:
        world.step(*arguments, **options)


def assert_all_same(worlds):
    for host, device in zip(*(world.models for world in worlds), strict=True):
        assert_same(device, host)
        assert device.counts() == host.counts()
        assert device.last_step() == host.last_step()


def assert_same_exchanges(worlds):
    for host, device in zip(*(world.models for world in worlds), strict=True):
        for field in ("steps", "rounds", "exchangeRounds", "exchangeCalls", "exchangeBytes"):
            own = getattr(device.plan.info(), field)
            assert own == getattr(host.plan.info(), field), field


@pytest.mark.parametrize("name", NAMES)
def test_zoo(name, double, tmp_path):
    members = compile_ranks(name, tmp_path, MESH, SPECS)
    package = Package.from_bytes(make_zip(members))
    worlds = make_worlds(package, double)
    before = worlds[1].models[3].results()
    for seed in range(2):
        step_both(worlds, seed)
    assert_all_same(worlds)
    assert_same_exchanges(worlds)
    changed = zip(before, worlds[1].models[3].results(), strict=True)
    assert any((bits(a) != bits(b)).any() for a, b in changed)
    assert double.fault() == ""


def test_skipped_steps(lamb, double):
    """An element of one rank makes all of them skip, NaN in the largest norm too."""
    worlds = make_worlds(lamb, double)
    for seed, overflow in enumerate([None, 5, 0, None]):
        step_both(worlds, seed, overflow=overflow)
        assert_all_same(worlds)
    assert worlds[1].models[0].counts() == [2] * len(SPECS)
    assert worlds[1].models[0].plan.info().skippedSteps == 2


def test_idle_tensors(lamb, double):
    worlds = make_worlds(lamb, double, groups=2)
    for seed in range(4):
        step_both(worlds, seed, has=lambda k, seed=seed: (k + seed) % 3 != 0)
        assert_all_same(worlds)
    assert_same_exchanges(worlds)


def test_maxima(maxima, double):
    """Of negative numbers too, and NaN is above all."""
    worlds = make_worlds(maxima, double, SPECS[:4])
    for seed, value in enumerate([-50.0, np.inf, np.nan]):
        for world in worlds:
            for model in world.models:
                model.make_grads_negative(seed)
                model.overflow(3, value)
            world.each(lambda model: model.plan.step())
        assert_all_same(worlds)
        top = worlds[1].models[0].plan.report("top")
        assert top < 0 if seed == 0 else np.array_equal(top, value, equal_nan=True)


def test_groups_of_other_ranks(partly, double):
    """A group takes part where a rank has a tensor of it, also on the ranks that have none, and
    does not where no rank has: its scalars stay.
    """
    worlds = [World(partly, LINE, PARTLY, own, groups=3) for own in (None, double)]
    for seed in range(4):
        for world in worlds:
            for rank, model in enumerate(world.models):
                model.set_grads(seed)
                # The first group on rank 0 alone, the second on all, the third at times.
                model.set_has_grad(
                    lambda k, rank=rank, seed=seed: (rank == 0, True, seed % 2 == 0)[k]
                )
            world.each(lambda model: model.plan.step())
        assert_all_same(worlds)
    for rank in range(3):
        host, device = (world.models[rank] for world in worlds)
        assert device.plan.scalar("d", 0) == host.plan.scalar("d", 0)


def test_nothing_takes_part_anywhere(partly, double):
    worlds = World(partly, LINE, PARTLY), World(partly, LINE, PARTLY, double)
    for seed, has in enumerate([True, False, True]):
        step_both(worlds, seed, has=lambda _, has=has: has)
        assert_all_same(worlds)


def test_devices_of_their_own(lamb, double):
    double.reset(devices=4, seed=3)
    worlds = make_worlds(lamb, double, devices=4)
    for seed in range(2):
        step_both(worlds, seed)
    assert_all_same(worlds)


def test_tensors_are_bound_later(lamb, double):
    """What crosses moves."""
    worlds = make_worlds(lamb, double, SPECS[:2])
    step_both(worlds, 1)
    for world in worlds:
        for model in world.models:
            more = [
                RankTensor(model.memory, ("f32", "f32"), f"v{k}", spec, 40 + k, MESH, model.rank)
                for k, spec in enumerate(SPECS[2:] * 3)
            ]
            bindings = (structures.Binding * len(more))(*(tensor.binding(0) for tensor in more))
            model.ids += model.plan.bind(bindings)
            model.tensors += more
    for seed in (2, 3):
        step_both(worlds, seed)
    assert_all_same(worlds)


# --- One rank of several, of which the others have neutral elements ------------------------


def make_alone(package, double, specs=SPECS[:4], **arguments):
    """Rank 1 of the mesh, on the processor and on the device."""
    arguments.setdefault("options", FACTORED)
    own = AloneCommunicator(double)
    stream = double.make_stream()
    device = RankModel(package, DeviceMemory(double), MESH, 1, own.struct, specs, stream=stream,
                       **arguments)  # fmt: skip
    device.stream, device.own = stream, own
    host = RankModel(package, Memory(), MESH, 1, own.host, specs, **arguments)
    return host, device


def step_alone(models, seed, overflow=None):
    for model in models:
        model.set_grads(seed)
        if overflow is not None:
            model.overflow(overflow, np.inf)
        model.plan.step()


def assert_alone_same(models):
    host, device = models
    assert_same(device, host)
    assert device.counts() == host.counts()


def test_a_step_waits_for_nothing(lamb, double):
    _, device = make_alone(lamb, double)
    device.plan.step()
    device.set_grads(3)
    before = {name: double.calls(name) for name in FORBIDDEN}
    rounds, waits = len(device.own.rounds), device.own.waits
    for _ in range(2):
        device.plan.step()
    assert {name: double.calls(name) for name in FORBIDDEN} == before
    assert device.own.waits == waits
    assert double.lib.cudaDoublePending() > 0
    # The same calls in each.
    assert device.own.rounds[rounds:] == 2 * device.own.rounds[:rounds]
    device.plan.scalar("scale")
    assert device.own.waits == waits + 1


def test_a_graph(lamb, double):
    """Rounds are part of it; what is skipped is decided in each launch."""
    models = make_alone(lamb, double)
    host, device = models
    step_alone(models, 0)
    device.plan.upload()
    counted = device.plan.info().exchangeCalls
    with double.capture(device.stream) as graphs:
        device.plan.step()
    assert device.plan.info().exchangeCalls == counted
    for seed, overflow in enumerate([None, 0, None]):
        for model in models:
            model.set_grads(seed + 1)
            if overflow is not None:
                model.overflow(overflow, np.inf)
        host.plan.step()
        double.launch(graphs[0], device.stream)
        assert_alone_same(models)
    assert device.last_step()[0] == 0


def test_a_graph_keeps_what_its_calls_name(lamb, double):
    """Its rounds are made even where the graph is of before, so their memory stays."""
    host, device = make_alone(lamb, double, SPECS[:2])
    step_alone((host, device), 0)
    device.plan.upload()
    with double.capture(device.stream) as graphs:
        device.plan.step()
    calls = device.own.rounds[-1]
    more = [RankTensor(device.memory, ("f32", "f32"), f"v{k}", spec, 50 + k, MESH, 1)
            for k, spec in enumerate(SPECS[:4] * 8)]  # fmt: skip
    device.plan.bind((structures.Binding * len(more))(*(tensor.binding(0) for tensor in more)))
    for _, _, data, count in calls:
        with double.context(0):
            place = ctypes.c_int()
            for address in (data, data + 8 * count - 1):
                double.call(
                    "cuPointerGetAttribute", ctypes.byref(place), 9, ctypes.c_uint64(address)
                )
    double.launch(graphs[0], device.stream)
    assert double.synchronize(device.stream) == 0 and double.fault() == ""


# --- Errors -------------------------------------------------------------------------------


def test_a_round_that_fails(lamb, double):
    _, device = make_alone(lamb, double)
    device.plan.step()
    device.own.failing = len(device.own.rounds) + 1
    message = "round 1 of 'lamb': a cable is loose"
    with pytest.raises(errors.CommunicationError, match=message):
        device.plan.step()
    with pytest.raises(errors.StatusError) as refused:
        device.plan.step()
    assert refused.value.status == "STEPC_POISONED"


def test_waiting_fails(lamb, double):
    _, device = make_alone(lamb, double)
    device.plan.step()
    double.fail("cuStreamSynchronize", 1, 1)
    message = "waiting for a stream of CUDA device 0: code 1"
    with pytest.raises(errors.CommunicationError, match=message):
        device.plan.scalar("scale")
    # What can still be said of the plan does not wait again.
    double.fail("cuStreamSynchronize", 1, 1)
    assert device.plan.info().steps == 1
    with pytest.raises(errors.StatusError) as refused:
        device.plan.step()
    assert refused.value.status == "STEPC_POISONED"


def test_a_mesh_without_memory(lamb, double):
    """The plan goes on as it was: one rank, which makes no rounds with others."""
    own, plan = AloneCommunicator(double), Plan(lamb, threads=1)
    plan.set_cuda(0, stream=double.make_stream())
    plan.add_group({}, tuple(get_hypers(lamb.manifest)))
    double.fail("cuMemAlloc", 1, 2)
    with pytest.raises(errors.StatusError) as refused:
        plan.set_mesh(MESH.struct(1), own.struct)
    assert refused.value.status == "STEPC_OUT_OF_MEMORY"
    plan.step()
    assert own.rounds == []
    plan.set_mesh(MESH.struct(1), own.struct)
    plan.step()
    assert own.rounds != []


@pytest.mark.parametrize("device_first", [False, True])
def test_a_communicator_that_does_not_enqueue(lamb, double, device_first):
    axes, other = Mesh(("dp",), (2,)).struct(0), CommunicatorStruct()
    other.structSize = ctypes.sizeof(other)
    other.reduce = type(other.reduce)(lambda *arguments: 1)
    plan = Plan(lamb)
    calls = [(plan.set_mesh, axes, other), (plan.set_cuda, 0)]
    if device_first:
        calls.reverse()
    (first, *arguments), (second, *others) = calls
    first(*arguments)
    message = "the rounds of package '<memory>' cross ranks, which on a CUDA device needs"
    with pytest.raises(errors.StatusError, match=message) as refused:
        second(*others)
    assert refused.value.status == "STEPC_INVALID_ARGUMENT"
