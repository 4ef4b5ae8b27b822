# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flat partitions, as DeepSpeed's ZeRO puts them into the groups of an optimizer."""

import copy

import pytest
import stepc.torch as st
import torch
from stepc import errors

SHAPES = ([(5, 7), (11,), (3, 4, 2)], [(7,), (), (2, 3)])
WORLD = 3


class Partition:
    """What ``DeepSpeedZeroOptimizer`` of one rank does to an optimizer, on one process: a
    group's parameters end to end, with zeros up to equal parts, of which the rank has one as
    f32; a step of each group by itself, the others taken out of ``param_groups``."""

    def __init__(self, optimizer, rank):
        self.optimizer, self.rank, self.flats = optimizer, rank, []
        self.model = [param for group in optimizer.param_groups for param in group["params"]]
        for group in optimizer.param_groups:
            flat = self.flatten(group["params"])
            own = flat.chunk(WORLD)[rank].clone().float().detach()
            own.requires_grad = True
            self.flats.append(own)
            group["params"] = [own]

    @staticmethod
    def flatten(tensors):
        line = torch.cat([t.detach().reshape(-1).float() for t in tensors])
        return torch.nn.functional.pad(line, (0, -len(line) % WORLD))

    def step(self, gradients):
        groups = self.optimizer.param_groups
        for number, flat in enumerate(self.flats):
            flat.grad = self.flatten(gradients[number]).chunk(WORLD)[self.rank].clone()
            self.optimizer.param_groups = [groups[number]]
            self.optimizer.step()
            self.optimizer.param_groups = groups
            flat.grad = None


def groups_of(params):
    return [{"params": params[0]}, {"params": params[1], "lr": 0.03}]


def parameters():
    torch.manual_seed(0)
    return [[torch.nn.Parameter(torch.randn(s)) for s in shapes] for shapes in SHAPES]


def gradients(step):
    torch.manual_seed(100 + step)
    return [[torch.randn(s) for s in shapes] for shapes in SHAPES]


ELEMENTWISE = {
    "AdamW": st.AdamW,
    "amsgrad": lambda params, **k: st.AdamW(params, amsgrad=True, **k),
    "SGD": lambda params, **k: st.SGD(params, momentum=0.9, nesterov=True, **k),
    "Lion": st.Lion,
    "NAdam": st.NAdam,
    "deepspeed.FusedAdam": st.deepspeed.FusedAdam,
    "DeepSpeedCPUAdam": st.deepspeed.DeepSpeedCPUAdam,
    "clip by value": lambda params, **k: st.AdamW(params, clip=st.ClipByValue(0.5), **k),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_definitions_step_parts_as_wholes(name):
    make, whole = ELEMENTWISE[name], parameters()
    reference = make(groups_of(whole), lr=0.01)
    ranks = [Partition(make(groups_of(parameters()), lr=0.01), rank) for rank in range(WORLD)]
    for step in range(4):
        given = gradients(step)
        for params, own in zip(whole, given, strict=True):
            for param, grad in zip(params, own, strict=True):
                param.grad = grad
        reference.step()
        for rank in ranks:
            rank.step(given)
    for number, params in enumerate(whole):
        line = torch.cat([rank.flats[number].detach() for rank in ranks])
        expected = torch.cat([p.detach().reshape(-1) for p in params])
        assert torch.equal(line[: len(expected)], expected)
        for rank in ranks:  # as DeepSpeed saves them
            own = rank.optimizer.state[rank.flats[number]]
            sizes = {v.shape for n, v in own.items() if isinstance(v, torch.Tensor) and v.dim()}
            assert sizes == {rank.flats[number].shape}


OTHERS = {
    "FusedLamb": (st.deepspeed.FusedLamb, "reduces over the elements of a tensor"),
    "Adafactor": (st.hf.Adafactor, "'adafactor' has rules for tensors of some dims"),
    "CAME": (lambda params: st.came.CAME(params, lr=0.1), "has rules for tensors of some dims"),
    "LARS": (
        lambda params: st.LARS(params, lr=0.1, weight_decay=0.1),
        "reduces over the elements of a tensor",
    ),
    "colossal.FusedAdam": (st.colossal.FusedAdam, "keeps counts of groups"),
    "clip": (lambda params: st.AdamW(params, clip=st.ClipByNorm(1.0)), "needs 'norm2' of all"),
    "rounding": (
        lambda params: st.AdamW(params, rounding="stochastic", state_dtype=torch.bfloat16),
        "random bits of an element's place in its tensor",
    ),
    "overflow": (lambda params: st.AdamW(params, skip_nonfinite=True), "needs 'largest' of all"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_refused_and_zero_is_named(name):
    make, words = OTHERS[name]
    rank = Partition(make(groups_of(parameters())), 1)
    before = [flat.detach().clone() for flat in rank.flats]
    with pytest.raises(errors.TensorError) as caught:
        rank.step(gradients(0))
    said = str(caught.value)
    assert said.startswith("parameter 0 of group 0 is a flat partition in place of the tensors")
    assert words in said
    assert "use zero=Zero(1, ...) or Zero(2) of this optimizer" in said
    assert all(torch.equal(a, b) for a, b in zip(rank.flats, before, strict=True))
    assert not rank.optimizer.state


def test_what_is_no_partition_is_stepped():
    vectors = [torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(3, 4))]
    optimizer = st.deepspeed.FusedLamb(vectors)
    for param in vectors:
        param.grad = torch.ones_like(param)
    optimizer.step()
    optimizer.param_groups[0]["params"] = vectors[:1]  # still the optimizer's own
    optimizer.step()
    smaller = [torch.nn.Parameter(p.detach()[:2].clone()) for p in vectors]
    for param in smaller:
        param.grad = torch.ones_like(param)
    optimizer.param_groups[0]["params"] = smaller  # pruned, with their dims
    optimizer.step()
    again = copy.deepcopy(optimizer)
    again.step()


def test_a_group_that_is_added_to_a_copy():
    vectors = [torch.nn.Parameter(torch.ones(size)) for size in (4, 5)]
    optimizer = copy.deepcopy(st.deepspeed.FusedLamb(vectors))
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, 4))]})
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()


def test_a_group_that_is_added_is_not_replaced():
    optimizer = st.deepspeed.FusedLamb([torch.nn.Parameter(torch.ones(3, 4))])
    vector = torch.nn.Parameter(torch.ones(4))
    vector.grad = torch.ones(4)
    optimizer.add_param_group({"params": [vector]})
    optimizer.step()
