# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LOMO and AdaLomo, which step inside the backward pass, beside what reduces gradients behind
it. Until one program does both, that is refused before anything is changed: each rank would
step with a gradient of its own."""

import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

KINDS = (st.lomo.Lomo, st.lomo.AdaLomo)


def made():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def accumulators_hooked(model):
    """As Megatron and apex reduce: by a hook of Python's on what accumulates a gradient."""
    model.kept = []
    for param in model.parameters():
        node = param.expand_as(param).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: None)
        model.kept.append(node)
    return model


WRAPPERS = {
    "DDP": DistributedDataParallel,
    "DDP, buckets as gradients": lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True),
    "DDP, a graph that stays": lambda m: DistributedDataParallel(m, static_graph=True),
    "DDP, what is not used": lambda m: DistributedDataParallel(m, find_unused_parameters=True),
    "replicate": replicate,
    "hooks of Python": accumulators_hooked,
}


def loss_of(model):
    torch.manual_seed(1 + dist.get_rank())
    return model(torch.randn(5, 8)).square().mean()


def refused(words, call):
    try:
        call()
    except errors.StepcError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


@case
def what_reduces_gradients_is_refused():
    """Wrapped before the optimizer is made or after, and the one or the other given to it."""
    orders = itertools.product(KINDS, WRAPPERS.items(), ("before", "behind", "given"), (None, 1.0))
    for kind, (name, wrap), when, norm in orders:
        model = made()
        if when == "behind":
            optimizer = kind(model, clip_grad_norm=norm)
            wrapped = wrap(model)
        else:
            wrapped = wrap(model)
            optimizer = kind(wrapped if when == "given" else model, clip_grad_norm=norm)
        before = [p.detach().clone() for p in model.parameters()]
        words = "0.weight' has a hook where its gradient is accumulated, as DistributedDataParallel"
        loss = loss_of(wrapped)
        if norm is None:
            refused(words, lambda o=optimizer, x=loss: o.fused_backward(x, 1e-2))
        else:
            refused(words, lambda o=optimizer, x=loss: o.grad_norm(x))
        for param, then in zip(model.parameters(), before, strict=True):
            assert param.grad is None, name
            same_bits(param, then, f"{kind.__name__}, {name}, {when}")
        assert not optimizer.state


@case
def wrapped_between_two_steps():
    model = made()
    optimizer = st.lomo.AdaLomo(model)
    optimizer.fused_backward(loss_of(model), 1e-2)
    before = [p.detach().clone() for p in model.parameters()]
    # The gradients of that step were each rank's own: they are so again.
    wrapped = accumulators_hooked(model)
    refused("has a hook", lambda: optimizer.fused_backward(loss_of(wrapped), 1e-2))
    for param, then in zip(model.parameters(), before, strict=True):
        same_bits(param, then, "a refused step")


@case
def a_rank_by_itself_steps():
    """What no other rank has a part in goes on, frozen parameters and hooks of users too."""
    for kind in KINDS:
        model = made()
        model[0].bias.requires_grad_(False)
        seen = []
        handle = model[2].weight.register_post_accumulate_grad_hook(seen.append)
        twin = made()
        twin[0].bias.requires_grad_(False)
        left, right = kind(model), kind(twin)
        for _ in range(3):
            left.fused_backward(loss_of(model), 1e-2)
            right.fused_backward(loss_of(twin), 1e-2)
        assert len(seen) == 3
        handle.remove()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            same_bits(a, b, kind.__name__)


@case
def parts_of_fsdp2_are_refused_as_what_they_are():
    for kind in KINDS:
        model = made()
        fully_shard(model)
        optimizer = kind(model)
        loss = loss_of(model)
        try:
            optimizer.fused_backward(loss, 1e-2)
        except errors.TensorError as error:
            assert "is a 'DTensor'" in str(error), error
        else:
            raise AssertionError("DTensors were not refused")


@case
def what_cannot_be_known_is_refused():
    from stepc.torch.ranks import accumulators as _accumulators

    found, _accumulators._place_of_hooks = _accumulators._place_of_hooks, lambda: 0
    try:
        model = made()
        optimizer = st.lomo.Lomo(model)
        loss = loss_of(model)
        refused("needs to know who reduces", lambda: optimizer.fused_backward(loss, 1e-2))
    finally:
        _accumulators._place_of_hooks = found
    assert found() > 0


if __name__ == "__main__":
    main()
