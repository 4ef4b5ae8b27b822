# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans on devices of their own, whose rounds are NCCL's: of two ranks, of which there is one
order of additions, so the bits of the same ranks on the processor.
"""

import pytest
from device_models import DeviceMemory, assert_same
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


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """With rounds of tensors and of the model, and a scale by which steps are skipped."""
    folder = tmp_path_factory.mktemp("lamb")
    members = compile_ranks("lamb", folder, PAIR, SPECS, "torch_scaler", "clip_by_norm")
    return Package.from_bytes(make_zip(members))


class Ranks:
    """The ranks on the processor, and on devices with worlds of NCCL."""

    def __init__(self, package, doubles, **settings):
        self.doubles = doubles
        self.host = HostWorld(package, PAIR, SPECS)
        self.worlds = make_worlds(doubles, PAIR.sizes, **settings)
        self.models = [
            RankModel(package, DeviceMemory(doubles.cuda, rank), PAIR, rank,
                      world.communicator, SPECS, stream=world.stream)
            for rank, world in enumerate(self.worlds)
        ]  # fmt: skip

    def set_grads(self, seed, overflow):
        for model in (*self.host.models, *self.models):
            model.set_grads(seed)
            if overflow is not None:
                model.overflow(overflow, float("inf"))

    def both(self, work):
        return run_ranks(PAIR, work)

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
        del self.models
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
