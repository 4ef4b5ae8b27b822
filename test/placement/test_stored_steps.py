# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps with states in a file are those with states in memory, bit for bit."""

import copy
import pickle

import pytest
import stepc.torch as st
import torch
from samples import sample
from stepc.torch.tensors.stored import StoredState
from stepped import CLASSES, OF_MATRICES, OF_TWO_DIMS
from stored_common import MATRICES, SHAPES, TWO_DIMS, give, make_params, same, same_states


def compare(make, place, shapes=SHAPES, steps=4, dtype=torch.float32, grads=None):
    """Returns how many tensors lie in a file."""
    params, twins = make_params(shapes, dtype), make_params(shapes, dtype)
    optimizer, twin = make(params, place=place), make(twins)
    for step in range(steps):
        give(params, step, grads)
        give(twins, step, grads)
        for one in (optimizer, twin):
            one.step()
        for param, other in zip(params, twins, strict=True):
            assert same(param.detach(), other.detach()), (step, tuple(param.shape))
    return same_states(optimizer, twin)


@pytest.fixture
def place(tmp_path):
    """With windows that one tensor needs several of."""
    return st.Place("disk", path=tmp_path, window_bytes=1 << 16)


EVERY = {**CLASSES, **OF_TWO_DIMS, **OF_MATRICES}


@pytest.mark.parametrize("name", sample(list(EVERY), "classes in files", 5))
def test_every_class(name, place):
    shapes = MATRICES if name in OF_MATRICES else TWO_DIMS if name in OF_TWO_DIMS else SHAPES
    assert compare(EVERY[name], place, shapes) >= (3 if name in OF_MATRICES else 4)


@pytest.mark.parametrize("kind", ["q8", "q4"])
@pytest.mark.parametrize("name", sample(["AdamW", "Adafactor", "SOAP"], "codes in files", 2))
def test_codes(name, kind, place):
    def make(params, **more):
        return EVERY[name](params, state_dtype=kind, **more)

    shapes = TWO_DIMS if name == "SOAP" else SHAPES
    assert compare(make, place, shapes) >= 6


@pytest.mark.parametrize(
    "more",
    [{"master": "f32"}, {"master": "remainder"}, {"state_dtype": torch.bfloat16, "seed": 3,
                                                  "rounding": "stochastic"}],
)  # fmt: skip
def test_narrow_parameters(more, place):
    def make(params, **others):
        return st.AdamW(params, lr=0.05, **more, **others)

    assert compare(make, place, dtype=torch.bfloat16) >= 10


def test_a_parameter_that_others_write_has_its_remainder_zeroed(place):
    params, twins = (make_params([(300, 400)], torch.bfloat16) for _ in range(2))
    optimizer = st.AdamW(params, master="remainder", place=place)
    twin = st.AdamW(twins, master="remainder")
    for step in range(4):
        for own, one in ((params, optimizer), (twins, twin)):
            give(own, step)
            one.step()
            if step == 1:
                with torch.no_grad():
                    own[0].mul_(1.5)
        assert same(params[0].detach(), twins[0].detach())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads, place):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        shapes = [(513, 1024), (70, 4000), *[(170, 100)] * 40]
        compare(CLASSES["AdamW"], place, shapes, steps=2)
        compare(CLASSES["FusedLAMB"], place, shapes, steps=2)  # large: all threads
        compare(CLASSES["FusedLAMB"], place, shapes[2:], steps=2)  # batches do not fit a window
        for kind in ("q8", "f8_e4m3", "q4"):
            make = lambda ps, kind=kind, **more: st.AdamW(ps, state_dtype=kind, **more)  # noqa: E731
            compare(make, place, shapes, steps=2)
    finally:
        torch.set_num_threads(before)


def test_gradients_that_lie_otherwise_or_come_later(place):
    def grads(grad, step, number):
        if (step + number) % 3 == 1:
            return None
        return grad.t().contiguous().t() if grad.dim() == 2 else grad

    assert compare(CLASSES["AdamW"], place, grads=grads) == 10
    assert compare(OF_TWO_DIMS["SOAP"], place, TWO_DIMS, grads=grads)


def test_parameters_that_lie_otherwise(place):
    def turned(params):
        for param in params:
            param.data = param.data.t().contiguous().t()
        return params

    def make(params, **more):
        return st.AdamW(turned(params), **more)

    assert compare(make, place, MATRICES) == 6
    # And one that comes to lie otherwise.
    params, twins = make_params(MATRICES), make_params(MATRICES)
    optimizer, twin = st.AdamW(params, place=place), st.AdamW(twins)
    for step in range(3):
        for own, one in ((params, optimizer), (twins, twin)):
            give(own, step)
            one.step()
            if step == 0:
                turned(own[:1])
        assert same(params[0].detach(), twins[0].detach())
    same_states(optimizer, twin)


def test_a_step_that_is_skipped_moves_nothing(place):
    params = make_params([(300, 400)])
    optimizer = st.AdamW(params, skip_nonfinite=True, place=place)
    for step in range(2):
        give(params, step)
        optimizer.step()
    info = optimizer.stored()
    params[0].grad[0, 0] = float("inf")
    optimizer.step()
    assert optimizer.last_step.skipped
    assert optimizer.stored() == info
    assert info.bytes_read >= 2 * 8 * 300 * 400


def test_clipping_and_a_closure_of_several_groups(place):
    def make(params, **more):
        groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.3}]
        return st.AdamW(groups, clip=st.ClipByNorm(0.5), average=st.EMA(0.9), **more)

    assert compare(make, place) == 10


def test_fused_backward(place):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(150, 200), torch.nn.Linear(200, 130))
    twin = copy.deepcopy(model)
    one = st.AdamW(model.parameters(), fused_backward=True, place=place)
    other = st.AdamW(twin.parameters())
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(5, 150)
        for net, opt in ((model, one), (twin, other)):
            net(x).square().sum().backward()
            opt.step()
            opt.zero_grad()
    for param, of in zip(model.parameters(), twin.parameters(), strict=True):
        assert same(param.detach(), of.detach())
    assert same_states(one, twin=other) == 4


def test_a_fraction_is_of_the_first_parameters(tmp_path):
    def held(fraction):
        params = make_params([(200, 100)] * 4)
        optimizer = st.AdamW(params, place=st.Place("disk", path=tmp_path, fraction=fraction))
        give(params, 0)
        optimizer.step()
        return [isinstance(optimizer.state[p]["exp_avg"], StoredState) for p in params]

    assert held(0.5) == [True, True, False, False]
    assert held(0.6) == [True, True, True, False]
    assert held(0.0) == [False] * 4
    assert held(1.0) == [True] * 4


def test_saving_loading_copying(place, tmp_path):
    params, twins = make_params(SHAPES), make_params(SHAPES)
    optimizer, twin = st.AdamW(params, place=place), st.AdamW(twins)
    for step in range(2):
        for own, one in ((params, optimizer), (twins, twin)):
            give(own, step)
            one.step()
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    assert all(v.device.type == "cpu" for own in saved["state"].values() for v in own.values())
    # From a file into memory, from memory into a file, and copies of one in a file.
    in_memory, in_file = (copy.deepcopy(twins) for _ in range(2))
    ways = [
        (in_memory, st.AdamW(in_memory)),
        (in_file, st.AdamW(in_file, place=place)),
        *[(own.param_groups[0]["params"], own) for own in (
            copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer)))],
    ]  # fmt: skip
    ways[0][1].load_state_dict(saved)
    ways[1][1].load_state_dict(twin.state_dict())
    give(twins, 5)
    twin.step()
    for own, one in [*ways, (params, optimizer)]:
        give(own, 5)
        one.step()
        for param, other in zip(own, twins, strict=True):
            assert same(param.detach(), other.detach())
        assert same_states(one, twin) == (0 if one is ways[0][1] else 10)


def test_what_is_given_back_is_taken_again(place):
    params = make_params([(300, 400)])
    optimizer = st.AdamW(params, place=place)
    for step in range(3):
        give(params, step)
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    give(params, 3)
    optimizer.step()
    assert optimizer.stored().bytes_taken <= 2 * 300 * 400 * 4 + 2 * 4096
    assert optimizer.stored().file_bytes <= 5 * 300 * 400 * 4


def is_file(tensor, folder):
    """Whether a tensor's memory is a file that was in the folder."""
    with open("/proc/self/maps") as maps:
        lines = [line for line in maps if str(folder) in line and "deleted" in line]
    spans = [line.split()[0].split("-") for line in lines]
    return any(int(low, 16) <= tensor.data_ptr() < int(high, 16) for low, high in spans)


def test_large_copies_are_files(place, tmp_path):
    params = make_params([(700, 800)])
    optimizer, twin = st.AdamW(params, place=place), st.AdamW(params)
    give(params, 0)
    optimizer.step()
    saved = optimizer.state_dict()
    assert is_file(saved["state"][0]["exp_avg"], tmp_path)
    before = saved["state"][0]["exp_avg"].clone()
    optimizer.step()  # of which the copy knows nothing
    assert torch.equal(before, saved["state"][0]["exp_avg"])
    optimizer.load_state_dict(saved)
    twin.load_state_dict(saved)
    assert is_file(optimizer.state[params[0]]["exp_avg"], tmp_path)
    assert not is_file(twin.state[params[0]]["exp_avg"], tmp_path)
    assert torch.equal(optimizer.state[params[0]]["exp_avg"], before)
