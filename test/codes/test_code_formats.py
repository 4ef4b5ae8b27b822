# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of several formats: which a checkpoint has, its dtypes say, and one becomes another."""

import copy
import io
import logging

import float8
import numpy as np
import pytest
import stepc.torch as st
import torch
from stepc import errors

DTYPES = {"q8": torch.uint8, "f8_e4m3": torch.int8, "q4": torch.int32}


def make(state_dtype, cls=st.AdamW):
    torch.manual_seed(0)
    conv = (40, 120) if cls is st.SOAP else (40, 8, 3, 5)
    shapes = {"w": (64, 128), "conv": conv, "bias": (300,)}
    named = [(n, torch.nn.Parameter(torch.randn(shape))) for n, shape in shapes.items()]
    return [p for _, p in named], cls(named, lr=0.05, state_dtype=state_dtype)


def step(params, optimizer, seed=1):
    torch.manual_seed(seed)
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer.step()


def floats(state, param):
    made = {name: value for name, value in state.items() if not name.endswith(".scale")}
    for name in [name for name in made if f"{name}.scale" in state]:
        shape = param.shape if name in ("exp_avg", "exp_avg_sq") else None
        made[name] = st.decode_state(made[name], state[f"{name}.scale"], shape)
    return made


def test_what_there_is():
    params, optimizer = make({"*": "q8", "exp_avg": "f8_e4m3", "conv": "f8_e4m3"})
    step(params, optimizer)
    state, of_conv = (optimizer.state[param] for param in params[:2])
    assert state["exp_avg"].dtype is torch.int8 and state["exp_avg_sq"].dtype is torch.uint8
    assert of_conv["exp_avg_sq"].dtype is torch.int8
    assert optimizer.state[params[2]]["exp_avg"].dtype is torch.float32
    assert state["exp_avg.scale"].shape == (64, 2) and (state["exp_avg.scale"] > 0).all()
    values = st.decode_state(state["exp_avg"], state["exp_avg.scale"])
    expected = float8.decode(state["exp_avg"].numpy(), state["exp_avg.scale"].numpy())
    assert np.array_equal(values.numpy(), expected)
    # As torch reads them.
    theirs = state["exp_avg"].view(torch.float8_e4m3fn).float().view(64, 2, 64)
    assert torch.equal(values.view(64, 2, 64), theirs * state["exp_avg.scale"][..., None])


@pytest.mark.parametrize("kept", ["f8_e4m3", "q4"])
@pytest.mark.parametrize("copied", ["file", "deepcopy"])
def test_a_copy_goes_on(copied, kept):
    params, optimizer = make(kept)
    step(params, optimizer)
    if copied == "deepcopy":
        others, other = copy.deepcopy((params, optimizer))
    else:
        others, other = make(kept)
        file = io.BytesIO()
        torch.save((optimizer.state_dict(), params), file)
        file.seek(0)
        saved, values = torch.load(file, weights_only=True)
        other.load_state_dict(saved)
        for param, value in zip(others, values, strict=True):
            param.data.copy_(value)
    step(params, optimizer, 2)
    step(others, other, 2)
    for param, own in zip(others, params, strict=True):
        assert torch.equal(param, own)
        for name, value in optimizer.state[own].items():
            assert torch.equal(value, other.state[param][name]), name


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [(s, k) for s in ("f8_e4m3", "q8") for k in ("f8_e4m3", "q8", None)]
    + [("q4", "q4"), ("q4", "q8"), ("q8", "q4"), ("q4", None)],
)
@pytest.mark.parametrize("cls", [st.AdamW, st.SOAP])
def test_codes_of_one_load_where_another_is_kept(saved, loaded, cls):
    """As the floats that they stand for load."""
    params, optimizer = make(saved, cls)
    step(params, optimizer)
    given = optimizer.state_dict()
    found = []
    as_floats = {n: floats(s, params[n]) for n, s in given["state"].items()}
    for state in (given, {**given, "state": as_floats}):
        others, other = make(loaded, cls)
        for param, own in zip(others, params, strict=True):
            param.data.copy_(own)
        other.load_state_dict(state)
        step(others, other, 2)
        found.append([others, [other.state[param] for param in others]])
    (left, one), (right, two) = found
    for number, (param, own) in enumerate(zip(left, right, strict=True)):
        assert torch.equal(param, own)
        assert one[number].keys() == two[number].keys()
        for name, value in one[number].items():
            assert torch.equal(value, two[number][name]), name
    coded = {value.dtype for state in one for value in state.values()} & {*DTYPES.values()}
    assert coded == ({DTYPES[loaded]} if loaded else set())


def test_codes_that_the_user_puts_there():
    params, optimizer = make("f8_e4m3")
    theirs, other = make("q8")
    for _ in range(2):
        step(params, optimizer)
        step(theirs, other)
    state, of = optimizer.state[params[0]], other.state[theirs[0]]
    twins, twin = copy.deepcopy((params, optimizer))
    for key in ("exp_avg", "exp_avg.scale"):
        state[key] = of[key].clone()
    twin.state[twins[0]]["exp_avg"] = st.decode_state(of["exp_avg"], of["exp_avg.scale"])
    step(params, optimizer, 2)
    step(twins, twin, 2)
    assert torch.equal(params[0], twins[0]) and state["exp_avg"].dtype is torch.int8
    state["exp_avg"] = of["exp_avg"].clone()
    del state["exp_avg.scale"]
    with pytest.raises(errors.TensorError, match=r"codes, without 'exp_avg\.scale'"):
        step(params, optimizer, 3)


def test_what_is_said_at_the_first_step(caplog):
    params, optimizer = make({"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"})
    with caplog.at_level(logging.INFO, "stepc"):
        step(params, optimizer)
        step(params, optimizer, 2)
    size = 64 * 128 + 4 * 64 * 2 + 40 * 120 + 4 * 40 * 2
    said = [record.message for record in caplog.records if "codes" in record.message]
    assert said == [
        f"state 'exp_avg' of 2 of 3 parameters is kept as codes, f8_e4m3, in {size} bytes; state "
        f"'exp_avg_sq' of 2 of 3 parameters is kept as codes, q8, in {size} bytes"
    ]
