# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""state_dict and load_state_dict, also to and from torch's own optimizers."""

import copy

import pytest
import stepc.torch
import torch
from common import OURS, bits_equal, clone_params, distance, make_params, states, train

KWARGS = {"AdamW": {"amsgrad": True}, "SGD": {"momentum": 0.9, "weight_decay": 0.1}}
TORCH_KINDS = pytest.mark.parametrize("kind", ["AdamW", "SGD"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", OURS)
def test_resume_is_no_resume(kind, dtype):
    kwargs = {"adamw": KWARGS["AdamW"], "sgd": KWARGS["SGD"]}.get(kind, {})
    whole = make_params(dtype=dtype)
    half = clone_params(whole)
    a = OURS[kind](whole, lr=1e-2, **kwargs)
    train((a,), (whole,), 10)
    b = OURS[kind](half, lr=1e-2, **kwargs)
    train((b,), (half,), 5)
    saved = copy.deepcopy(b.state_dict())
    resumed = clone_params(half)
    c = OURS[kind](resumed, lr=0.5)
    c.load_state_dict(saved)
    train((c,), (resumed,), 5, first=5)
    assert bits_equal(whole, resumed)
    for name in next(iter(a.state.values())):
        assert bits_equal(states(a, name), states(c, name))


@TORCH_KINDS
def test_from_torch(kind):
    theirs = make_params()
    b = getattr(torch.optim, kind)(theirs, lr=1e-2, **KWARGS[kind])
    train((b,), (theirs,), 5)
    ours = clone_params(theirs)
    a = getattr(stepc.torch, kind)(ours)
    a.load_state_dict(b.state_dict())
    before = [state.copy() for state in a.state.values()]
    assert all(
        s[k].equal(t[k])
        for s, t in zip(before, b.state.values(), strict=True)
        for k in s
        if s[k] is not None
    )
    train((a, b), (ours, theirs), 10, first=5)
    assert distance(ours, theirs) < 50
    assert a.param_groups[0]["lr"] == 1e-2


@TORCH_KINDS
def test_to_torch(kind):
    ours = make_params()
    a = getattr(stepc.torch, kind)(ours, lr=1e-2, **KWARGS[kind])
    train((a,), (ours,), 5)
    theirs = clone_params(ours)
    b = getattr(torch.optim, kind)(theirs)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    train((a, b), (ours, theirs), 10, first=5)
    assert distance(ours, theirs) < 50


def test_same_format_as_torch():
    ours, theirs = make_params(), make_params()
    for kind, kwargs in KWARGS.items():
        a = getattr(stepc.torch, kind)(ours, **kwargs)
        b = getattr(torch.optim, kind)(theirs, **kwargs)
        train((a, b), (ours, theirs), 1)
        left, right = a.state_dict(), b.state_dict()
        assert left["param_groups"] == right["param_groups"]
        assert list(left["state"]) == list(right["state"])
        for one, two in zip(left["state"].values(), right["state"].values(), strict=True):
            assert {k: (v.shape, v.dtype) for k, v in one.items()} == {
                k: (v.shape, v.dtype) for k, v in two.items()
            }


def test_bf16_parameters_keep_f32_states():
    """torch casts loaded states to the parameter's dtype."""
    params = make_params(dtype=torch.bfloat16)
    a = stepc.torch.AdamW(params, lr=1e-2)
    train((a,), (params,), 3)
    mirror = clone_params(params)
    b = stepc.torch.AdamW(mirror, lr=1e-2)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    assert all(s.dtype == torch.float32 for s in states(b, "exp_avg"))
    assert bits_equal(states(a, "exp_avg_sq"), states(b, "exp_avg_sq"))


def test_bf16_states_of_torch_are_widened():
    theirs = make_params(dtype=torch.bfloat16)
    b = torch.optim.AdamW(theirs, lr=1e-2)
    train((b,), (theirs,), 3)
    ours = clone_params(theirs)
    a = stepc.torch.AdamW(ours, lr=1e-2)
    a.load_state_dict(copy.deepcopy(b.state_dict()))
    train((a, b), (ours, theirs), 3, first=3)
    assert all(s.dtype == torch.float32 for s in states(a, "exp_avg"))
    assert distance(ours, theirs) < 8


def test_loading_copies():
    """Two optimizers that load one dict do not share memory."""
    params = make_params([(3,), (200, 200)])
    a = stepc.torch.AdamW(params)
    train((a,), (params,), 2)
    saved = a.state_dict()
    mirror = clone_params(params)
    b = stepc.torch.AdamW(mirror)
    b.load_state_dict(saved)
    train((b,), (mirror,), 1, first=2)
    assert float(saved["state"][0]["step"]) == 2
    train((a,), (params,), 1, first=2)
    assert bits_equal(params, mirror)


@pytest.mark.parametrize("step", [7, 7.0, torch.tensor(7), torch.tensor(7.0, dtype=torch.float64)])
def test_step_of_old_checkpoints(step):
    """A number, or a tensor of another dtype."""
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 7)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["step"] = step
    mirror = clone_params(params)
    again = stepc.torch.AdamW(mirror)
    again.load_state_dict(saved)
    loaded = again.state[mirror[0]]["step"]
    assert loaded.dtype == torch.float32 and loaded.dim() == 0 and loaded == 7
    train((optimizer, again), (params, mirror), 2, first=7)
    assert bits_equal(params, mirror)
    assert again.state[mirror[0]]["step"] == 9


def test_momentum_buffer_of_none():
    """As older versions of torch saved it."""
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.SGD(params, lr=0.1, momentum=0.9, dampening=0.5)
    saved = optimizer.state_dict()
    saved["state"] = {0: {"momentum_buffer": None}, 1: {"momentum_buffer": None}}
    optimizer.load_state_dict(saved)
    train((optimizer,), (params,), 1)
    assert optimizer.state[params[0]]["momentum_buffer"].equal(params[0].grad)


def test_older_group_without_newer_keys():
    params = make_params([(3,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 1)
    saved = copy.deepcopy(optimizer.state_dict())
    for key in ("maximize", "foreach", "capturable", "differentiable", "fused"):
        del saved["param_groups"][0][key]
    optimizer.load_state_dict(saved)
    train((optimizer,), (params,), 1)
    assert optimizer.state[params[0]]["step"] == 2


def test_refused_dicts_change_nothing():
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 1)
    other = stepc.torch.AdamW([{"params": params[:1]}, {"params": params[1:]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(other.state_dict())
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optimizer.load_state_dict(stepc.torch.AdamW(params[:1]).state_dict())
    assert optimizer.state[params[0]]["step"] == 1
    train((optimizer,), (params,), 1)
    assert optimizer.state[params[0]]["step"] == 2


def test_state_that_does_not_fit():
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 1)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][1]["exp_avg_sq"] = torch.zeros(5)
    optimizer.load_state_dict(saved)
    before = clone_params(params)
    expected = r"state 'exp_avg_sq' of parameter 1 of group 0 has shape \(5,\), expected \(4,\)"
    with pytest.raises(stepc.StepcError, match=expected):
        train((optimizer,), (params,), 1)
    assert bits_equal(params, before)
    optimizer.state[params[1]]["exp_avg_sq"] = 3.0
    with pytest.raises(stepc.StepcError, match="is a float, not a tensor"):
        train((optimizer,), (params,), 1)


def test_hooks_of_saving_and_loading():
    """In order, with what torch's hooks get; pre-hooks may change the state."""
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params, lr=0.5)
    train((optimizer,), (params,), 1)
    seen = []

    def before_saving(o):
        o.state[params[0]]["exp_avg"].fill_(3)
        seen.append("before saving")

    def after_saving(o, saved):
        assert all(type(state) is dict for state in saved["state"].values())
        seen.append("after saving")
        return {**saved, "version": 2}

    def before_loading(o, saved):
        assert saved["version"] == 2
        seen.append("before loading")
        saved["param_groups"][0]["lr"] = 0.25
        return saved

    def after_loading(o):
        assert (o.state[params[0]]["exp_avg"] == 3).all() and o.state[params[0]]["step"] == 1
        seen.append("after loading")

    optimizer.register_state_dict_pre_hook(before_saving)
    optimizer.register_state_dict_post_hook(after_saving)
    optimizer.register_load_state_dict_pre_hook(before_loading)
    optimizer.register_load_state_dict_post_hook(after_loading)
    optimizer.load_state_dict(state_dict=optimizer.state_dict())
    assert seen == ["before saving", "after saving", "before loading", "after loading"]
    assert optimizer.param_groups[0]["lr"] == 0.25
    train((optimizer,), (params,), 1)
    assert optimizer.state[params[0]]["step"] == 2


def test_torch_distributed_checkpoint_helpers():
    """get_optimizer_state_dict makes the state by a step of zeros, and names it."""
    from torch.distributed.checkpoint import state_dict as dcp

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    before = clone_params(list(model.parameters()))
    optimizer = stepc.torch.AdamW(model.parameters(), lr=1e-2)
    packed = dcp.get_optimizer_state_dict(model, optimizer)
    assert set(packed["state"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert bits_equal(before, list(model.parameters()))
    dcp.set_optimizer_state_dict(model, optimizer, packed)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    # The step of zeros was counted, as with torch's own optimizer.
    twin = torch.optim.AdamW(model.parameters())
    dcp.get_optimizer_state_dict(model, twin)
    counts = {float(state["step"]) for state in optimizer.state.values()}
    assert len(counts) == 1


def test_one_parameters_state_is_saved_alone(tmp_path):
    """Without the block that it shares; all of it shares its blocks in the file."""
    params = make_params([(8,)] * 2000)
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 1)
    torch.save(optimizer.state[params[0]], tmp_path / "one")
    torch.save(optimizer.state_dict(), tmp_path / "all")
    assert (tmp_path / "one").stat().st_size < 5000
    assert (tmp_path / "all").stat().st_size < 2000 * 1200
    again = torch.load(tmp_path / "one", weights_only=False)
    assert all(again[k].equal(v) for k, v in optimizer.state[params[0]].items())
    mirror = clone_params(params)
    other = torch.optim.AdamW(mirror)
    other.load_state_dict(torch.load(tmp_path / "all"))
    train((optimizer, other), (params, mirror), 2, first=1)
    assert distance(params, mirror) < 50
