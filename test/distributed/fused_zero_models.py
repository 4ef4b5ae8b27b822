# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that are stepped within the backward pass beside ``zero=``, and their twins behind it."""

import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import same_bits

LAYERS = 4


def net(dtype=torch.float32, width=24):
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*itertools.chain.from_iterable(pairs)).to(dtype)


def loss_of(model, number, rank=None):
    """Of a batch that each rank has for itself."""
    rank = dist.get_rank() if rank is None else rank
    torch.manual_seed(1000 * number + rank)
    first = next(model.parameters())
    batch = torch.randn(5, first.shape[-1]).to(first.dtype)
    return model(batch).float().square().mean()


def none_left(model):
    assert all(param.grad is None for param in model.parameters())


def same_models(model, optimizer, twin, other, what):
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        same_bits(a, b, f"{what}: {name}")
        left, right = optimizer.state.get(a, {}), other.state.get(b, {})
        assert set(left) == set(right), (what, name, set(left), set(right))
    ours, theirs = optimizer.full_state_dict()["state"], other.full_state_dict()["state"]
    for key, state in theirs.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                same_bits(ours[key][name], value, f"{what}: {name} of {key}")


def compare(make, zero, behind=None, dtype=torch.float32, loss=loss_of, steps=3, change=None):
    """The model within the pass, its twin behind it."""
    model, twin = net(dtype), net(dtype)
    fused = make(model.named_parameters(), zero=zero, fused_backward=True)
    plain = make(twin.named_parameters(), zero=behind or zero)
    what = f"{type(fused).__name__}, {zero}"
    for number in range(steps):
        for own, optimizer in ((model, fused), (twin, plain)):
            if change is not None:
                change(own, optimizer, number)
            optimizer.scale(loss(own, number)).backward()
            if own is model:
                none_left(model)
            optimizer.step()
            optimizer.zero_grad()
        same_models(model, fused, twin, plain, f"{what}, step {number}")
    return model, fused


# What needs all tensors, or exchanges statistics: the sums stay until the step ends.
TOGETHER = {
    "Adafactor": lambda params, **k: st.hf.Adafactor(params, **k),
    "LAMB": lambda params, **k: st.deepspeed.FusedLamb(params, **k),
    "FusedAdam": lambda params, **k: st.deepspeed.FusedAdam(params, **k),
    "clipped by norm": lambda params, **k: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(1e-2), **k),
    "an average": lambda params, **k: st.AdamW(params, lr=1e-2, average=st.EMA(0.9), **k),
    "a dynamic scale": lambda params, **k: st.AdamW(
        params, lr=1e-2, loss_scale=st.DynamicLossScale(), **k
    ),
}


def local(stage=1, **more):
    return st.Zero(stage, gradients="local", **{"bucket_bytes": 3000, **more})


def reduced_by_hooks(model):
    """As who reduces gradients before they are accumulated."""

    def mean(grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    for param in model.parameters():
        param.register_hook(mean)
    return model
