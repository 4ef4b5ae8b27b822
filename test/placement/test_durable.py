# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of states that outlive their process: what they go on with, and what they refuse."""

import contextlib
import copy
import os
import resource
import signal

import pytest
import stepc.torch as st
import torch
from durable_common import WAYS, image, images, is_same, make, step
from samples import sample
from stepc import errors
from stepc.torch.tensors.stored import StoredState
from stepped import CLASSES, OF_MATRICES, OF_TWO_DIMS
from stored_common import MATRICES, TWO_DIMS, give, make_params, same, same_states
from stored_common import SHAPES as ALL


@pytest.fixture
def place(tmp_path):
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16, durable=True)


def content(place):
    return (place.path / place.name).read_bytes()


@contextlib.contextmanager
def limited(size):
    """No file gets longer, or is written behind it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("way", [*WAYS])
def test_each_step_by_another_optimizer(way, place):
    expected = images(way, 5)
    for number in range(1, 6):
        params, optimizer = make(way, place)
        assert optimizer.recover() == optimizer.stored().step == number - 1
        if number > 1:
            assert is_same(image(params, optimizer), expected[number - 1])
        step(params, optimizer, number)
        assert optimizer.stored().step == number
        assert is_same(image(params, optimizer), expected[number])
        held = [v for own in optimizer.state.values() for v in own.values()]
        assert sum(isinstance(value, StoredState) for value in held) >= 4
        del params, optimizer, held


def test_many_steps_and_what_they_write(place):
    params, optimizer = make("adamw", place)
    for number in range(1, 4):
        step(params, optimizer, number)
    for param in params:
        param.grad = torch.ones_like(param)
    before = optimizer.stored()
    optimizer.step()
    now = optimizer.stored()
    large = [p.numel() * 4 for p in params if p.numel() > 16384]
    states, log = 2 * sum(large), 64 << 10
    assert states < now.bytes_read - before.bytes_read < states + log
    assert 1.5 * states < now.bytes_written - before.bytes_written < 1.5 * states + log
    assert now.file_bytes == before.file_bytes < 2 * 1.5 * states + 3 * log


def test_fused_backward(place):
    def run(own, steps):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(150, 200), torch.nn.Linear(200, 130))
        optimizer = st.AdamW(model.parameters(), fused_backward=True, place=own)
        if own is not None:
            optimizer.recover()
        for number in steps:
            torch.manual_seed(number)
            model(torch.randn(5, 150)).square().sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    run(place, range(2))
    ours, theirs = run(place, range(2, 4)), run(None, range(4))
    assert all(same(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_step_that_is_skipped_commits_nothing(place):
    params = make_params([(200, 300)])
    optimizer = st.AdamW(params, skip_nonfinite=True, place=place)
    give(params, 0)
    optimizer.step()
    before, written = content(place), optimizer.stored().bytes_written
    params[0].grad[3, 4] = float("inf")
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.stored().step == 1
    assert optimizer.stored().bytes_written == written and content(place) == before


def test_what_was_written_and_loaded_comes_with_the_next_step(place):
    params, optimizer = make("adamw", place)
    step(params, optimizer, 1)
    saved = optimizer.state_dict()
    optimizer.state[params[0]]["exp_avg"].fill_(3)
    other = make("adamw", place)[1]
    with pytest.raises(errors.StoreError, match="is open in another optimizer or process"):
        other.recover()
    # Neither is in the file yet.
    optimizer.load_state_dict(saved)
    del optimizer, params
    params, optimizer = make("adamw", place)
    assert optimizer.recover() == 1
    assert is_same(image(params, optimizer), images("adamw", 1)[1])
    optimizer.load_state_dict(saved)
    optimizer.state[params[0]]["exp_avg"].fill_(3)
    step(params, optimizer, 2)
    want = image(params, optimizer)
    del optimizer, params
    params, optimizer = make("adamw", place)
    assert optimizer.recover() == 2
    assert is_same(image(params, optimizer), want)


def test_a_step_that_fails_midway_is_taken_back(place):
    params, optimizer = make("adamw", place)
    for number in (1, 2):
        step(params, optimizer, number)
    expected = images("adamw", 3)
    with limited(1 << 19), pytest.raises(errors.StoreError, match="File too large"):
        step(params, optimizer, 3)
    with pytest.raises(errors.StatusError, match=r"load a state to go on"):
        optimizer.step()
    old = optimizer.state[params[0]]["exp_avg"]
    try:  # whose frames have the old binding
        optimizer.step()
    except errors.StatusError:
        assert optimizer.recover() == 2
    with pytest.raises(errors.StoreError, match="Bad file descriptor"):
        old.read()
    assert is_same(image(params, optimizer), expected[2])
    step(params, optimizer, 3)
    assert is_same(image(params, optimizer), expected[3])


def test_a_file_that_another_cuts(place):
    params, optimizer = make("adamw", place)
    step(params, optimizer, 1)
    os.truncate(place.path / place.name, 8192)
    with pytest.raises(errors.StoreError, match="has become shorter"):
        step(params, optimizer, 2)  # which takes pieces for a state that is new
    for param in params:
        param.grad = None
    params[0].grad = torch.ones_like(params[0])
    with pytest.raises(errors.StoreError, match="has become shorter"):
        optimizer.step()


def test_a_commit_that_fails(place):
    """Where nothing else is written: of small parameters, whose states are in memory."""
    params = make_params([(7, 9)])
    optimizer = st.AdamW(params, place=place)
    give(params, 0)
    optimizer.step()
    optimizer.step()
    with limited(4096), pytest.raises(errors.StoreError, match="File too large"):
        optimizer.step()
    with pytest.raises(errors.StatusError, match="the step was made, and is not in the file"):
        optimizer.step()
    assert optimizer.state_dict()["state"][0]["step"] == 3  # in memory it was made
    assert optimizer.recover() == 2
    assert optimizer.state[params[0]]["step"] == 2


def refused(place, match, params=None, kind=st.AdamW):
    """By ``recover`` and by a step, with nothing changed."""
    params = make("adamw")[0] if params is None else params
    optimizer = kind(params, lr=0.01, place=place)
    before, values = content(place), [p.detach().clone() for p in params]
    with pytest.raises(errors.StoreError, match=match):
        optimizer.recover()
    give(params, 0)
    with pytest.raises(errors.StoreError):
        optimizer.step()
    assert content(place) == before and not optimizer.state
    assert all(same(p.detach(), q) for p, q in zip(params, values, strict=True))


def test_files_that_are_not_its_own(place):
    params, optimizer = make("adamw", place)
    step(params, optimizer, 1)
    refused(place, "is open in another optimizer or process")
    with pytest.raises(errors.StoreError, match="is open in another"):
        copy.deepcopy(optimizer).recover()
    del optimizer, params
    shapes = [(130, 140), (64, 1031), (7, 9), (40000,)]
    words = r"parameter 1 of group 0 has shape \(64, 1030\) and dtype torch.float32 there"
    refused(place, words, make_params(shapes))
    refused(place, r"of groups of \[4\] parameters", make_params(shapes[:3]))
    refused(place, "of optimizer 'adamw', and this one is 'adam", kind=st.Adamax)
    refused(place, "and torch.bfloat16 here|bfloat16", make("masters")[0])
    params, optimizer = make("adamw", place)
    with pytest.raises(errors.StoreError, match=r"has step 1 .*: recover\(\) goes on with it"):
        step(params, optimizer, 1)
    assert optimizer.recover() == 1  # all the same
    del optimizer, params
    path = place.path / place.name
    whole = path.read_bytes()
    for harmed, match in (
        (b"x" + whole[1:], "is no file of states"),
        (whole[:8] + b"\0" + whole[9:], "has format 0, this library reads 1"),
        (whole[:20] + b"x" + whole[21:], "its head is damaged"),
        (whole[:4096] + b"\1" * 8192 + whole[12288:], "its log is damaged"),
        (whole[:-8192], "has become shorter"),
        (b"another's", "is no file of states"),
    ):
        path.write_bytes(harmed)
        refused(place, match)


def test_arguments(tmp_path):
    for more, match in (
        ({"states": "host", "durable": True}, "durable=True is for states on disk"),
        ({"path": tmp_path, "durable": True, "fraction": 0.0}, "fraction 0.0"),
        ({"path": tmp_path, "name": ""}, "expected the name of a file"),
        ({"path": tmp_path, "name": "a/b"}, "without a folder"),
    ):
        with pytest.raises(ValueError, match=match):
            st.Place(**more)
    optimizer = st.AdamW(make_params([(3,)]), place=st.Place("disk", path=tmp_path))
    with pytest.raises(errors.StepcError, match=r'place=Place\("disk", durable=True\)'):
        optimizer.recover()


EVERY = {**CLASSES, **OF_TWO_DIMS, **OF_MATRICES}


@pytest.mark.parametrize("name", sample(list(EVERY), "classes in durable files", 8))
def test_every_class(name, place):
    shapes = MATRICES if name in OF_MATRICES else TWO_DIMS if name in OF_TWO_DIMS else ALL
    twins = make_params(shapes)
    twin = EVERY[name](twins)
    for number in range(4):
        if number in (0, 2):  # another process
            params = make_params(shapes)
            optimizer = EVERY[name](params, place=place)
            assert optimizer.recover() == number
        for own, one in ((params, optimizer), (twins, twin)):
            give(own, number)
            one.step()
        if number == 1:
            del optimizer, params
    assert all(same(p.detach(), q.detach()) for p, q in zip(params, twins, strict=True))
    assert same_states(optimizer, twin) >= 3


def test_views_and_groups(place):
    def run(own, steps):
        convolution, *others = make_params([(64, 32, 3, 3), (300, 100), (7, 9)])
        groups = [
            {"params": [convolution], "view": "o i h w -> o (i h w)"},
            {"params": others, "lr": 0.02, "momentum": 0.8},
        ]
        optimizer = st.Muon(groups, lr=0.1, place=own)
        if own is not None:
            assert optimizer.recover() == steps[0]
            if steps[0]:
                assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.02]
        params = [convolution, *others]
        for number in steps:
            give(params, number)
            optimizer.step()
        return params

    run(place, range(2))
    ours, theirs = run(place, range(2, 4)), run(None, range(4))
    assert all(same(p.detach(), q.detach()) for p, q in zip(ours, theirs, strict=True))


def test_a_backward_pass_that_fails_is_taken_back(place):
    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(150, 200), torch.nn.Linear(200, 130))

    def step_of(net, optimizer, number):
        torch.manual_seed(number)
        net(torch.randn(5, 150)).square().sum().backward()
        optimizer.step()

    net, twin = model(), model()
    optimizer = st.AdamW(net.parameters(), fused_backward=True, place=place)
    other = st.AdamW(twin.parameters(), fused_backward=True)
    for number in range(2):
        step_of(net, optimizer, number)
        step_of(twin, other, number)
    with limited(1 << 19), pytest.raises(errors.StoreError, match="File too large"):
        step_of(net, optimizer, 2)
    assert optimizer.recover() == 2
    for number in (2, 3):
        step_of(net, optimizer, number)
        step_of(twin, other, number)
    for param, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert same(param.detach(), theirs.detach())


def test_scales_of_losses(place):
    """Whatever a loss scaler keeps from step to step is the step's."""

    def make_one(own):
        params = make_params([(200, 300)])
        return params, st.AdamW(params, loss_scale=st.DynamicLossScale(2.0**8, growth_interval=2),
                                place=own)  # fmt: skip

    params, optimizer = make_one(place)
    for number in range(3):
        give(params, number)
        optimizer.step()
    want, scalars = params[0].detach().clone(), optimizer.state_dict()["param_groups"][0]
    del optimizer, params
    params, optimizer = make_one(place)
    assert optimizer.recover() == 3
    assert optimizer.state_dict()["param_groups"][0] == scalars and same(params[0].detach(), want)
