# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans on devices of their own, whose rounds are NCCL's: of two ranks there is one order of
additions, so they have the bits of the same ranks on the processor; of more, where no sum
depends on the order.
"""

import numpy as np
import pytest
from device_models import DeviceMemory, assert_same, bits
from device_ranks import Dims, Flat, RankModel, compile_ranks, run_ranks
from device_ranks import World as HostWorld
from double import make_zip
from nccl_double import destroy, make_worlds
from stepc import errors
from stepc._mesh import Mesh
from stepc._runtime import Package

PAIR = Mesh(("dp",), (2,))
SPECS = [
    ((67, 33), Flat(("dp",), [0, 700, 2211])),
    ((9, 5), Dims({0: ("dp",)})),
    ((40,), Flat(("dp",), [0, 40, 40])),
    ((5, 7), Dims({})),
]
SQUARE = Mesh(("a", "b"), (2, 2))
SQUARE_SPECS = [
    ((13, 40), Flat(("a", "b"), [0, 100, 333, 333, 520])),
    ((9, 7), Dims({0: ("a",), 1: ("b",)})),
    ((6, 5), Dims({1: ("a",)})),
    ((11,), Dims({})),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """With rounds of tensors and of the model, and a scale by which steps are skipped."""
    folder = tmp_path_factory.mktemp("lamb")
    members = compile_ranks("lamb", folder, PAIR, SPECS, "torch_scaler", "clip_by_norm")
    return Package.from_bytes(make_zip(members))


class Ranks:
    """The ranks on the processor, and on devices with worlds of NCCL."""

    def __init__(self, package, doubles, mesh=PAIR, specs=SPECS, **settings):
        self.doubles, self.mesh = doubles, mesh
        self.host = HostWorld(package, mesh, specs)
        self.worlds = make_worlds(doubles, mesh.sizes, **settings)
        self.models = [
            RankModel(package, DeviceMemory(doubles.cuda, rank), mesh, rank,
                      world.communicator, specs, stream=world.stream)
            for rank, world in enumerate(self.worlds)
        ]  # fmt: skip

    def set_grads(self, seed, overflow):
        for model in (*self.host.models, *self.models):
            model.set_grads(seed)
            if overflow is not None:
                model.overflow(overflow, float("inf"))

    def both(self, work):
        return run_ranks(self.mesh, work)

    def step(self, seed, overflow=None):
        self.set_grads(seed, overflow)
        self.host.each(lambda model: model.plan.step())
        self.both(lambda rank: self.models[rank].plan.step())

    def assert_same(self):
        self.both(lambda rank: self.models[rank].last_step())
        for host, device in zip(self.host.models, self.models, strict=True):
            assert_same(device, host)
            assert device.counts() == host.counts()

    def end(self):
        for model in self.models:
            model.plan = None
        destroy(self.worlds)
        self.doubles.require_nothing_left()


@pytest.mark.parametrize("seed", [0, 1])
def test_steps(package, doubles, seed):
    doubles.reset(seed=seed)
    ranks = Ranks(package, doubles)
    for step, overflow in enumerate([None, 0, None]):
        ranks.step(step, overflow)
        ranks.assert_same()
    assert ranks.models[0].counts() == [2] * len(SPECS)
    ranks.end()


def test_graphs(package, doubles):
    """Each launch makes the rounds; one of them is skipped."""
    ranks = Ranks(package, doubles)
    ranks.step(0)
    cuda = doubles.cuda

    def capture(rank):
        model = ranks.models[rank]
        model.plan.upload()
        with cuda.capture(ranks.worlds[rank].stream, rank) as graphs:
            model.plan.step()
        return graphs[0]

    graphs = ranks.both(capture)
    for step, overflow in enumerate([None, 1, None]):
        ranks.set_grads(10 + step, overflow)
        ranks.host.each(lambda model: model.plan.step())
        ranks.both(lambda rank: cuda.launch(graphs[rank], ranks.worlds[rank].stream, rank))
        ranks.assert_same()
    for rank, graph in enumerate(graphs):
        with cuda.context(rank):
            cuda.call("cuGraphExecDestroy", graph)
    ranks.end()


def test_a_rank_that_does_not_step(package, doubles):
    """The other one is told by its deadline, and poisoned."""
    ranks = Ranks(package, doubles, deadline_ms=1000)
    ranks.step(0)
    ranks.assert_same()
    waiting = ranks.models[0]
    waiting.plan.step()
    with pytest.raises(errors.CommunicationError, match="did not end within 1000 ms"):
        waiting.plan.scalar("scale")
    with pytest.raises(errors.StatusError) as refused:
        waiting.plan.step()
    assert refused.value.status == "STEPC_POISONED"


def test_a_plan_is_destroyed_before_its_ranks_come(package, doubles):
    """It waits as long as the deadline is, and no longer."""
    ranks = Ranks(package, doubles, deadline_ms=300)
    ranks.step(0)
    ranks.assert_same()
    ranks.models[0].plan.step()
    ranks.models[0].plan = None
    assert "did not end within 300 ms" in ranks.worlds[0].wait()
    ranks.end()


# --- Four ranks ---------------------------------------------------------------------------


def run_square(name, fragments, flags, folder, doubles):
    members = compile_ranks(name, folder, SQUARE, SQUARE_SPECS, *fragments, flags=flags)
    ranks = Ranks(Package.from_bytes(make_zip(members)), doubles, SQUARE, SQUARE_SPECS)
    for seed in range(3):
        ranks.step(seed)
    return ranks


def test_four_ranks_of_reproducible_sums(doubles, tmp_path):
    ranks = run_square("adamw", ["clip_by_norm"], ["--reproducible"], tmp_path, doubles)
    ranks.assert_same()
    ranks.end()


def test_four_ranks_agree(doubles, tmp_path):
    """Sums are rounded in another order than on the processor, the same on all ranks."""
    ranks = run_square("lamb", [], [], tmp_path, doubles)
    for host, device in zip(ranks.host.models, ranks.models, strict=True):
        for found, expected in zip(device.results(), host.results(), strict=True):
            assert np.allclose(found, expected, rtol=1e-5, atol=1e-37)
        own, other = device.plan.info(), host.plan.info()
        assert own.exchangeCalls == other.exchangeCalls > 0
    # The last tensor is whole on every rank, and what scaled it came of all.
    whole = [bits(model.tensors[-1].of_role("param")[0].read()) for model in ranks.models]
    assert all(np.array_equal(part, whole[0]) for part in whole)
    ranks.end()
