# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that fail under an optimizer, processes that are forked, and what states in a file
refuse."""

import os
import signal
import time

import pytest
import stepc.torch as st
import torch
from state_files import file_of
from stepc import errors
from stored_common import give, make_params, same, same_states

SHAPES = [(300, 400)] * 4


@pytest.fixture
def place(tmp_path):
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16)


def stepped(place, **more):
    params = make_params(SHAPES)
    optimizer = st.AdamW(params, place=place, **more)
    give(params, 0)
    optimizer.step()
    return params, optimizer


def copies(params):
    return [param.detach().clone() for param in params]


def test_a_file_that_fails_in_a_step(place, tmp_path):
    params, optimizer = stepped(place)
    saved, file = optimizer.state_dict(), file_of(tmp_path)
    size, before = os.fstat(file).st_size, copies(params)
    os.ftruncate(file, size // 2)
    give(params, 1)
    with pytest.raises(errors.StoreError, match="some tensors were stepped before") as caught:
        optimizer.step()
    assert caught.value.torn and "has become shorter" in str(caught.value)
    for _ in range(2):
        with pytest.raises(errors.StatusError, match="load a state to go on"):
            optimizer.step()
    with pytest.raises(errors.StatusError, match="of two steps"):
        optimizer.state_dict()
    # With a state that was saved, and parameters of then, it goes on.
    os.ftruncate(file, size)
    optimizer.load_state_dict(saved)
    twins = [torch.nn.Parameter(value.clone()) for value in before]
    twin = st.AdamW(twins)
    twin.load_state_dict(saved)
    with torch.no_grad():
        for param, value in zip(params, before, strict=True):
            param.copy_(value)
    for own, one in ((params, optimizer), (twins, twin)):
        give(own, 1)
        one.step()
    assert all(same(p.detach(), q.detach()) for p, q in zip(params, twins, strict=True))
    assert same_states(optimizer, twin) == 8


def test_a_file_that_fails_before_anything_is_stepped(place, tmp_path):
    params, optimizer = stepped(place)
    file, before = file_of(tmp_path), copies(params)
    size = os.fstat(file).st_size
    os.ftruncate(file, 4096)
    give(params, 1)
    with pytest.raises(errors.StoreError) as caught:
        optimizer.step()
    assert not caught.value.torn and "were stepped" not in str(caught.value)
    assert all(same(p.detach(), q) for p, q in zip(params, before, strict=True))
    assert all(optimizer.state[param]["step"] == 1 for param in params)
    os.ftruncate(file, size)
    optimizer.step()
    assert all(optimizer.state[param]["step"] == 2 for param in params)


def test_a_file_that_fails_in_a_backward_pass(place, tmp_path):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(150, 200), torch.nn.Linear(200, 130))
    optimizer = st.AdamW(model.parameters(), fused_backward=True, place=place)
    x = torch.randn(5, 150)
    for _ in range(2):
        model(x).square().sum().backward()
        optimizer.step()
    file = file_of(tmp_path)
    os.ftruncate(file, os.fstat(file).st_size // 2)
    with pytest.raises(errors.StoreError):
        model(x).square().sum().backward()
    with pytest.raises(errors.StatusError, match="load a state to go on"):
        optimizer.step()
    with pytest.raises(errors.StatusError, match="of two steps"):
        optimizer.state_dict()


def test_no_room_and_no_folder(tmp_path):
    params = make_params(SHAPES)
    optimizer = st.AdamW(params, place=st.Place("disk", path=tmp_path / "none"))
    give(params, 0)
    before = copies(params)
    with pytest.raises(errors.StoreError, match="no file for states can be made in") as caught:
        optimizer.step()
    assert "No such file or directory" in str(caught.value)
    assert all(same(p.detach(), q) for p, q in zip(params, before, strict=True))
    (tmp_path / "none").mkdir()
    optimizer.step()


def in_child(run, seconds=20):
    """How a forked process ends that runs it: 0 where it returns."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        torch.set_num_threads(1)  # OpenMP's are not there
        try:
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_leaves_the_file_alone(place):
    params, optimizer = stepped(place)
    twins = make_params(SHAPES)
    twin = st.AdamW(twins)
    give(twins, 0)
    twin.step()

    def steps():
        for _ in range(2):
            with pytest.raises(errors.StoreError, match="of which this one was forked"):
                optimizer.step()
        with pytest.raises(errors.StoreError, match="of which this one was forked"):
            optimizer.state[params[0]]["exp_avg"].zero_()
        assert optimizer.state_dict()["state"][0]["exp_avg"].any()

    def drops():
        nonlocal optimizer
        del optimizer

    assert in_child(steps) == 0
    assert in_child(drops) == 0
    give(params, 1)
    give(twins, 1)
    optimizer.step()
    twin.step()
    assert all(same(p.detach(), q.detach()) for p, q in zip(params, twins, strict=True))
    assert same_states(optimizer, twin) == 8


def test_what_a_state_in_a_file_is_asked(place):
    params, optimizer = stepped(place)
    state = optimizer.state[params[0]]["exp_avg"]
    assert state.shape == (300, 400) and state.dtype is torch.float32 and state.is_meta
    value = state.read()
    for ask in (
        lambda: state.mul_(2),
        lambda: state[0],
        lambda: state.norm(),
        lambda: state.data,
        lambda: torch.zero_(state),
        lambda: torch._foreach_zero_([state]),
        lambda: state.to("cpu"),
    ):
        with pytest.raises(TypeError, match=r"a state that lies in a file has no .*: read\(\)"):
            ask()
    assert torch.equal(state.clone(), value) and torch.equal(state.cpu(), value)
    state.copy_(torch.full((400,), 3.0))
    assert (state.read() == 3).all()
    assert not state.zero_().read().any()


def test_torchs_own_step_is_refused(place):
    params, optimizer = stepped(place)
    before = copies(params)
    optimizer.param_groups[0]["differentiable"] = True
    give(params, 1)
    with pytest.raises(errors.StepcError, match=r"torch's own step .* place=Place\("):
        optimizer.step()
    assert all(same(p.detach(), q) for p, q in zip(params, before, strict=True))


def test_codes_become_what_another_dtype_has(place):
    def run(**more):
        params = make_params(SHAPES[:1])
        optimizer = st.AdamW(params, state_dtype="q8", **more)
        for step, dtype in enumerate((torch.float32, torch.float64, torch.float32)):
            params[0].data = params[0].data.to(dtype)
            give(params, step)
            optimizer.step()
        return params, optimizer

    (one,), (other,) = run(place=place)[0], run()[0]
    assert same(one.detach(), other.detach())


def test_codes_are_decoded_and_loaded_from_where_they_are(place):
    params, optimizer = stepped(place, state_dtype="q8")
    state = optimizer.state[params[0]]
    floats = st.decode_state(state["exp_avg"], state["exp_avg.scale"])
    saved = optimizer.state_dict()
    own = saved["state"][0]
    assert torch.equal(floats, st.decode_state(own["exp_avg"], own["exp_avg.scale"]))
    other = st.AdamW(make_params(SHAPES), state_dtype="q8")
    held = {number: dict(optimizer.state[param]) for number, param in enumerate(params)}
    other.load_state_dict({**saved, "state": held})
    same_states(other, optimizer)


def test_copies_keep_no_descriptors(place):
    params = make_params([(600, 500)] * 20)
    optimizer = st.AdamW(params, place=place)
    give(params, 0)
    optimizer.step()
    before = len(os.listdir("/proc/self/fd"))
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_room_goes_back_to_the_disk(place, tmp_path):
    params, optimizer = stepped(place)
    file = file_of(tmp_path)
    blocks = os.fstat(file).st_blocks
    for param in params[1:]:
        optimizer.state[param]["exp_avg"] = optimizer.state[param]["exp_avg"].read()
    give(params, 1)
    optimizer.step()
    deadline = time.monotonic() + 5
    while os.fstat(file).st_blocks > blocks * 1.2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert os.fstat(file).st_blocks <= blocks * 1.2
