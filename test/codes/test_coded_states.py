# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are codes, as the user has them: their shapes, checkpoints, and what is refused."""

import copy
import io
import pickle

import numpy as np
import pytest
import root4
import stepc.torch as st
import torch
from stepc import errors

SHAPES = [(64, 128), (40, 8, 3, 5), (300,)]


def make(cls=st.AdamW, shapes=SHAPES, state_dtype="q8", **more):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    return params, cls(params, lr=0.05, state_dtype=state_dtype, **more)


def step(params, optimizer, seed=1):
    torch.manual_seed(seed)
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer.step()


def same(left, right):
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one, other)


def test_what_there_is():
    params, optimizer = make()
    step(params, optimizer)
    state = optimizer.state[params[0]]
    assert state["exp_avg"].dtype is torch.uint8 and state["exp_avg"].shape == (64, 128)
    assert state["exp_avg.scale"].dtype is torch.float32
    assert state["exp_avg.scale"].shape == (64, 2)
    assert optimizer.state[params[1]]["exp_avg_sq.scale"].shape == (40, 2)  # of 120 elements
    assert optimizer.state[params[2]]["exp_avg"].dtype is torch.float32
    # A second moment has no signs, and all 256 steps.
    assert (state["exp_avg_sq.scale"] > 0).all() and (state["exp_avg.scale"] < 0).any()
    values = st.decode_state(state["exp_avg_sq"], state["exp_avg_sq.scale"])
    expected = root4.decode(state["exp_avg_sq"].numpy(), state["exp_avg_sq.scale"].numpy())
    assert np.array_equal(values.numpy(), expected)


@pytest.mark.parametrize("copied", ["state_dict", "file", "deepcopy", "pickle"])
def test_a_copy_goes_on(copied):
    params, optimizer = make()
    step(params, optimizer)
    if copied in ("state_dict", "file"):
        saved = optimizer.state_dict()
        if copied == "file":
            file = io.BytesIO()
            torch.save(saved, file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
        others, other = make()
        for param, own in zip(others, params, strict=True):
            param.data.copy_(own)
        other.load_state_dict(saved)
    else:
        pair = (params, optimizer)
        others, other = copy.deepcopy(pair) if copied == "deepcopy" else pickle.loads(
            pickle.dumps(pair)
        )  # fmt: skip
    for seed in (2, 3):
        step(params, optimizer, seed)
        step(others, other, seed)
    same(params, others)
    for param, own in zip(others, params, strict=True):
        assert optimizer.state[own].keys() == other.state[param].keys()
        same(optimizer.state[own].values(), other.state[param].values())


def floats(saved):
    """A checkpoint of float32 of one with codes."""
    made = {"param_groups": saved["param_groups"], "state": {}}
    for number, own in saved["state"].items():
        made["state"][number] = of = dict(own)
        for name in [name for name in own if f"{name}.scale" in own]:
            of[name] = st.decode_state(of[name], of.pop(f"{name}.scale"))
    return made


def test_floats_become_the_codes_that_they_came_of():
    params, optimizer = make()
    step(params, optimizer)
    others, other = make()
    for param, own in zip(others, params, strict=True):
        param.data.copy_(own)
    other.load_state_dict(floats(optimizer.state_dict()))
    step(params, optimizer, 2)
    step(others, other, 2)
    same(params, others)
    same(optimizer.state[params[0]].values(), [other.state[others[0]][n] for n in
                                               optimizer.state[params[0]]])  # fmt: skip


def test_torchs_checkpoint_loads_and_ours_loads_there():
    params, optimizer = make()
    torchs = torch.optim.AdamW(params, lr=0.05)
    step(params, torchs)
    optimizer.load_state_dict(torchs.state_dict())
    step(params, optimizer, 2)
    assert optimizer.state[params[0]]["exp_avg"].dtype is torch.uint8
    torchs.load_state_dict(floats(optimizer.state_dict()))
    step(params, torchs, 3)


def test_codes_become_floats_where_floats_are_kept():
    params, optimizer = make()
    step(params, optimizer)
    saved = optimizer.state_dict()
    found = []
    for state in (saved, floats(saved)):
        others, wide = make(state_dtype=None)
        for param, own in zip(others, params, strict=True):
            param.data.copy_(own)
        wide.load_state_dict(state)
        step(others, wide, 2)
        found.append((others, wide))
    (left, first), (right, second) = found
    same(left, right)
    for one, other in zip(left, right, strict=True):
        assert first.state[one].keys() == second.state[other].keys()
        same(first.state[one].values(), second.state[other].values())


def test_states_that_a_constructor_makes():
    params, optimizer = make(st.Adagrad, initial_accumulator_value=0.25)
    step(params, optimizer)
    state = optimizer.state[params[0]]
    assert state["sum"].dtype is torch.uint8
    values = st.decode_state(state["sum"], state["sum.scale"])
    assert torch.allclose(values, 0.25 + params[0].grad.square(), rtol=0.07)


def test_a_state_that_the_user_writes():
    params, optimizer = make()
    step(params, optimizer)
    twins, twin = copy.deepcopy((params, optimizer))
    state = twin.state[twins[0]]
    state["exp_avg"].zero_()
    optimizer.state[params[0]]["exp_avg"] = torch.zeros(64, 128)  # floats are encoded
    step(params, optimizer, 2)
    step(twins, twin, 2)
    same(params, twins)


def test_memory():
    """2.125 bytes for a parameter, where float32 takes 8."""
    (param,), optimizer = make(shapes=[(1024, 4096)])
    step([param], optimizer)
    held = sum(t.untyped_storage().nbytes() for n, t in optimizer.state[param].items()
               if n != "step")  # fmt: skip
    assert held == param.numel() * 2 * (1 + 4 / 64)


@pytest.mark.parametrize("dtype", ["q8", None])
def test_codes_without_scales_are_refused(dtype):
    params, optimizer = make()
    step(params, optimizer)
    saved = optimizer.state_dict()
    saved["state"][0].pop("exp_avg.scale")
    others, other = make(state_dtype=dtype)
    other.load_state_dict(saved)
    with pytest.raises(errors.TensorError, match=r"codes, without 'exp_avg\.scale'"):
        step(others, other)


def test_scales_of_other_codes_are_refused():
    codes = torch.zeros(64, 128, dtype=torch.uint8)
    for shape in ((1,), (64, 1), (64, 3), (63, 2), (128, 2), ()):
        with pytest.raises(errors.TensorError, match=r"codes of shape \(64, 128\) have scales of"):
            st.decode_state(codes, torch.zeros(shape))
    with pytest.raises(errors.TensorError, match=r"codes have dtype torch\.float32"):
        st.decode_state(torch.zeros(64, 128), torch.zeros(64, 2))


def test_statistics_that_are_kept_from_step_to_step():
    params, optimizer = make(st.LARS, momentum=0.9, exclusive_writes=True)
    with pytest.raises(errors.StepcError, match="keeps statistics from step to step"):
        step(params, optimizer)


def test_a_state_beside_a_pattern():
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.randn(64, 128))
    optimizer = st.AdamW([("w", param)], state_dtype={"*": "q8", "exp_avg_sq": torch.float32})
    step([param], optimizer)
    state = optimizer.state[param]
    assert state["exp_avg"].dtype is torch.uint8 and state["exp_avg_sq"].dtype is torch.float32


@pytest.mark.parametrize(
    "state_dtype, coded",
    [
        ({"*": "q8", "experts.*": torch.float32}, False),
        ({"*": "q8", "experts.w": torch.float32}, False),
        ({"experts.w": "q8"}, True),
    ],
)
def test_names_of_parameters_with_views(state_dtype, coded):
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        param = torch.nn.Parameter(torch.randn(3, 64, 96))
        group = {"params": [("experts.w", param)], "view": "e n m -> e n m"}
        found.append((param, st.SOAP([group], state_dtype=state_dtype)))
    (param, optimizer), (other, again) = found
    step([param], optimizer)
    names = optimizer.state[param]
    assert any(name.endswith(".scale") for name in names) == coded
    other.data.copy_(param)
    again.load_state_dict(optimizer.state_dict())
    step([param], optimizer, 2)
    step([other], again, 2)
    assert torch.equal(param, other)


def test_averages_and_masters_have_none():
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(64, 128).to(torch.bfloat16))]
    more = {"average": st.EMA(0.9), "master": "f32", "state_dtype": "q8"}
    optimizer = st.AdamW(params, lr=0.05, **more)
    step(params, optimizer)
    coded = {
        name for name, value in optimizer.state[params[0]].items() if value.dtype is torch.uint8
    }
    assert coded == {"exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("q3", ValueError, "state_dtype is 'q3', .* 'q8' or 'f8_e4m3' or 'q4'"),
        ({"exp_avg": "q7"}, ValueError, "state_dtype of 'exp_avg' is 'q7'"),
        ({"exp_avgs": "q8"}, TypeError, "has no state 'exp_avgs'"),
        ({"par*": "q8"}, TypeError, "has no state 'par"),
    ],
)
def test_refused(given, error, words):
    with pytest.raises(error, match=words):
        step(*make(state_dtype=given))


def test_a_pattern_of_parameters_says_whether_they_have_codes():
    param = torch.nn.Parameter(torch.randn(64, 128))
    optimizer = st.AdamW([("w", param)], state_dtype={"w*": torch.bfloat16})
    with pytest.raises(TypeError, match=r"state_dtype of 'w\*', a pattern of parameters' names"):
        step([param], optimizer)


def experts(cls, state_dtype, apart):
    """Three steps of experts: as one parameter with a view, or each by itself."""
    torch.manual_seed(0)
    values, params = torch.randn(3, 64, 96), []
    params = [torch.nn.Parameter(v.clone()) for v in (values if apart else [values])]
    group = {"params": params, **({} if apart else {"view": "e n m -> e n m"})}
    optimizer = cls([group], lr=0.05, state_dtype=state_dtype)
    for _ in range(3):
        grads = torch.randn(3, 64, 96)
        for param, grad in zip(params, grads if apart else [grads], strict=True):
            param.grad = grad
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("cls, kind", [(st.SOAP, "q8"), (st.Dion, "q8"), (st.SOAP, "q4")])
def test_matrices_of_a_view(cls, kind):
    params, optimizer = experts(cls, kind, apart=False)
    alone, single = experts(cls, kind, apart=True)
    assert torch.equal(params[0], torch.stack(list(alone)))
    for name, value in optimizer.state[params[0]].items():
        if name != "step":
            assert torch.equal(value, torch.stack([single.state[p][name] for p in alone])), name
    saved = optimizer.state_dict()
    after = []
    for state in (saved, floats(saved)):
        for kept in (kind, None):
            others, other = experts(cls, kept, apart=False)
            others[0].data.copy_(params[0])
            other.load_state_dict(state)
            others[0].grad = torch.ones(3, 64, 96)
            other.step()
            names = other.state[others[0]]
            assert any(name.endswith(".scale") for name in names) == (kept is not None)
            after.append(others[0])
    assert all(torch.equal(after[0], one) for one in after)


@pytest.mark.parametrize("kind", ["q8", "q4"])
def test_parts_of_several_sizes(kind):
    """Codes of them become floats, and floats no codes."""
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.randn(256, 64))
    group = {"params": [param], "view": "(128 + 64 + 64) m -> 128 m + 64 m + 64 m"}
    optimizer = st.SOAP([group], state_dtype=kind)
    param.grad = torch.randn(256, 64)
    optimizer.step()
    lines = [n for n, v in optimizer.state[param].items() if v.dim() == 1 and v.numel() > 512]
    assert lines
    other = torch.nn.Parameter(param.detach().clone())
    other.grad = param.grad
    again = st.SOAP([{**group, "params": [other]}], state_dtype=kind)
    again.load_state_dict(optimizer.state_dict())
    again.step()
    optimizer.step()
    assert torch.equal(param, other)
    wide = st.SOAP([{**group, "params": [other]}])
    other.grad = param.grad
    wide.step()
    again.load_state_dict(wide.state_dict())
    with pytest.raises(errors.TensorError, match="of the floats of several parts, which cannot"):
        again.step()
