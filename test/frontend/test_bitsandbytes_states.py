# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Saved states of the classes of bitsandbytes: their own, and those that bitsandbytes saved.

What bitsandbytes saves is made here as its sources make it (functional.py, create_dynamic_map;
optim/optimizer.py): codes of a table, of blocks along the flattened parameter.
"""

import copy

import numpy as np
import pytest
import torch
from common import bits_equal, clone_params, make_params, train
from stepc.torch import bitsandbytes as bnb
from test_bitsandbytes import all_states, make, same_states

SHAPES = [(64, 96), (96,), (70, 70), (5000,)]
NAMES = {
    "AdamW": ("exp_avg", "exp_avg_sq"), "Lion": ("exp_avg",), "SGD": ("momentum_buffer",),
    "RMSprop": ("square_avg",), "Adagrad": ("sum",),
}  # fmt: skip
WRAPPED = "__bnb_optimizer_quant_state__"


def dynamic_map(signed):
    data = [0.0, 1.0]
    for i in range(7):
        boundaries = torch.linspace(0.1, 1, 2**i + 1 if signed else 2 ** (i + 1) + 1)
        means = (boundaries[:-1] + boundaries[1:]) / 2.0
        data += ((10 ** (-6 + i)) * means).tolist()
        data += (-(10 ** (-6 + i)) * means).tolist() if signed else []
    assert len(data) == 256
    return torch.tensor(sorted(data), dtype=torch.float32)


def coded(values, table, size):
    """The nearest codes, and the largest magnitudes of blocks."""
    flat = values.reshape(-1)
    largest = torch.stack([block.abs().max() for block in flat.split(size)])
    scales = largest.repeat_interleave(size)[: flat.numel()]
    shares = flat / torch.where(scales > 0, scales, torch.ones_like(scales))
    codes = (shares[:, None] - table[None, :]).abs().argmin(1).to(torch.uint8)
    return codes.reshape(values.shape), largest


def of_theirs(name, params, bits, size=256, wrapped=True, count=3):
    """A state as bitsandbytes saves it, and what it stands for, by numpy."""
    rng = np.random.default_rng(5)
    state, meant = {}, []
    for number, param in enumerate(params):
        own, quantized, whole = {"step": count}, {}, {}
        for k, ours in enumerate(NAMES[name], 1):
            signed = ours in ("exp_avg", "momentum_buffer")
            values = torch.tensor(rng.standard_normal(param.shape), dtype=torch.float32)
            values = values if signed else values.square() * 1e-3
            quantized[f"state{k}"] = values
            if bits == 8 and param.numel() >= 4096:
                table = dynamic_map(signed)
                codes, largest = coded(values, table, size)
                quantized |= {f"state{k}": codes, f"qmap{k}": table, f"absmax{k}": largest}
                scales = np.repeat(largest.numpy(), size)[: param.numel()]
                flat = table.numpy()[codes.numpy().reshape(-1)] * scales
                values = torch.from_numpy(flat.reshape(param.shape))
            whole[ours] = values
        state[number] = {**own, WRAPPED: quantized} if wrapped else {**own, **quantized}
        meant.append(whole)
    group = {
        "lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1, "alpha": 0.0,
        "t_alpha": None, "t_beta3": None, "params": list(range(len(params))),
    }  # fmt: skip
    return {"state": state, "param_groups": [group]}, meant


# --- Ours ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [f"{n}{b}" for n in NAMES for b in ("8bit", "32bit")])
def test_saved_and_loaded(name):
    """Training goes on to the bit."""
    lists = [make_params(SHAPES)]
    first = make(name, lists[0], lr=0.02)
    train([first], lists, 3)
    lists.append(clone_params(lists[0]))
    second = make(name, lists[1])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train([first, second], lists, 3, first=3)
    assert bits_equal(*lists) and second.param_groups[0]["lr"] == 0.02
    assert same_states(all_states(first, lists[0]), all_states(second, lists[1]))


def test_states_of_other_bits_are_loaded():
    """Of 8 bits where they were of 32, and the other way round, from what both stand for."""
    lists = [make_params(SHAPES)]
    first = make("AdamW8bit", lists[0])
    train([first], lists, 2)
    lists += [clone_params(lists[0]) for _ in range(2)]
    wide, narrow = make("AdamW32bit", lists[1]), make("AdamW8bit", lists[2])
    wide.load_state_dict(first.state_dict())
    train([wide], lists[1:2], 1, first=2)
    assert {s.dtype for own in all_states(wide, lists[1]) for s in own.values()} == {torch.float32}
    narrow.load_state_dict(wide.state_dict())
    train([narrow], lists[2:], 1, first=3)
    assert narrow.state[lists[2][0]]["exp_avg_sq"].dtype is torch.uint8


# --- Theirs -------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("name", NAMES)
def test_states_of_bitsandbytes(name, bits, wrapped):
    """What they stand for, exactly; blocks of the third parameter end inside of one."""
    params = make_params(SHAPES)
    saved, meant = of_theirs(name, params, bits, wrapped=wrapped)
    before = copy.deepcopy(saved)
    optimizer = make(name, params)
    optimizer.load_state_dict(saved)
    assert same_states(all_states(optimizer, params), meant)
    assert str(saved) == str(before)  # a caller's own is as it was
    assert all(float(optimizer.state[p]["step"]) == 3 for p in params)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.01, (0.9, 0.99), 0.1)
    train([optimizer], [params], 1)


@pytest.mark.parametrize("name", NAMES)
def test_8_bits_of_bitsandbytes_become_ours(name):
    """They are what states of 32 bits of the same numbers become."""
    lists = [make_params(SHAPES)]
    lists += [clone_params(lists[0])]
    saved, meant = of_theirs(name, lists[0], 8)
    known = {k: {"step": torch.tensor(3.0), **own} for k, own in enumerate(meant)}
    if name in ("Lion", "SGD"):
        known = {k: {n: s for n, s in own.items() if n != "step"} for k, own in known.items()}
    optimizers = [make(f"{name}8bit", params) for params in lists]
    optimizers[0].load_state_dict(saved)
    optimizers[1].load_state_dict({"state": known, "param_groups": saved["param_groups"]})
    train(optimizers, lists, 2)
    found = [all_states(o, ps) for o, ps in zip(optimizers, lists, strict=True)]
    assert bits_equal(*lists) and same_states(*found)
    assert found[0][0][NAMES[name][0]].dtype is torch.uint8


def test_blocks_of_2048():
    """Of releases before 0.44; with norms of clipping, which are left out."""
    params = make_params(SHAPES)
    saved, meant = of_theirs("AdamW", params, 8, size=2048, wrapped=False)
    for own in saved["state"].values():
        own |= {"gnorm_vec": torch.zeros(100), "unorm_vec": torch.zeros(1)}
    optimizer = make("AdamW8bit", params)
    optimizer.load_state_dict(saved)
    assert same_states(all_states(optimizer, params), meant)


def changed(own, **more):
    return {n: v for n, v in {**own, **more}.items() if v is not None}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"absmax1": None}, "is of codes, without 'qmap1' and 'absmax1': codes of block_wise=Fal"),
        ({"qmap2": None}, "state 'state2' of parameter 0 .*is of codes, without 'qmap2'"),
        ({"state1": torch.zeros(96, 64, dtype=torch.uint8)},
         r"has shape \(96, 64\), expected that of the parameter, \(64, 96\)"),
        ({"state1": torch.zeros(96, 64, dtype=torch.uint8).T}, r"has strides \(1, 64\)"),
        ({"absmax1": torch.zeros(7)}, "has 256 numbers for a code and 7 for its blocks, expected "
         "256 and 24"),
        ({"qmap1": torch.zeros(16)}, "has 16 numbers for a code and 24 for its blocks"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(more, words):
    """Nothing has changed then."""
    params = make_params(SHAPES)
    optimizer = bnb.AdamW8bit(params, lr=0.5)
    train([optimizer], [params], 1)
    before = all_states(optimizer, params)
    saved, _ = of_theirs("AdamW", params, 8, wrapped=False)
    saved["state"][0] = changed(saved["state"][0], **more)
    with pytest.raises(ValueError, match=words):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert same_states(before, all_states(optimizer, params))
