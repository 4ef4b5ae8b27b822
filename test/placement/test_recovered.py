# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``recover`` of a durable file of states brings back, and what it cannot."""

import os
import signal

import numpy as np
import pytest
import stepc.torch as st
import torch
from durable_common import image, images, is_same, make, step
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


def test_what_sophia_has_forgotten(place):
    """An estimate that a step has taken in is not in the file as one that the next is to take."""

    def run(own, steps):
        params = make_params([(200, 300), (7,)])
        optimizer = st.SophiaG(params, lr=0.1, place=own)
        if own is not None:
            assert optimizer.recover() == steps[0]
            assert not any("estimate" in optimizer.state[p] for p in params)
            assert optimizer.param_groups[0]["refresh"] == 0.0
        for number in steps:
            give(params, number)
            if number % 2 == 0:
                optimizer.update_hessian()
            optimizer.step()
        return [p.detach().clone() for p in params]

    for number in range(3):
        ours = run(place, [number])
    assert all(same(one, other) for one, other in zip(ours, run(None, range(3)), strict=True))


def test_a_forked_process_does_not_keep_the_file(place):
    params, optimizer = make("adamw", place)
    for number in (1, 2):
        step(params, optimizer, number)
    want = image(params, optimizer)
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        assert optimizer.recover() == 2 and is_same(image(params, optimizer), want)
        del params, optimizer
        params, optimizer = make("adamw", place)
        assert optimizer.recover() == 2 and is_same(image(params, optimizer), want)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_recovery_that_fails_leaves_what_is_in_memory(place):
    params, optimizer = make("adamw", place)
    step(params, optimizer, 1)
    optimizer.state[params[0]]["exp_avg"].fill_(3)
    path, want = place.path / place.name, image(params, optimizer)
    whole = path.read_bytes()

    def harmed(content):
        path.rename(place.path / "aside")  # which the optimizer still has
        if content is not None:
            path.write_bytes(content)

    for content, match in (
        (None, r"is a new one: that with step 1 is gone"),
        (b"x" + whole[1:], "is no file of states"),
    ):
        harmed(content)
        with pytest.raises(errors.StoreError, match=match):
            optimizer.recover()
        path.unlink()
        (place.path / "aside").rename(path)
        assert is_same(image(params, optimizer), want)
        with pytest.raises(errors.StoreError, match="is open in another"):  # it has it again
            make("adamw", place)[1].recover()
    step(params, optimizer, 2)
    assert optimizer.stored().step == 2


def test_masters_of_another_kind(place):
    params, optimizer = make("masters", place)
    step(params, optimizer, 1)
    del params, optimizer
    for way in ("remainders", "masters"):
        params, optimizer = make(way, place)
        if way == "masters":
            assert optimizer.recover() == 1
            continue
        before = image(params, optimizer)
        words = "with master='f32', and this one has 'remainder'"
        with pytest.raises(errors.StoreError, match=words):
            optimizer.recover()
        assert is_same(image(params, optimizer), before)


def test_not_while_parameters_are_averages(place):
    params, optimizer = make("average", place)
    step(params, optimizer, 1)
    want = image(params, optimizer)
    with optimizer.averaged(), pytest.raises(errors.StepcError, match="values of their averages"):
        optimizer.recover()
    assert is_same(image(params, optimizer), want)
    assert optimizer.recover() == 1 and is_same(image(params, optimizer), want)


def test_the_step_before_the_last(place):
    """Of two optimizers of a model one has committed a step, and the other has not."""
    expected = images("adamw", 4)
    params, optimizer = make("adamw", place)
    for number in (1, 2, 3):
        step(params, optimizer, number)
    del params, optimizer
    params, optimizer = make("adamw", place)
    for wanted in (1, 4):
        with pytest.raises(errors.StoreError, match=f"has step 3, and step {wanted} was asked"):
            optimizer.recover(step=wanted)
        assert not optimizer.state
    assert optimizer.recover(step=3) == 3 and is_same(image(params, optimizer), expected[3])
    assert optimizer.recover(step=2) == 2 and is_same(image(params, optimizer), expected[2])
    with pytest.raises(errors.StoreError, match="has no step before the one that it has"):
        optimizer.recover(step=1)
    assert is_same(image(params, optimizer), expected[2])
    for number in (3, 4):
        step(params, optimizer, number)
        assert is_same(image(params, optimizer), expected[number])
    assert optimizer.recover() == optimizer.stored().step == 4


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    "schedule_of",
    [
        lambda own: torch.optim.lr_scheduler.CosineAnnealingLR(own, 10),
        lambda own: torch.optim.lr_scheduler.LambdaLR(own, lambda n: np.cos(n / 10)),
    ],
)
def test_schedules_and_batches_as_the_docs_have_them(place, schedule_of):
    def run(own, last):
        params = make_params([(200, 300), (7,)])
        optimizer = st.AdamW(params, lr=0.01, skip_nonfinite=True, place=own)
        schedule = schedule_of(optimizer)
        count = optimizer.recover() if own is not None else 0
        if count:
            schedule.last_epoch = count - 1
            schedule.step()
        (group,) = optimizer.param_groups
        for number in range(group.get("batches", 0), last):
            give(params, number)
            if number == 1:
                params[0].grad[0, 0] = float("inf")
            group["batches"] = number + 1
            optimizer.step()
            if not optimizer.last_step.skipped:
                schedule.step()
        return [p.detach().clone() for p in params], group["batches"], group["lr"]

    for last in (1, 3, 5):
        ours = run(place, last)
    theirs = run(None, 5)
    assert ours[1:] == theirs[1:] == (5, theirs[2])
    assert all(same(one, other) for one, other in zip(ours[0], theirs[0], strict=True))


def test_what_many_small_tensors_write(place):
    """They are one piece, and where each lies is written when that changes."""

    def made():
        params = make_params([(64,)] * 400)
        return params, st.AdamW(params, place=place)

    params, optimizer = made()
    written = []
    for number in range(4):
        give(params, number)
        if number < 2:
            params[7].grad = None  # its states come later
        before = optimizer.stored().bytes_written if number else 0
        optimizer.step()
        written.append(optimizer.stored().bytes_written - before)
    small = 400 * (3 * 256 + 16)
    assert written[0] > small + 40000 < written[2]
    assert small < written[1] < small + 20000 and small < written[3] < small + 20000
    want = image(params, optimizer)
    del params, optimizer
    params, optimizer = made()
    assert optimizer.recover() == 4 and is_same(image(params, optimizer), want)
