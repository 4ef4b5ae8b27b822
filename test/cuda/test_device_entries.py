# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors with entries on devices of the double: gradients that are brought and parameters that
are given away have the bits of one process whose gradient is the sum."""

import numpy as np
import pytest
from device_entries import (
    Definition,
    DeviceWorld,
    Entry,
    Model,
    Tensor,
    compile_models,
    fill,
)
from double import ZOO
from stepc import errors
from stepc._mesh import Mesh
from test_device_steps import FORBIDDEN

PAIR = Mesh(("dp", "rep"), (2, 2))
LINE = Mesh(("dp",), (3,))
STEPS = 4


def make_entries(mesh):
    """Every kind; the first have other divisors and types than those behind them."""
    rep = ("rep",) if "rep" in mesh.names else ()
    return [
        Entry("flat", ("dp",), ("dp",), "bf16", 3.0),
        Entry("flat", ("dp",), ("dp", *rep), None, 2.0, before=True),
        Entry("flat", ("dp",), (), None),
        Entry("rows", ("dp",), ("dp",), "f32", 3.0),
        Entry("owned", ("dp",), ("dp", *rep), "f16"),
        Entry("", (), ("dp",), None, 3.0, before=True),
    ]


SHAPES = [(67, 33), (17,), (), (5, 3), (130, 3), (9,)]


def make_model(name, mesh, fragments=(), storages=("bf16", "bf16"), kept="master=f32",
               buckets=(300, 900), missing=True, overflows=(), orders=None, flags=()):  # fmt: skip
    """Two tensors of each entry. ``missing``: whether gradients are, of all ranks; ``overflows``:
    steps that have an infinite one."""
    rng = np.random.default_rng(7)
    definition = Definition(
        ZOO / f"{name}.mlir", [ZOO / "fragments" / f"{own}.mlir" for own in fragments],
        flags=list(flags),
    )  # fmt: skip
    world = int(np.prod(mesh.sizes))
    tensors = []
    for number in range(2 * len(SHAPES)):
        entry = make_entries(mesh)[number % len(SHAPES)]
        shape = SHAPES[(number + number // len(SHAPES)) % len(SHAPES)]
        if entry.kind == "rows" and not shape:
            shape = (4, 2)
        grads = []
        for step in range(STEPS):
            here = not missing or (number + step) % 5 != 0
            own = [fill(rng, "normal", shape, storages[1]).reshape(shape) for _ in range(world)]
            if step in overflows and number == 0:
                own[0].reshape(-1)[-1] = 0x7F80 if storages[1] == "bf16" else np.inf
            places = [tuple(at for axis, at in zip(mesh.names, mesh.coordinates(rank), strict=True)
                            if axis in entry.partial) for rank in range(world)]  # fmt: skip
            own = [own[places.index(place)] for place in places]
            grads.append(own if here else None)
        tensors.append(
            Tensor(shape, fill(rng, "normal", shape, storages[0]), storages, entry, grads)
        )
    if orders is None:
        turn = np.random.default_rng(3)
        orders = [None if step % 2 else [[int(k) for k in turn.permutation(len(tensors))]
                                         for _ in range(world)]
                  for step in range(STEPS)]  # fmt: skip
    hypers = {"max_norm": 1.0} if "clip_by_norm" in fragments else {}
    options = {o["name"]: o["default"] for o in definition.interface["options"]
               if "derived" not in o}  # fmt: skip
    return Model(definition, hypers, options, mesh, tensors, buckets, orders,
                 kept if storages[0] == "bf16" else "")  # fmt: skip


MODELS = {
    "buckets": lambda: make_model("adamw", PAIR),
    "remainders": lambda: make_model("lion", LINE, kept="master=remainder"),
    "wide": lambda: make_model("sgd", LINE, storages=("f64", "f64"), buckets=(0, 0)),
    "clipped": lambda: make_model(
        "adamw", PAIR, ["torch_scaler", "clip_by_norm"], ("f32", "f32"), overflows=(1,),
        flags=["--reproducible"],
    ),
}  # fmt: skip


def make_whole():
    """All gradients are there in each step, which is one."""
    return make_model("adamw", PAIR, missing=False, orders=[None] * STEPS)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    models = {name: make() for name, make in MODELS.items()}
    models["whole"] = make_whole()
    models["skipping"] = make_model(
        "adamw", PAIR, ["torch_scaler", "clip_by_norm"], ("f32", "f32"), missing=False,
        overflows=(3,), orders=[None] * STEPS, flags=["--reproducible"],
    )  # fmt: skip
    found = compile_models(list(models.values()), tmp_path_factory.mktemp("entries"))
    return {name: (model, found.get(model)) for name, model in models.items()}


def make_world(packages, name, double):
    model, package = packages[name]
    double.reset(model.world)
    return DeviceWorld(model, package, double, model.world), package


@pytest.mark.parametrize("name", MODELS)
def test_the_bits_of_one_process(packages, name, double):
    world, package = make_world(packages, name, double)
    for step in range(STEPS):
        world.step(step)
    assert world.compare(package) == ""
    info = world.runs[0].plan.info()
    assert info.exchangeBytes > 0
    assert info.skippedSteps == (1 if name == "clipped" else 0)


@pytest.mark.parametrize("name", ["whole", "skipping"])
def test_a_step_waits_for_nothing(packages, name, double):
    """And tells the device nothing that it knows."""
    world, _ = make_world(packages, name, double)
    world.step(0)
    world.step(1)
    world.synchronize()
    plans = [run.plan for run in world.runs]
    stored = plans[0].info().deviceStores
    before = {call: double.calls(call) for call in FORBIDDEN}
    waits = [own.waits for own in world.communicators]
    finished = world.communicators[0].finished
    world.each(lambda run: run.plan.step())
    assert [own.waits for own in world.communicators] == waits
    if name == "whole":  # rounds are made on the host here
        assert {call: double.calls(call) for call in FORBIDDEN} == before
        assert double.lib.cudaDoublePending() > 0
    assert world.communicators[0].finished > finished
    # Chunks of buckets, and counts; of what crosses nothing.
    assert plans[0].info().deviceStores - stored < 40
    world.synchronize()


def rewrite(world, grads, step):
    """The gradients of a step, where those lie that are given."""
    for run, own in zip(world.runs, grads, strict=True):
        for tensor, grad in zip(run.model.tensors, own, strict=True):
            grad.write(tensor.grads[step][run.rank])


def capture(world):
    """A graph of each rank that has a step like the one before."""
    world.synchronize()
    world.each(lambda run: run.plan.upload())

    def make(run):
        with world.double.capture(run.stream, run.device) as graphs:
            run.plan.step()
        return graphs[0]

    return world.each(make)


def launch(world, graphs):
    def launch_one(run):
        world.double.launch(graphs[run.rank], run.stream, run.device)
        assert world.double.synchronize(run.stream, run.device) == 0

    world.each(launch_one)


def test_a_graph(packages, double):
    """It has what a step has; other gradients may lie where they lay."""
    world, package = make_world(packages, "whole", double)
    world.step(0)
    world.each(lambda run: run.set_grads(1))
    calls = world.runs[0].plan.info().exchangeCalls
    graphs = capture(world)
    assert world.runs[0].plan.info().exchangeCalls == calls
    for step in range(1, STEPS):
        rewrite(world, [run.grads for run in world.runs], step)
        launch(world, graphs)
    assert world.compare(package) == ""


def test_steps_beside_a_graph(packages, double):
    """They are one, with gradients that have moved, and the graph has its own."""
    world, package = make_world(packages, "whole", double)
    world.step(0)
    kept = [list(run.grads) for run in world.runs]
    world.synchronize()
    rewrite(world, kept, 1)
    graphs = capture(world)
    launch(world, graphs)
    world.step(2)
    world.synchronize()
    rewrite(world, kept, 3)
    launch(world, graphs)
    assert world.compare(package) == ""
    with pytest.raises(errors.StatusError, match="steps of the plan were captured in a graph"):
        world.runs[0].plan.step_begin()


def test_a_graph_of_before(packages, double):
    """It changes nothing, though its transfers are made, in memory that stays."""
    world, _ = make_world(packages, "whole", double)
    world.step(0)
    graphs = capture(world)
    before = [[own.view for own in run.params] for run in world.runs]
    world.each(lambda run: (run.bind(), run.plan.upload()))
    launch(world, graphs)
    world.synchronize()
    for run, params in zip(world.runs, before, strict=True):
        for own, param in zip(run.params, params, strict=False):
            np.testing.assert_array_equal(own.view, param)
        with pytest.raises(errors.StatusError, match="1 launches of graphs did nothing"):
            run.plan.count(run.ids[0])
        assert run.plan.count(run.ids[0]) == 1


# --- Errors -------------------------------------------------------------------------------


def test_a_communicator_without_transfers(packages, double):
    model, package = packages["whole"]
    double.reset(model.world)
    message = (
        r"tensor 't0': its entry crosses 'dp', and the communicator has no enqueueStart and "
        r"enqueueFinish, which a plan on a CUDA device needs"
    )

    with pytest.raises(errors.StatusError, match=message) as refused:
        DeviceWorld(model, package, double, model.world, transfers=False)
    assert refused.value.status == "STEPC_INVALID_ARGUMENT"


@pytest.mark.parametrize("name", ["whole", "skipping"])
@pytest.mark.parametrize("nth", [0, 2, -1])
def test_a_transfer_that_fails(packages, name, nth, double):
    """Whatever was written: what was enqueued may wait for what was not."""
    world, _ = make_world(packages, name, double)
    world.step(0)
    world.synchronize()
    for own in world.communicators:
        count = len(own.transfers)
        own.failing_transfer = count + (nth % count)

    def step(run):
        with pytest.raises(errors.CommunicationError, match="of tensor 't.*: a cable is loose"):
            run.plan.step()
        with pytest.raises(errors.StatusError) as refused:
            run.plan.step()
        return refused.value.status

    assert world.each(step) == ["STEPC_POISONED"] * world.model.world
    # All that was started was ended.
    assert all(not own.events for own in world.communicators)


def test_memory_of_the_process(packages, double):
    """A gradient that is not on the device is refused by name."""
    world, _ = make_world(packages, "whole", double)
    run = world.runs[0]
    run.set_grads(0)
    tensor = run.grads[0].tensor
    here = np.zeros(tensor.shape[0] * tensor.shape[1], np.uint16)
    tensor.data = here.ctypes.data
    with pytest.raises(errors.StepcError, match="tensor 't0': gradient"):
        run.plan.set_grad(run.ids[0], tensor)
