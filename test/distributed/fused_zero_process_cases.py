# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True`` beside ``zero=``, against one process with the mean of all gradients."""

import itertools

import hybrid_cases as hybrid
import stepc.torch as st
import torch
import torch.distributed as dist
from fused_zero_models import (
    TOGETHER,
    local,
    loss_of,
    net,
    none_left,
    reduced_by_hooks,
)
from named_values import named_values
from on_ranks import case, main, same_bits
from zoo import ALL, OF_EACH_GRADIENT

SHAPES = {"a": (33, 20), "b": (17,), "c": (5, 7, 9), "d": (130, 64), "e": (3,), "f": (2, 3, 5, 7)}


def exact(steps=4):
    """Parameters, and for each step and rank gradients whose mean is exact."""
    made = {name: torch.randn(shape) * 0.1 for name, shape in SHAPES.items()}
    grads = [
        [
            {name: torch.randint(-8, 9, shape) / 64.0 for name, shape in SHAPES.items()}
            for _ in range(dist.get_world_size())
        ]
        for _ in range(steps)
    ]
    return made, grads


def named(made):
    return [(name, torch.nn.Parameter(value.clone())) for name, value in made.items()]


def backward(params, grads):
    """A pass with these gradients, of those that there are."""
    terms = [(param * grads[name]).sum() for name, param in params if name in grads]
    if terms:
        sum(terms).backward()


STATISTICS = {"Adafactor", "LAMB", "clipped by norm"}
# What has no gradient in a step: by rank, None for all of them.
ABSENT = [{}, {"b": (0, 2), "d": (1,)}, {"a": None, "e": (3,)}, {"f": (0, 1, 2), "c": None}]


def own_of(grads, absent):
    rank = dist.get_rank()
    return {n: g for n, g in grads[rank].items()
            if n not in absent or (absent[n] is not None and rank not in absent[n])}  # fmt: skip


def mean_of(grads, absent):
    """With zeros for what a rank has not, where another has it."""
    found, world = {}, len(grads)
    for name in SHAPES:
        gone = absent.get(name, ())
        if gone is not None:
            there = [own[name] for rank, own in enumerate(grads) if rank not in gone]
            found[name] = sum(there[1:], there[0]) / world
    return found


@case
def ranks_that_have_gradients_of_other_parameters():
    """Also one that has none at all; what none has stays as it is."""
    for (kind, make), stage in itertools.product((OF_EACH_GRADIENT | TOGETHER).items(), (1, 2)):
        made, grads = exact(len(ABSENT))
        plain, sharded = named(made), named(made)
        # Of statistics, whose bits are else of who sums what.
        more = {"reproducible": kind in STATISTICS}
        reference = make(plain, **more)
        zero = local(stage, bucket_bytes=2000)
        fused = make(sharded, zero=zero, fused_backward=True, **more)
        scale = fused.loss_scale
        for number, (own, absent) in enumerate(zip(grads, ABSENT, strict=True)):
            both = mean_of(own, absent)
            for name, param in plain:
                param.grad = both[name] * scale if name in both else None
            reference.step()
            backward(sharded, {n: g * scale for n, g in own_of(own, absent).items()})
            fused.step()
            what = f"{kind}, step {number}"
            for (name, param), (_, expected) in zip(sharded, plain, strict=True):
                assert param.grad is None
                same_bits(param, expected, f"{what}: {name}")
                here, there = fused.state.get(param, {}), reference.state.get(expected, {})
                assert set(here) == set(there), (what, name)
                assert float(here.get("step", 0)) == float(there.get("step", 0)), (what, name)


@case
def a_rank_whose_pass_has_no_gradient():
    made, grads = exact(2)
    plain, sharded = named(made), named(made)
    reference = st.AdamW(plain)
    fused = st.AdamW(sharded, zero=local(2, bucket_bytes=2000), fused_backward=True)
    for own in grads:
        both = {n: sum(g[n] for g in own[1:]) / len(own) for n in SHAPES}
        for name, param in plain:
            param.grad = both[name]
        reference.step()
        backward(sharded, own[dist.get_rank()] if dist.get_rank() else {})
        fused.step()
        for (name, param), (_, expected) in zip(sharded, plain, strict=True):
            same_bits(param, expected, name)


@case
def a_gradient_set_by_hand_is_stepped():
    made, grads = exact(2)
    plain, sharded = named(made), named(made)
    reference, fused = st.AdamW(plain), st.AdamW(sharded, zero=local(1), fused_backward=True)
    for own in grads:
        for (_, a), (name, b) in zip(plain, sharded, strict=True):
            a.grad, b.grad = mean_of(own, {})[name], own[dist.get_rank()][name].clone()
        reference.step()
        fused.step()
        for (name, param), (_, expected) in zip(sharded, plain, strict=True):
            assert param.grad is None
            same_bits(param, expected, name)


def compare_cut(name, kind, stage, partial=()):
    """Ranks (2, 2) of zero and tensor parallelism, against one process."""
    mesh = hybrid.grid()
    made, grads = named_values(hybrid.SHAPES, 2, 3)
    plain = hybrid.named(made)
    reference = ALL[name](plain)
    params, said = hybrid.spread(kind, mesh, made, partial)
    zero = st.Zero(stage, "local", mesh["dp"].get_group(), bucket_bytes=300)
    fused = ALL[name](params, **said, zero=zero, fused_backward=True)
    for own in grads:
        both, scale = hybrid.mean(own), fused.loss_scale
        for key, param in plain:
            param.grad = both[key] * scale
        reference.step()
        mine = {n: g * scale for n, g in own[mesh.get_local_rank("dp")].items()}
        hybrid.backward(kind, mesh, params, mine, partial)
        fused.step()
        assert all(param.grad is None for _, param in params), (name, kind)
        hybrid.same_as(kind, mesh, params, dict(plain), f"{name}, {kind}, stage {stage}")


@case
def what_tensor_parallelism_has_cut():
    for kind, stage in itertools.product(hybrid.KINDS, (1, 2)):
        compare_cut("AdamW", kind, stage)
        compare_cut("hf.Adafactor" if stage == 1 else "AdamW, clipped", kind, stage)


@case
def gradients_that_are_partial():
    """A DTensor's comes as it is to be; one that a layout says is summed by the end of the step."""
    for kind, name in itertools.product(hybrid.KINDS[:2], ("AdamW", "hf.Adafactor")):
        compare_cut(name, kind, 2, partial=("norm",))


def lomo_pair(make, zero, steps=3):
    """With the mean over ranks of the gradient, as one process takes it."""
    model, twin = net(), net()
    optimizer, other = make(model, zero=zero), make(twin)
    for number in range(steps):
        mean, norms = sum(loss_of(twin, number, rank) for rank in range(4)) / 4, []
        for own, each, loss in (
            (model, optimizer, loss_of(model, number)),
            (twin, other, mean),
        ):
            if each.clip_grad_norm is not None:
                norm = each.grad_norm(loss)
                none_left(own)
                norms.append(float(norm))
            each.fused_backward(loss, 1e-2)
            none_left(own)
        if norms:
            torch.testing.assert_close(*map(torch.tensor, norms), rtol=1e-5, atol=0.0)
        for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=f"{name}, step {number}")
            every = [torch.empty_like(a) for _ in range(4)]
            dist.all_gather(every, a.detach())
            for own in every:
                same_bits(own, a, name)


@case
def lomo_and_adalomo():
    for kind, stage in itertools.product((st.lomo.Lomo, st.lomo.AdaLomo), (1, 2)):
        for clip in ({}, {"clip_grad_norm": 0.02}, {"clip_grad_value": 1e-3}):
            lomo_pair(lambda m, k=kind, c=clip, **more: k(m, **c, **more), local(stage))


@case
def lomo_with_gradients_that_are_reduced():
    for kind in (st.lomo.Lomo, st.lomo.AdaLomo):
        for norm in (None, 0.02):
            model, twin = reduced_by_hooks(net()), net()
            zero = st.Zero(1, gradients="reduced", bucket_bytes=3000)
            optimizer, other = (
                kind(model, clip_grad_norm=norm, zero=zero),
                kind(twin, clip_grad_norm=norm),
            )
            for number in range(2):
                mean = sum(loss_of(twin, number, rank) for rank in range(4)) / 4
                for own, each, loss in (
                    (model, optimizer, loss_of(model, number)),
                    (twin, other, mean),
                ):
                    if norm is not None:
                        each.grad_norm(loss)
                    each.fused_backward(loss, 1e-2)
                    none_left(own)
            for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


if __name__ == "__main__":
    main()
