# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``recover`` of a durable file of states brings back, and what it cannot."""

import numpy as np
import pytest
import stepc.torch as st
from durable_common import make, step
from stepc import errors
from stored_common import give, make_params, same


@pytest.fixture
def place(tmp_path):
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16, durable=True)


def test_numbers_of_numpy(place):
    """As a schedule has them that computes with NumPy's functions."""
    params = make_params([(200, 300), (7,)])
    optimizer = st.AdamW(params, place=place)
    (group,) = optimizer.param_groups
    group.update(lr=0.01 * (1 + np.cos(np.pi / 10)) / 2, betas=(np.float32(0.5), 0.9))
    group["mine"] = {"a": [np.int64(3), np.bool_(True)]}
    give(params, 0)
    optimizer.step()
    want, lr = params[0].detach().clone(), group["lr"]
    del optimizer, params
    params = make_params([(200, 300), (7,)])
    optimizer = st.AdamW(params, place=place)
    assert optimizer.recover() == 1 and same(params[0].detach(), want)
    (group,) = optimizer.param_groups
    assert group["lr"] == lr and type(group["lr"]) is float
    assert group["betas"] == (0.5, 0.9) and group["mine"] == {"a": [3, True]}


@pytest.mark.parametrize("fused", [False, True])
def test_what_a_note_cannot_have_is_refused_ahead_of_the_step(place, fused):
    params = make_params([(200, 300), (7,)])
    optimizer = st.AdamW(params, fused_backward=fused, place=place)

    def step_once():
        sum(p.square().sum() for p in params).backward()
        optimizer.step()
        optimizer.zero_grad()

    step_once()
    before = [p.detach().clone() for p in params]
    for value, kind in ((lambda: 0, "function"), (np.ones(2), "ndarray"), ([place], "Place")):
        optimizer.param_groups[0]["mine"] = value
        with pytest.raises(errors.StepcError, match=f"'mine' of group 0 is a {kind}, which") as own:
            step_once()
        assert isinstance(own.value, errors.StoreError)
        assert optimizer.stored().step == 1 and optimizer.state[params[0]]["step"] == 1
        assert all(same(p.detach(), q) for p, q in zip(params, before, strict=True))
        optimizer.zero_grad()
    del optimizer.param_groups[0]["mine"]
    step_once()
    assert optimizer.stored().step == 2


def test_a_note_that_cannot_be_read(place, monkeypatch):
    """As one that another release has written."""
    params, optimizer = make("adamw", place)
    monkeypatch.setattr("stepc.torch.step.durable.plain", lambda value, place: value)
    monkeypatch.setattr("stepc.torch.step.durable.refuse_unkept", lambda groups: None)
    optimizer.param_groups[0]["mine"] = np.float64(3)
    step(params, optimizer, 1)
    del params, optimizer
    params, optimizer = make("adamw", place)
    with pytest.raises(errors.StoreError, match=r"states.stepc' has a note that cannot be read"):
        optimizer.recover()
