# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that do not lie row by row, as channels last: their codes are those of row-major
ones, to the bit, and so are they."""

import pytest
import stepc.torch as st
import torch
from stepped import CLASSES

SHAPES = [(64, 8, 4, 4), (33, 5, 12, 3), (100, 70), (7, 9), (2, 64, 3, 40)]


def last(value):
    """Channels last, and matrices by columns."""
    if value.dim() == 4:
        return value.to(memory_format=torch.channels_last)
    return value.t().contiguous().t()


def gapped(value):
    return torch.stack([value, torch.zeros_like(value)], -1)[..., 0]


def pairs(place, dtype=torch.float32, shapes=SHAPES):
    torch.manual_seed(0)
    made = [torch.randn(shape).to(dtype) for shape in shapes]
    return [torch.nn.Parameter(v.clone()) for v in made], [
        torch.nn.Parameter(place(v)) for v in made
    ]


def give(params, others, step, place):
    torch.manual_seed(100 + step)
    for param, other in zip(params, others, strict=True):
        param.grad = torch.randn(param.shape).to(param.dtype)
        other.grad = place(param.grad)


def same(params, optimizer, others, other):
    for param, own in zip(params, others, strict=True):
        assert torch.equal(param, own)
        assert list(optimizer.state[param]) == list(other.state[own])
        for name, value in optimizer.state[param].items():
            found = other.state[own][name]
            assert torch.equal(value, found), name
            if value.dtype in (torch.uint8, torch.int8):
                assert found.is_contiguous(), name


@pytest.mark.parametrize("grads", [last, torch.clone], ids=["last", "rows"])
@pytest.mark.parametrize("place", [last, gapped])
@pytest.mark.parametrize("name", ["AdamW", "Lion", "SGD", "Rprop", "hf.Adafactor"])
def test_steps(name, place, grads):
    params, others = pairs(place)
    make = CLASSES[name] if name in CLASSES else lambda ps, **k: st.hf.Adafactor(
        ps, lr=1e-2, relative_step=False, beta1=0.9, **k
    )  # fmt: skip
    optimizer, other = make(params, state_dtype="q8"), make(others, state_dtype="q8")
    for step in range(3):
        give(params, others, step, grads)
        optimizer.step()
        other.step()
        same(params, optimizer, others, other)


@pytest.mark.parametrize("keywords", [{"master": "f32"}, {"master": "remainder"},
                                      {"rounding": "stochastic", "seed": 3}], ids=str)  # fmt: skip
@pytest.mark.parametrize("format", ["q8", "f8_e4m3"])
def test_bfloat16(keywords, format):
    params, others = pairs(last, torch.bfloat16)
    optimizer, other = (
        st.AdamW(own, lr=0.05, state_dtype=st.Codes(format, min_size=1), **keywords)
        for own in (params, others)
    )
    for step in range(3):
        give(params, others, step, last)
        optimizer.step()
        other.step()
        same(params, optimizer, others, other)


def test_norms_and_what_changes_its_place():
    """Behind the first step parameters come to lie otherwise, and back, and gradients do."""
    params, others = pairs(torch.clone)
    optimizer, other = (
        st.apex.FusedLAMB(own, lr=0.05, reproducible=True, state_dtype="q8")
        for own in (params, others)
    )
    for step, (place, grads) in enumerate([(torch.clone, last), (last, last), (gapped, torch.clone),
                                           (last, last), (torch.clone, torch.clone)]):  # fmt: skip
        for own in others:
            own.data = place(own.detach().contiguous())
        give(params, others, step, grads)
        optimizer.step()
        other.step()
        same(params, optimizer, others, other)


def test_checkpoints_of_either():
    """And codes that lie as the parameter, as who has made them may have it."""
    params, others = pairs(last)
    optimizer, other = (st.AdamW(own, lr=0.05, state_dtype="q8") for own in (params, others))
    give(params, others, 0, last)
    optimizer.step()
    other.step()
    for change in (lambda value: value, last):
        saved, again = optimizer.state_dict(), other.state_dict()
        for own in saved["state"].values():
            for name, value in own.items():
                if value.dtype is torch.uint8:
                    own[name] = change(value)
        optimizer = st.AdamW(params, lr=0.05, state_dtype="q8")
        other = st.AdamW(others, lr=0.05, state_dtype="q8")
        optimizer.load_state_dict(again)
        other.load_state_dict(saved)
        give(params, others, 1, last)
        optimizer.step()
        other.step()
        same(params, optimizer, others, other)


def test_floats_of_torch():
    """Its states lie as the parameters."""
    params, others = pairs(last)
    torchs = torch.optim.AdamW(others)
    give(params, others, 0, last)
    torchs.step()
    for param, other in zip(params, others, strict=True):
        param.data.copy_(other)
    optimizer, other = (st.AdamW(own, state_dtype="q8") for own in (params, others))
    optimizer.load_state_dict(torchs.state_dict())
    other.load_state_dict(torchs.state_dict())
    give(params, others, 1, last)
    optimizer.step()
    other.step()
    same(params, optimizer, others, other)


def test_states_on_disk(tmp_path):
    shapes = [(64, 16, 6, 6), (200, 130)]
    params, others = pairs(last, shapes=shapes)
    place = st.Place("disk", path=tmp_path, window_bytes=1 << 16)
    optimizer = st.AdamW(params, lr=0.05, state_dtype="q8")
    other = st.AdamW(others, lr=0.05, state_dtype="q8", place=place)
    for step in range(3):
        give(params, others, step, last)
        optimizer.step()
        other.step()
    for param, own in zip(params, others, strict=True):
        assert torch.equal(param, own)
        for name in ("exp_avg", "exp_avg.scale", "exp_avg_sq"):
            assert torch.equal(optimizer.state[param][name], other.state[own][name].read())
