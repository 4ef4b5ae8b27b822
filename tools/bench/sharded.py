"""Who takes part in the distributed benchmark: steps of parameters on several ranks.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from optimizers import LR, ours, torch_adamw

BUCKET = 25 << 20  # bytes, as DistributedDataParallel's
REFERENCE = "reference"


class World:
    """What the contestants share: parameters that every rank has whole, the same as
    DTensors cut in rows, and gradients."""

    def __init__(self, shapes):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.shapes = shapes
        mesh = init_device_mesh("cpu", (self.size,))
        generator = torch.Generator().manual_seed(1)

        def draw(shape, scale):
            return torch.randn(shape, generator=generator) * scale

        self.whole = [torch.nn.Parameter(draw(shape, 0.02)) for shape in shapes]
        self.gradients = [draw(shape, 1e-2) for shape in shapes]
        cut = [s for s in range(len(shapes)) if shapes[s]]  # fully_shard takes no 0-d one
        self.rows, self.row_gradients = [], []
        for number in cut:
            for tensor, to in ((self.whole[number].detach(), self.rows),
                               (self.gradients[number], self.row_gradients)):  # fmt: skip
                to.append(distribute_tensor(tensor.clone(), mesh, [Shard(0)]))
        self.rows = [torch.nn.Parameter(tensor) for tensor in self.rows]


class Steps:
    """An optimizer over some parameters, with new gradient tensors in each step.

    ``reduce``: what is done to gradients before, as part of the step.
    """

    def __init__(self, make, params, gradients, reduce=None):
        self.params, self.gradients, self.reduce = params, gradients, reduce
        self.optimizer = make(params)

    def before(self):
        for param, gradient in zip(self.params, self.gradients, strict=True):
            param.grad = gradient.clone()

    def step(self):
        if self.reduce is not None:
            self.reduce([param.grad for param in self.params])
        self.optimizer.step()

    def after(self):
        for param in self.params:
            param.grad = None


class Collectives:
    """Collectives alone."""

    def __init__(self, step):
        self.step = step

    def before(self):
        pass

    after = before


def whole(make, reduce=None):
    return lambda world: Steps(make, world.whole, world.gradients, reduce)


def rows(make):
    return lambda world: Steps(make, world.rows, world.row_gradients)


def zero(name, gradients, reproducible=False, **options):
    """``options``: of Zero."""
    own = {"reproducible": True} if reproducible else {}
    return whole(lambda params: ours(name, zero=_zero(gradients, **options), **own)(params))


def _zero(gradients, **options):
    import stepc.torch

    return stepc.torch.Zero(1, gradients, **options)


def flat(name, gradients):
    """Parameters of its own: it moves them."""

    def make(world):
        params = [torch.nn.Parameter(one.detach().clone()) for one in world.whole]
        how = ours(name, zero=_zero(gradients, flatten_parameters=True))
        return Steps(how, params, world.gradients)

    return make


def redundancy(**options):
    """torch's ZeroRedundancyOptimizer: whole tensors on owners, which send them to all."""

    def make(params):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(params, torch.optim.AdamW, lr=LR, **options)

    return make


def redundancy_in_view(world):
    """Its best form, in which what owners have is sent from where it lies, a call for each. It
    moves parameters: of its own."""
    params = [torch.nn.Parameter(one.detach().clone()) for one in world.whole]
    make = redundancy(fused=True, parameters_as_bucket_view=True)
    return Steps(make, params, world.gradients)


def torch_adafactor(params):
    return torch.optim.Adafactor(params, lr=LR)


def in_buckets(gradients):
    """The mean of the gradients over ranks, as DistributedDataParallel makes it."""
    bucket, size = [], 0
    for number, gradient in enumerate(gradients):
        bucket.append(gradient)
        size += gradient.nbytes
        if size >= BUCKET or number == len(gradients) - 1:
            flat = torch.cat([one.view(-1) for one in bucket]).div_(dist.get_world_size())
            dist.all_reduce(flat)
            at = 0
            for one in bucket:
                one.copy_(flat[at : at + one.numel()].view(one.shape))
                at += one.numel()
            bucket, size = [], 0


def colossal(world):
    """The collectives of ColossalAI's DistributedAdaFactor under ZeRO, one after the other:
    of a matrix whose rows divide by the ranks the column statistic, of others gradient and
    square are gathered; of each tensor the root mean square. Without its arithmetic."""
    calls = []
    for shape in world.shapes:
        if len(shape) == 2 and shape[0] % world.size == 0:
            calls.append((dist.all_reduce, (torch.zeros(shape[1]),)))
        elif len(shape) == 2:
            part = -(-shape[0] * shape[1] // world.size)
            whole, own = torch.zeros(part * world.size), torch.zeros(part)
            calls += [(dist.all_gather_single, (whole, own))] * 2
        calls.append((dist.all_reduce, (torch.zeros(1),)))

    def step():
        for call, tensors in calls:
            call(*tensors)

    return Collectives(step)


def reference(world):
    """An all-reduce that says how steady the machine is."""
    tensor = torch.zeros(1 << 20)
    return Collectives(lambda: dist.all_reduce(tensor))


def exchange(collective, parts):
    """One collective of buffers as large as all parameters, or a rank's part of them."""

    def make(world):
        part = -(-sum(one.numel() for one in world.whole) // world.size)
        whole, own = torch.zeros(part * world.size), torch.zeros(part * parts(world.size))
        return Collectives(lambda: collective(whole, own))

    return make


@dataclass(frozen=True)
class Entry:
    """One contestant: what tables call it and how it is made in a :class:`World`."""

    label: str
    make: Callable


ENTRIES = {
    REFERENCE: Entry("an all-reduce of 4 MiB", reference),
    "gather": Entry(
        "an all-gather of the parameters alone", exchange(dist.all_gather_single, lambda size: 1)
    ),
    "all-to-all": Entry(
        "an all-to-all of the gradients alone",
        exchange(dist.all_to_all_single, lambda size: size),
    ),
    "zero-adamw": Entry("stepc AdamW zero=1, reduced", zero("AdamW", "reduced")),
    "flat-adamw": Entry(
        "stepc AdamW zero=1, reduced, flatten_parameters=True", flat("AdamW", "reduced")
    ),
    "zero-adafactor": Entry("stepc Adafactor zero=1, reduced", zero("Adafactor", "reduced")),
    "redundancy-foreach": Entry(
        "torch ZeroRedundancyOptimizer AdamW foreach", whole(redundancy(foreach=True))
    ),
    "redundancy-fused": Entry(
        "torch ZeroRedundancyOptimizer AdamW fused", whole(redundancy(fused=True))
    ),
    "redundancy-view": Entry(
        "torch ZeroRedundancyOptimizer AdamW fused, bucket view", redundancy_in_view
    ),
    "zero-adamw-local": Entry("stepc AdamW zero=1, local", zero("AdamW", "local")),
    "zero-adafactor-local": Entry("stepc Adafactor zero=1, local", zero("Adafactor", "local")),
    "zero-adamw-waiting": Entry(
        "stepc AdamW zero=1, local, overlap=False", zero("AdamW", "local", overlap=False)
    ),
    "zero-adamw-line": Entry(
        "stepc AdamW zero=1, local, one bucket", zero("AdamW", "local", bucket_bytes=1 << 40)
    ),
    "zero-adamw-half": Entry(
        "stepc AdamW zero=1, local, reduce_dtype=bfloat16",
        zero("AdamW", "local", reduce_dtype=torch.bfloat16),
    ),
    "zero-adafactor-waiting": Entry(
        "stepc Adafactor zero=1, local, overlap=False",
        zero("Adafactor", "local", overlap=False),
    ),
    "reduce-redundancy": Entry(
        "all-reduce in buckets, ZeroRedundancyOptimizer fused",
        whole(redundancy(fused=True), in_buckets),
    ),
    "rows-adamw": Entry("stepc AdamW on DTensors", rows(ours("AdamW"))),
    "rows-adafactor": Entry("stepc Adafactor on DTensors", rows(ours("Adafactor"))),
    "zero-adafactor-reproducible": Entry(
        "stepc Adafactor zero=1, reduced, reproducible",
        zero("Adafactor", "reduced", reproducible=True),
    ),
    "rows-adafactor-reproducible": Entry(
        "stepc Adafactor on DTensors, reproducible", rows(ours("Adafactor", reproducible=True))
    ),
    "rows-lamb": Entry("stepc FusedLamb on DTensors", rows(ours("deepspeed.FusedLamb"))),
    "rows-lamb-reproducible": Entry(
        "stepc FusedLamb on DTensors, reproducible",
        rows(ours("deepspeed.FusedLamb", reproducible=True)),
    ),
    "rows-foreach": Entry("torch AdamW foreach on DTensors", rows(torch_adamw(foreach=True))),
    "rows-fused": Entry("torch AdamW fused on DTensors", rows(torch_adamw(fused=True))),
    "rows-torch-adafactor": Entry("torch Adafactor on DTensors", rows(torch_adafactor)),
    "colossal": Entry("ColossalAI's collectives of Adafactor alone", colossal),
}

# Ours, and the peer that does the same, or ours in another way.
PAIRS = (
    ("zero-adamw", "redundancy-foreach"),
    ("zero-adamw", "redundancy-fused"),
    ("zero-adamw", "redundancy-view"),
    ("flat-adamw", "redundancy-view"),
    ("flat-adamw", "zero-adamw"),
    ("zero-adafactor", "redundancy-fused"),
    ("zero-adamw-local", "reduce-redundancy"),
    ("zero-adafactor-local", "reduce-redundancy"),
    ("zero-adamw-local", "zero-adamw-waiting"),
    ("zero-adamw-local", "zero-adamw-line"),
    ("zero-adamw-half", "zero-adamw-local"),
    ("zero-adafactor-local", "zero-adafactor-waiting"),
    ("rows-adamw", "rows-foreach"),
    ("rows-adamw", "rows-fused"),
    ("rows-adafactor", "rows-fused"),
    ("rows-adafactor", "colossal"),
    ("zero-adafactor", "zero-adafactor-reproducible"),
    ("rows-adafactor", "rows-adafactor-reproducible"),
    ("rows-lamb", "rows-lamb-reproducible"),
)
