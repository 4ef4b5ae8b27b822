# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies, version counters and state of an optimizer, as users and libraries expect."""

import copy
import gc
import io
import pickle
import warnings

import pytest
import stepc.torch
import torch
from common import (
    ZOO,
    bits_equal,
    clone_params,
    distance,
    make_params,
    set_grads,
    train,
)
from contract_kinds import SHAPES, each_kind, make
from stepc import errors
from stepc.torch.binding.state_map import ParamState

# --- Copies -------------------------------------------------------------------


@each_kind
def test_deepcopy_and_pickle(kind):
    params, optimizer = make(kind)
    optimizer.public_attribute = 3
    set_grads(params)
    optimizer.step()
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        mirror = again.param_groups[0]["params"]
        for state in again.state.values():
            assert type(state) is dict
        set_grads(mirror, seed=3)
        again.step()
    set_grads(params, seed=3)
    optimizer.step()
    assert bits_equal(params, mirror)
    public = {name for name in copy.deepcopy(optimizer).__dict__ if not name.startswith("_")}
    theirs = copy.deepcopy(torch.optim.SGD(params)).__dict__
    assert public == {name for name in theirs if not name.startswith("_")}


def test_static_promise_survives_copies():
    optimizer = stepc.torch.AdamW(make_params(SHAPES), static_grads=True)
    assert copy.deepcopy(optimizer)._static_grads is True


@each_kind
def test_saving_with_weights_only(kind):
    params, optimizer = make(kind)
    set_grads(params)
    optimizer.step()
    packed = optimizer.state_dict()
    assert all(type(state) is dict for state in packed["state"].values())
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    optimizer.load_state_dict(loaded)
    optimizer.step()


# --- Autograd -----------------------------------------------------------------


@pytest.mark.parametrize("direct", ["1", "0"])
@each_kind
def test_version_counters(kind, direct, monkeypatch):
    """A parameter changed between forward and backward gives torch's own error."""
    from stepc.torch.tensors import walk as _walk

    monkeypatch.setenv("STEPC_DIRECT", direct)
    monkeypatch.setattr(_walk, "direct_functions", _walk.direct_functions.__wrapped__)
    params, optimizer = make(kind)
    set_grads(params)
    optimizer.step()
    versions = [p._version for p in params]
    loss = sum((p * p).sum() for p in params)
    params[0].grad = None
    optimizer.step()
    assert [p._version - v for p, v in zip(params, versions, strict=True)] == [0, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_version_counters_of_states():
    params, optimizer = make("adamw")
    set_grads(params)
    optimizer.step()
    watched = [t for state in optimizer.state.values() for t in state.values()]
    versions = [t._version for t in watched]
    optimizer.step()
    assert all(t._version > v for t, v in zip(watched, versions, strict=True))


# --- State --------------------------------------------------------------------


def test_state_layout_of_adamw():
    params, optimizer = make("adamw", amsgrad=True)
    set_grads(params)
    for expected in (1, 2, 3):
        optimizer.step()
        for p in params:
            state = optimizer.state[p]
            assert list(state) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
            step = state["step"]
            assert (step.dtype, step.dim(), step.device.type) == (torch.float32, 0, "cpu")
            assert step == expected
            assert type(state) is ParamState and isinstance(state, dict)
    places = [optimizer.state[p]["step"].data_ptr() for p in params]
    assert [place - places[0] for place in places] == [4 * i for i in range(len(params))]


def test_small_states_lie_together_and_alone_in_their_storages():
    """One after the other, with one version counter, and each with no more than its bytes."""
    params, optimizer = make("adamw")
    set_grads(params)
    optimizer.step()
    first, second = (optimizer.state[p]["exp_avg"] for p in params)
    assert second.data_ptr() - first.data_ptr() == 64 and second.data_ptr() % 64 == 0
    assert first._base is second._base and first._version == second._version
    for state in optimizer.state.values():
        for tensor in state.values():
            assert tensor.storage_offset() == 0
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


def saved_bytes(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.tell()


@each_kind
def test_states_are_saved_and_copied_alone(kind):
    """As torch's: a file for each parameter has the bytes of that one, and so has a copy."""
    params, optimizer = make(kind, [(3,)] * 100 + [(2, 4)])
    set_grads(params)
    optimizer.step()
    kept = optimizer.state_dict()["state"]
    for number, state in kept.items():
        plain = {name: value.clone() for name, value in state.items()}
        assert saved_bytes(state) == saved_bytes(plain), number
        for value in (*state.values(), *copy.deepcopy(state).values()):
            assert value.untyped_storage().nbytes() == value.nbytes
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        for state in again.state.values():
            assert all(v.untyped_storage().nbytes() == v.nbytes for v in state.values())


def test_one_state_keeps_the_memory_of_all():
    """A state that is held outlives the optimizer; what it lies in goes with the last."""
    params, optimizer = make("adamw")
    set_grads(params)
    optimizer.step()
    held = optimizer.state[params[0]]["exp_avg"]
    expected = held.clone()
    del optimizer
    gc.collect()
    assert held.equal(expected)


def test_state_of_sgd_is_torchs():
    for momentum in (0.0, 0.9):
        ours, a = make("sgd", momentum=momentum)
        theirs = clone_params(ours)
        b = torch.optim.SGD(theirs, lr=0.1, momentum=momentum)
        train((a, b), (ours, theirs), 2)
        assert [list(s) for s in a.state.values()] == [list(s) for s in b.state.values()]


def test_add_param_group():
    ours = make_params()
    theirs = clone_params(ours)
    a, b = stepc.torch.AdamW(ours[:4]), torch.optim.AdamW(theirs[:4])
    train((a, b), (ours[:4], theirs[:4]), 3)
    a.add_param_group({"params": ours[4:], "lr": 0.1})
    b.add_param_group({"params": theirs[4:], "lr": 0.1})
    train((a, b), (ours, theirs), 3)
    assert distance(ours, theirs) < 50
    assert float(a.state[ours[0]]["step"]) == 6 and float(a.state[ours[5]]["step"]) == 3


def test_gradient_scaler():
    """The scaler unscales and skips by itself, also with ``fused=True``."""
    params = make_params(SHAPES)
    optimizer = stepc.torch.AdamW(params, lr=0.1, fused=True)
    twin = clone_params(params)
    plain = stepc.torch.AdamW(twin, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    set_grads(params, twin)
    plain.step()
    with torch.no_grad():
        for p in params:
            p.grad.mul_(4.0)
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    assert bits_equal(params, twin)
    params[0].grad.fill_(float("inf"))
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    assert bits_equal(params, twin)


def test_state_taken_before_the_first_step():
    params, optimizer = make("adamw")
    state = optimizer.state
    assert not state
    set_grads(params)
    optimizer.step()
    assert optimizer.state is state and len(state) == len(params)


MISSPELT = {"exp_avgg": "exp_avg", "exp_av": "exp_avg", "Exp_avg": "exp_avg", "steps": None,
            "buffer": None, 3: None}  # fmt: skip


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("name", MISSPELT)
@pytest.mark.parametrize("kind", ["adamw", "lion", "file"])
def test_a_misspelt_state_is_refused(kind, name, when):
    """With the nearest, before anything is changed; without it steps go on."""
    params, optimizer = make(kind)
    set_grads(params)
    if when == "between":
        optimizer.step()
    before, states = clone_params(params), len(optimizer.state)
    optimizer.state[params[1]][name] = torch.ones(2, 4)
    with pytest.raises(errors.NameNotFoundError) as caught:
        optimizer.step()
    words = f"parameter 1 of group 0 has a state {name!r}, which optimizer"
    assert words in str(caught.value) and "; states: exp_avg" in str(caught.value)
    near = MISSPELT[name]
    assert ("(the nearest is" in str(caught.value)) is (near is not None)
    assert near is None or f"(the nearest is '{near}')" in str(caught.value)
    assert bits_equal(params, before) and len(optimizer.state) <= states + 1
    del optimizer.state[params[1]][name]
    optimizer.step()
    assert not bits_equal(params, before)


@each_kind
def test_unknown_states_of_a_checkpoint_are_left_out(kind):
    params, optimizer = make(kind)
    set_grads(params)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"].setdefault(0, {})["slow"] = torch.ones(3)
    with pytest.warns(RuntimeWarning, match="has 'slow', which optimizer .* leaves out"):
        optimizer.load_state_dict(saved)
    optimizer.step()
    assert "slow" not in optimizer.state[params[0]]


def test_what_features_and_groups_leave_behind_is_known():
    """Averages and masters of before, and a state that an option has switched off."""
    params, optimizer = make("adamw", amsgrad=True, average=stepc.torch.EMA(0.9))
    set_grads(params)
    optimizer.step()
    again = stepc.torch.AdamW(params, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.load_state_dict(optimizer.state_dict())
        again.param_groups[0]["amsgrad"] = False
        again.step()
    assert {"ema", "max_exp_avg_sq"} <= set(again.state[params[0]])


def test_a_sparse_momentum_is_torchs():
    """A sparse gradient, then a dense one: torch's own words, every time."""
    said = []
    for library in (torch.optim, stepc.torch):
        table = torch.nn.Embedding(10, 3, sparse=True)
        optimizer = library.SGD(table.parameters(), lr=0.1, momentum=0.9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table(torch.tensor([1, 2])).sum().backward()
            optimizer.step()
            table.weight.grad = table.weight.grad.to_dense()
            for _ in range(2):
                with pytest.raises(RuntimeError) as caught:
                    optimizer.step()
                said.append(str(caught.value))
    assert len(set(said)) == 1


@pytest.mark.parametrize("name", ["AdamW", "Lion", "Optimizer"])
@pytest.mark.parametrize("value", [None, "abc", torch.ones(2), 10**400])
def test_bad_value_at_a_step(name, value):
    """Named with its group; nothing is changed, and a good one goes on."""
    params = make_params(SHAPES)
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    args = (ZOO / "lion.mlir",) if name == "Optimizer" else ()
    optimizer = getattr(stepc.torch, name)(groups, *args)
    for first in (True, False):
        set_grads(params)
        before = clone_params(params)
        optimizer.param_groups[1]["weight_decay"] = value
        with pytest.raises(errors.HyperparameterError) as caught:
            optimizer.step()
        words = f"hyper-parameter 'weight_decay' of group 1 is {value!r}, expected a number"
        assert words in str(caught.value) and isinstance(caught.value, ValueError)
        assert bits_equal(params, before)
        optimizer.param_groups[1]["weight_decay"] = 0.0
        optimizer.step()
        assert first or optimizer.state[params[1]]


@pytest.mark.parametrize("betas", [(0.9,), (0.9, None), 0.9, (0.9, 0.9, 0.9)])
@pytest.mark.parametrize("name", ["AdamW", "Lion"])
def test_bad_betas_at_a_step(name, betas):
    params = make_params(SHAPES)
    optimizer = getattr(stepc.torch, name)(params)
    set_grads(params)
    optimizer.param_groups[0]["betas"] = betas
    with pytest.raises(errors.HyperparameterError, match="'betas' of group 0 is .*two of them"):
        optimizer.step()
    del optimizer.param_groups[0]["betas"]
    with pytest.raises(errors.HyperparameterError, match="group 0 has no hyper-parameter 'betas'"):
        optimizer.step()
