# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small model under each of the layouts of works.py. Its loss is linear in the
parameters, so that gradients are known, and their means are exact."""

from __future__ import annotations

import contextlib
import functools

import torch
import torch.distributed as dist
from on_ranks import same_bits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

SHAPES = {
    "embedding": (10, 8),
    "up": (12, 8),
    "down": (8, 12),
    "bias": (12,),
    "norm": (7,),
    "expert0": (6, 5),
    "expert1": (6, 5),
}
MEGATRON = {"up": 0, "bias": 0, "down": 1}


@functools.cache
def mesh_of(**axes):
    return init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))


def cut(tensor, dim, parts, at):
    """As DTensor cuts: parts of ceil(n / parts) rows, the last ones smaller or empty."""
    size = -(-tensor.shape[dim] // parts)
    first = min(at * size, tensor.shape[dim])
    return tensor.narrow(dim, first, min(size, tensor.shape[dim] - first)).clone()


class Layer(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = torch.nn.Parameter(value)

    def forward(self, grad):
        own = self.weight.to_local() if isinstance(self.weight, DTensor) else self.weight
        return (own * grad).sum()


class Net(torch.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.layers = torch.nn.ModuleDict({name: Layer(value) for name, value in values.items()})

    def forward(self, grads):
        return sum(layer(grads[name]) for name, layer in self.layers.items())


class Way:
    """The model and its optimizer under one layout. ``ranks``: how many have batches of their
    own, of which ``at`` is this one's."""

    ranks, at = 1, 0

    def __init__(self, make, made):
        self.net = Net({n: self.spread(n, made[n].clone()) for n in SHAPES if self.has(n)})
        self.model = self.wrap(self.net)
        self.optimizer = make(self.named(), **self.arguments())

    def named(self):
        return [(name, layer.weight) for name, layer in self.net.layers.items()]

    def has(self, name) -> bool:
        """Whether this rank has the tensor."""
        return True

    def part(self, name, tensor):
        """What this rank has of a whole tensor."""
        return tensor

    def spread(self, name, tensor):
        """The same as a parameter is made of it."""
        return self.part(name, tensor)

    def wrap(self, net):
        return net

    def arguments(self):
        return {}

    def mean(self, name, own):
        """The gradient of the whole, of those of the ranks."""
        return sum(own[rank][name] for rank in range(self.ranks)) / self.ranks

    def share(self, name) -> float:
        """What of the gradient this rank's pass gives."""
        return 1.0

    def backward(self, own):
        mine = own[self.at]
        grads = {n: self.part(n, mine[n]) * self.share(n) for n, _ in self.named()}
        self.model(grads).backward()

    def without_sync(self):
        """For passes whose gradients are kept until the next."""
        return contextlib.nullcontext()

    def zero_grad(self):
        self.optimizer.zero_grad()
        self.net.zero_grad()

    def step(self):
        self.optimizer.step()

    def same_as(self, plain, what):
        for name, param in self.named():
            expected = plain[name].detach()
            if isinstance(param, DTensor):
                same_bits(param.full_tensor(), expected, f"{what}, {name}")
            else:
                same_bits(param, self.part(name, expected), f"{what}, {name}")


class Replicas(Way):
    """Each rank has a batch of its own."""

    @property
    def ranks(self):
        return dist.get_world_size()

    @property
    def at(self):
        return dist.get_rank()


class Ddp(Replicas):
    def wrap(self, net):
        return DistributedDataParallel(net)

    def without_sync(self):
        return self.model.no_sync()


class Zero1OverDdp(Ddp):
    def arguments(self):
        return {"zero": 1, "gradients": "reduced"}


class Zero1(Replicas):
    stage = 1

    def arguments(self):
        return {"zero": self.stage, "gradients": "local", "bucket_bytes": 600}


class Stage2:
    """Of a class with ``stage``: reduces gradients in the pass."""

    stage = 2

    def without_sync(self):
        return self.optimizer.no_sync()


class Zero2(Stage2, Zero1):
    pass


def sharded(net, mesh, **settings):
    for layer in net.layers.values():
        fully_shard(layer, mesh=mesh, **settings)
    return fully_shard(net, mesh=mesh, **settings)


class Fsdp2(Replicas):
    settings: dict = {}

    @property
    def mesh(self):
        return mesh_of(dp=4)

    def wrap(self, net):
        return sharded(net, self.mesh, **self.settings)

    @contextlib.contextmanager
    def without_sync(self):
        self.model.set_requires_gradient_sync(False)
        yield
        self.model.set_requires_gradient_sync(True)


def last_dim(param):
    """Where it can: FSDP2 cuts other dims than the first evenly alone."""
    return Shard(param.dim() - 1 if param.shape[-1] % 4 == 0 else 0)


class Fsdp2OfTheLastDim(Fsdp2):
    settings = {"shard_placement_fn": last_dim}


class Hsdp(Fsdp2):
    @property
    def mesh(self):
        return mesh_of(replicate=2, shard=2)


class TpOfDim0(Way):
    """Every tensor that has the dim, as a DTensor."""

    dim = 0

    def part(self, name, tensor):
        at = dist.get_rank()
        return cut(tensor, self.dim, 4, at) if tensor.dim() > self.dim else tensor

    def spread(self, name, tensor):
        has = tensor.dim() > self.dim
        return distribute_tensor(tensor, mesh_of(tp=4), [Shard(self.dim) if has else Replicate()])


class TpOfDim1(TpOfDim0):
    dim = 1


class Grid(Way):
    """Two by two ranks, of which those along the first axis have batches of their own, and those
    along the second parts of the tensors as Megatron-LM cuts them."""

    ranks = 2
    axes = {"dp": 2, "tp": 2}

    @property
    def mesh(self):
        return mesh_of(**self.axes)

    @property
    def at(self):
        return self.mesh.get_local_rank("dp")

    def part(self, name, tensor):
        at = self.mesh.get_local_rank("tp")
        return cut(tensor, MEGATRON[name], 2, at) if name in MEGATRON else tensor

    def spread(self, name, tensor):
        placement = Shard(MEGATRON[name]) if name in MEGATRON else Replicate()
        return distribute_tensor(tensor, self.mesh["tp"], [placement])


class TpWithFsdp2(Grid):
    without_sync = Fsdp2.without_sync

    def wrap(self, net):
        return sharded(net, self.mesh["dp"])


class TpWithZero1(Grid):
    stage = 1

    def arguments(self):
        group = self.mesh["dp"].get_group()
        return {"zero": self.stage, "gradients": "local", "process_group": group}


class TpWithZero2(Stage2, TpWithZero1):
    pass
