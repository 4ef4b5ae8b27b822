# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A transformer under FSDP2, tensor parallelism, both, DDP and ZeRO-1, trained on four
ranks, against one process.

Autograd adds gradients up in another order on several ranks. So what is compared with
one process is near; with the gradients that the ranks have, put together and stepped
whole, it is the same bits.
"""

import stepc.torch as st
import torch
import torch.distributed as dist
from model import Transformer, batch, loss_of
from on_ranks import case, main, same_bits, whole
from samples import sample
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from zoo import ALL

STEPS = 10


def model():
    torch.manual_seed(1)
    return Transformer()


def fsdp(net, mesh, **settings):
    for block in net.blocks:
        fully_shard(block, mesh=mesh, **settings)
    return fully_shard(net, mesh=mesh, **settings)


def tensor_parallel(net, mesh):
    plan = {
        "query": ColwiseParallel(),
        "key": ColwiseParallel(),
        "value": ColwiseParallel(),
        "out": RowwiseParallel(),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    for block in net.blocks:
        parallelize_module(block, mesh, plan)
    return net


def sequence_parallel(net, mesh):
    """Between blocks each rank has a part of the sequence, also within norms, whose gradients
    are then still to be summed."""
    part = {"output_layouts": Shard(1), "use_local_output": False}
    column = ColwiseParallel(input_layouts=Shard(1))
    plan = dict.fromkeys(("query", "key", "value", "up"), column)
    plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel()}
    plan |= {"out": RowwiseParallel(**part), "down": RowwiseParallel(**part)}
    for block in net.blocks:
        parallelize_module(block, mesh, plan)
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    embedding = RowwiseParallel(input_layouts=Replicate(), **part)
    plan = {"embedding": embedding, "norm": SequenceParallel(), "head": head}
    return parallelize_module(net, mesh, plan)


def train(net, optimizer, share=None, shadow=None):
    """``share`` of the batch is this rank's; ``shadow`` steps the gradients put together."""
    losses = []
    for step in range(STEPS):
        tokens, targets = batch(step)
        if share is not None:
            at, count = share
            tokens, targets = tokens.chunk(count)[at], targets.chunk(count)[at]
        optimizer.zero_grad()
        loss = loss_of(net, tokens, targets)
        loss.backward()
        if shadow is not None:
            params, other = shadow
            for own, param in zip(params, net.parameters(), strict=True):
                own.grad = None if param.grad is None else whole(param.grad).clone()
            other.step()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def check(make, spread, share):
    """The run on ranks is, with its own gradients, the run of the whole; and near to
    that of one process."""
    reference = model()
    alone = train(reference, make(reference.parameters()))
    net = spread(model())
    shadows = [torch.nn.Parameter(whole(p).detach().clone()) for p in net.parameters()]
    losses = train(net, make(net.parameters()), share, (shadows, make(shadows)))
    for (name, param), shadow in zip(net.named_parameters(), shadows, strict=True):
        same_bits(whole(param), shadow, name)
    near(losses, alone)


def near(losses, alone):
    """The mean of the ranks' losses is that of one process, but for rounding."""
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    off = (mean - torch.tensor(alone, dtype=torch.float64)).abs().max()
    assert off < 1e-3, f"losses {mean.tolist()}, alone {alone}"


def slowly(name, **settings):
    """An optimizer of the zoo that this model converges with."""

    def make(params, **more):
        optimizer = ALL[name](params, **settings, **more)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        return optimizer

    return make


MAKERS = {name: slowly(name) for name in ("AdamW", "hf.Adafactor", "CAME", "FusedLamb")}


def ours():
    return dist.get_rank(), dist.get_world_size()


@case
def fsdp2():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    for make in sample(MAKERS.values(), "fsdp2", 2):
        check(make, lambda net: fsdp(net, mesh), ours())


@case
def fsdp2_of_the_last_dim():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))

    def place(param):
        return Shard(param.dim() - 1) if param.shape[-1] % 4 == 0 else Shard(0)

    for name in ("AdamW", "hf.Adafactor"):
        check(MAKERS[name], lambda net: fsdp(net, mesh, shard_placement_fn=place), ours())


@case
def hsdp():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for name in ("AdamW", "hf.Adafactor"):
        check(MAKERS[name], lambda net: fsdp(net, mesh), ours())


@case
def tensor_parallel_alone():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for make in sample(MAKERS.values(), "tensor_parallel_alone", 2):
        check(make, lambda net: tensor_parallel(net, mesh["tp"]), None)


def norms_are_partial(net):
    found = {
        name: param.grad.placements[0].is_partial()
        for name, param in net.named_parameters()
        if "norm" in name
    }
    return len(found) == 10 and all(found.values())


@case
def norms_in_sequence_parallel():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for make in sample(MAKERS.values(), "norms_in_sequence_parallel", 2):
        check(make, lambda net: sequence_parallel(net, mesh["tp"]), None)
    net = sequence_parallel(model(), mesh["tp"])
    loss_of(net, *batch(0)).backward()
    assert norms_are_partial(net)


@case
def a_state_is_made_with_zero_gradients_that_lie_otherwise():
    """torch's checkpointing steps with zeros in the parameters' placements to have states to
    load into; real gradients of norms are partial."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for name in ("AdamW", "CAME"):
        net = sequence_parallel(model(), mesh["tp"])
        optimizer = MAKERS[name](net.parameters())
        train(net, optimizer)
        again = sequence_parallel(model(), mesh["tp"])
        again.load_state_dict(net.state_dict())
        other, seen, step = MAKERS[name](again.parameters()), [], None
        step = other.step
        other.step = lambda *given, own=again, to=seen, step=step, **more: (
            to.append([p.grad.placements for n, p in own.named_parameters() if "norm" in n]),
            step(*given, **more),
        )[1]
        get_optimizer_state_dict(again, other)
        assert seen == [[(Replicate(),)] * 10], seen
        other.step = step
        set_optimizer_state_dict(again, other, get_optimizer_state_dict(net, optimizer))
        train(net, optimizer)
        train(again, other)
        assert norms_are_partial(again)
        for (key, a), b in zip(net.named_parameters(), again.parameters(), strict=True):
            same_bits(whole(b), whole(a), f"{name}, {key}")


@case
def tensor_parallel_with_fsdp2():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    share = (mesh.get_local_rank("dp"), 2)
    for make in sample(MAKERS.values(), "tensor_parallel_with_fsdp2", 2):
        check(make, lambda net: fsdp(tensor_parallel(net, mesh["tp"]), mesh["dp"]), share)


@case
def clipping_inside_the_step_under_all_of_them():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    make = slowly("AdamW, clipped")
    check(make, lambda net: fsdp(net, mesh), ours())
    check(make, lambda net: tensor_parallel(net, mesh["tp"]), None)
    share = (mesh.get_local_rank("dp"), 2)
    check(make, lambda net: fsdp(tensor_parallel(net, mesh["tp"]), mesh["dp"]), share)


@case
def zero1_over_ddp():
    for make in sample(MAKERS.values(), "zero1_over_ddp", 2):
        reference = model()
        alone = train(reference, make(reference.parameters()))
        net = DistributedDataParallel(model())
        optimizer = make(net.parameters(), zero=1, gradients="reduced")
        shadows = [torch.nn.Parameter(p.detach().clone()) for p in net.parameters()]
        losses = train(net, optimizer, ours(), (shadows, make(shadows)))
        for (name, param), shadow in zip(net.named_parameters(), shadows, strict=True):
            same_bits(param, shadow, name)
        near(losses, alone)


@case
def a_fused_pass_without_gradient_sync():
    """Micro-batches whose gradients FSDP2 keeps to itself until the last."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    net = fsdp(model(), mesh)
    optimizer = st.AdamW(net.parameters(), lr=1e-2)
    shadows = [torch.nn.Parameter(whole(p).detach().clone()) for p in net.parameters()]
    other = st.AdamW(shadows, lr=1e-2)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            net.set_requires_gradient_sync(part == 1)
            tokens, targets = (t.chunk(8)[2 * dist.get_rank() + part] for t in batch(step))
            loss_of(net, tokens, targets).backward()
        for own, param in zip(shadows, net.parameters(), strict=True):
            own.grad = whole(param.grad).clone()
        optimizer.step()
        other.step()
    for (name, param), shadow in zip(net.named_parameters(), shadows, strict=True):
        same_bits(whole(param), shadow, name)


@case
def a_loaded_state_goes_on_as_the_saved_one():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    net = fsdp(model(), mesh)
    optimizer = st.AdamW(net.parameters(), lr=1e-2)
    train(net, optimizer, ours())
    again = fsdp(model(), mesh)
    again.load_state_dict(net.state_dict())
    other = st.AdamW(again.parameters(), lr=1e-2)
    other.load_state_dict(optimizer.state_dict())
    train(net, optimizer, ours())
    train(again, other, ours())
    for (name, a), b in zip(net.named_parameters(), again.parameters(), strict=True):
        same_bits(whole(b), whole(a), name)


if __name__ == "__main__":
    main()
