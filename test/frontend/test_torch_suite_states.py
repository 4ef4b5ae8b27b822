# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's tests of its optimizers on ours: states, checkpoints in both directions,
copies, and hooks."""

import copy
import io
import pickle

import pytest
import torch
from common import bits_equal, clone_params, make_params, set_grads, train
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch_table import (
    CASES,
    INFOS,
    NAMES,
    assert_agree,
    compiled_only,
    default_dtype,
    each_input,
    each_optimizer,
    keys_of_states,
    ours,
    pair,
    params_of,
    theirs,
)

MANY = [(3,), (2, 4), (5, 2)]
# Nothing falls back to torch's own step, which would agree with itself.
pytestmark = pytest.mark.filterwarnings("error:stepc:RuntimeWarning")


def stepped(name, shapes=MANY, steps=3, **kwargs):
    params = make_params(shapes)
    optimizer = ours(name, params, **kwargs)
    train((optimizer,), (params,), steps)
    return params, optimizer


def assert_same_states(a, b):
    """Of two packed states: the same keys and the same bits."""
    assert a["state"].keys() == b["state"].keys()
    for key, own in a["state"].items():
        assert list(own) == list(b["state"][key])
        for name, value in own.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(b["state"][key][name]))
    assert a["param_groups"] == b["param_groups"]


# --- What a state looks like --------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kwargs", "dtype"),
    [
        *((*case, torch.float32) for case in CASES),
        *((name, {}, torch.bfloat16) for name in NAMES),
        *((name, {}, torch.float16) for name in NAMES),
        *((name, {}, torch.float64) for name in NAMES),
    ],
)
def test_states_are_torchs(name, kwargs, dtype):
    """Names in their order, shapes, and types but for what is narrow in torch."""
    left, right = pair(name, dtype, **kwargs)
    train((left[1], right[1]), (left[0], right[0]), 1)
    assert keys_of_states(left[1], left[0]) == keys_of_states(right[1], right[0])
    wide = torch.promote_types(dtype, torch.float32)
    for p, q in zip(left[0], right[0], strict=True):
        for key, value in left[1].state[p].items():
            other = right[1].state[q][key]
            assert value.shape == other.shape and value.device == other.device
            if other.numel() > 1:
                assert value.stride() == other.stride() or 0 in value.shape
            assert value.dtype is (torch.float32 if key == "step" else wide)
            assert not value.requires_grad


@each_optimizer
def test_state_appears_when_torchs_does(name):
    left, right = pair(name)
    assert keys_of_states(left[1], left[0]) == keys_of_states(right[1], right[0])
    for _, optimizer in (left, right):
        optimizer.step()
    assert keys_of_states(left[1], left[0]) == keys_of_states(right[1], right[0])


@each_input
def test_zero_gradients_and_lr_make_states_and_move_nothing(name, kwargs):
    """How torch.distributed.checkpoint makes the state of a fresh optimizer."""
    left, right = pair(name, **kwargs)
    before = clone_params(left[0])
    for params, optimizer in (left, right):
        for p in params:
            p.grad = torch.zeros_like(p)
        for group in optimizer.param_groups:
            lr = group["lr"]
            group["lr"] = torch.tensor(0.0) if isinstance(lr, torch.Tensor) else 0.0
        optimizer.step(closure=None)
    assert bits_equal(left[0], before)
    assert_agree(left, right)


@pytest.mark.parametrize(
    ("name", "kwargs"), [case for case in CASES if not case[1].get("weight_decay")]
)
def test_zero_gradients_move_nothing(name, kwargs):
    """With an lr, and no decay of weights: of torch's optimizers ASGD alone decays by
    something else."""
    plain = {"AdamW": {"weight_decay": 0.0}, "ASGD": {"lambd": 0.0}}.get(name, {})
    left, right = pair(name, **{**kwargs, **plain})
    before = clone_params(left[0])
    for _ in range(2):
        for params, optimizer in (left, right):
            for p in params:
                p.grad = torch.zeros_like(p)
            optimizer.step()
        assert_agree(left, right)
    assert bits_equal(left[0], before) and bits_equal(right[0], before)
    assert all(group["lr"] > 0.0 for group in left[1].param_groups)


# --- Checkpoints --------------------------------------------------------------


@each_input
def test_round_trip(name, kwargs):
    """A loaded optimizer takes the step that the saved one would have taken."""
    params, a = pair(name, **kwargs)[0]
    train((a,), (params,), 3)
    others = clone_params(params)
    b = ours(name, others, **kwargs)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    assert_same_states(a.state_dict(), b.state_dict())
    train((a, b), (params, others), 3, first=3)
    assert bits_equal(params, others)
    assert_same_states(a.state_dict(), b.state_dict())


@pytest.mark.parametrize("to_torch", [False, True], ids=["from torch", "to torch"])
@each_input
def test_checkpoints_of_the_other(name, kwargs, to_torch):
    """In float64, where nothing is cast: three steps of one, then three of each."""
    with default_dtype(torch.float64), compiled_only():
        mine, other = pair(name, torch.float64, **kwargs)
        first, make = (mine, theirs) if to_torch else (other, ours)
        train((first[1],), (first[0],), 3)
        params = clone_params(first[0])
        loaded = make(name, params, **kwargs)
        loaded.load_state_dict(copy.deepcopy(first[1].state_dict()))
        train((first[1], loaded), (first[0], params), 3, first=3)
        left, right = (params, loaded), first
        assert_agree(*((right, left) if to_torch else (left, right)))


@each_optimizer
def test_groups_of_a_checkpoint_are_torchs(name):
    """Key for key: what torch does not know, it would carry along for ever."""
    left, right = pair(name)
    train((left[1], right[1]), (left[0], right[0]), 1)
    right[1].param_groups[0]["foreach"] = None
    assert left[1].state_dict()["param_groups"] == right[1].state_dict()["param_groups"]


@each_optimizer
def test_older_checkpoints(name):
    """Without the flags that torch added later."""
    params, optimizer = stepped(name)
    packed = copy.deepcopy(optimizer.state_dict())
    removed = [f for f in INFOS[name].not_og_supported_flags if f in packed["param_groups"][0]]
    assert removed
    for group in packed["param_groups"]:
        for flag in removed:
            del group[flag]
    others = clone_params(params)
    again = ours(name, others)
    again.load_state_dict(packed)
    train((optimizer, again), (params, others), 2, first=3)
    assert bits_equal(params, others)


@each_optimizer
def test_numbers_in_old_checkpoints(name):
    """What is a tensor of one element now was a number once."""
    params, optimizer = stepped(name)
    packed = copy.deepcopy(optimizer.state_dict())
    numbers = 0
    for state in packed["state"].values():
        for key, value in state.items():
            if value.dim() == 0:
                state[key], numbers = value.item(), numbers + 1
    assert numbers or name == "SGD"
    others = clone_params(params)
    again = ours(name, others)
    again.load_state_dict(packed)
    train((optimizer, again), (params, others), 2, first=3)
    assert bits_equal(params, others)
    assert keys_of_states(again, others) == keys_of_states(optimizer, params)


@pytest.mark.parametrize("named", [(False, True), (True, False), (True, True)], ids=str)
@each_optimizer
def test_named_parameters(name, named):
    def arguments(params, with_names):
        return [(f"w{i}", p) for i, p in enumerate(params)] if with_names else params

    params = make_params(MANY)
    optimizer = ours(name, arguments(params, named[0]))
    train((optimizer,), (params,), 2)
    others = clone_params(params)
    again = ours(name, arguments(others, named[1]))
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train((optimizer, again), (params, others), 2, first=2)
    assert bits_equal(params, others)
    of_torch = theirs(name, arguments(clone_params(params), named[1]))
    of_torch.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    names = [o.param_groups[0].get("param_names") for o in (again, of_torch)]
    assert names[0] == names[1]


@each_optimizer
def test_saved_with_weights_only(name):
    params, optimizer = stepped(name)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    others = clone_params(params)
    again = ours(name, others)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert_same_states(optimizer.state_dict(), again.state_dict())


@each_optimizer
def test_state_dict_is_the_same_twice(name):
    params, optimizer = stepped(name)
    first = copy.deepcopy(optimizer.state_dict())
    assert_same_states(first, optimizer.state_dict())
    for value in (v for s in optimizer.state_dict()["state"].values() for v in s.values()):
        assert any(value is own for p in params for own in optimizer.state[p].values())


@pytest.mark.parametrize("name", [n for n in NAMES if n != "Adafactor"])
def test_bf16_states_keep_their_bits(name):
    """torch casts states to the parameter's type when they are loaded; ours stay."""
    params = params_of(name, torch.bfloat16)
    optimizer = ours(name, params)
    train((optimizer,), (params,), 3)
    others = clone_params(params)
    again = ours(name, others)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train((optimizer, again), (params, others), 2, first=3)
    assert bits_equal(params, others)
    assert_same_states(optimizer.state_dict(), again.state_dict())


# --- Copies -------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 3])
@each_optimizer
def test_deepcopy_and_pickle(name, steps):
    params, optimizer = stepped(name, steps=steps)
    made = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    lists = [again.param_groups[0]["params"] for again in made]
    train((optimizer, *made), (params, *lists), 2, first=3)
    for again, own in zip(made, lists, strict=True):
        assert type(again) is type(optimizer)
        assert bits_equal(params, own)
        assert_same_states(optimizer.state_dict(), again.state_dict())


@each_optimizer
def test_deepcopy_keeps_public_attributes(name):
    left, right = pair(name, params=make_params(MANY))
    for _, optimizer in (left, right):
        optimizer.public_attribute = 3
    public = [{k for k in vars(copy.deepcopy(o)) if k[0] != "_"} for o in (left[1], right[1])]
    assert public[0] == public[1]


@each_input
def test_printing(name, kwargs):
    left, right = pair(name, **kwargs)
    assert repr(left[1]).replace("foreach: None", "foreach: False") == repr(right[1])


# --- Hooks --------------------------------------------------------------------


@each_optimizer
def test_step_hooks(name):
    params, optimizer = stepped(name, steps=0)
    set_grads(params)
    seen = []

    def noting(word):
        return lambda o, args, kwargs: seen.append(word) if o is optimizer else None

    handles = [
        optimizer.register_step_pre_hook(noting("before")),
        optimizer.register_step_post_hook(noting("after")),
        register_optimizer_step_pre_hook(noting("global before")),
        register_optimizer_step_post_hook(noting("global after")),
    ]
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert sorted(seen[:2]) == ["before", "global before"]
    assert sorted(seen[2:]) == ["after", "global after"]


@each_optimizer
def test_a_pre_hook_changes_the_arguments(name):
    params, optimizer = stepped(name, steps=0)
    set_grads(params)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 17.0), {}))
    assert optimizer.step() == 17.0


@each_optimizer
def test_state_dict_hooks(name):
    params, optimizer = stepped(name)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, packed: {**packed, "more": len(seen)})
    optimizer.register_state_dict_post_hook(lambda o, packed: seen.append("post"))
    optimizer.register_state_dict_post_hook(lambda o, packed: seen.append("early"), prepend=True)
    assert optimizer.state_dict()["more"] == 2
    assert seen == ["pre", "early", "post"]
    assert params


@each_optimizer
def test_load_state_dict_hooks(name):
    params, optimizer = stepped(name)
    packed = copy.deepcopy(optimizer.state_dict())
    again = ours(name, clone_params(params))
    seen = []

    def halve(o, state_dict):
        seen.append("pre")
        groups = [{**g, "lr": 0.5} for g in state_dict["param_groups"]]
        return {**state_dict, "param_groups": groups}

    again.register_load_state_dict_pre_hook(halve)
    again.register_load_state_dict_pre_hook(lambda o, s: seen.append("early"), prepend=True)
    again.register_load_state_dict_post_hook(lambda o: seen.append("post"))
    again.load_state_dict(packed)
    assert seen == ["early", "pre", "post"] and again.param_groups[0]["lr"] == 0.5
    assert keys_of_states(again, again.param_groups[0]["params"]) == keys_of_states(
        optimizer, params
    )


# --- Particular states --------------------------------------------------------


def test_initial_sum_of_bf16_parameters():
    """0.3 as float32 has it, before the first step and in a group that comes later."""
    params = make_params([(3,), (4,)], torch.bfloat16)
    optimizer = ours("Adagrad", params[:1], initial_accumulator_value=0.3)
    optimizer.add_param_group({"params": params[1:]})
    initial = torch.tensor(0.3)
    assert all(value == initial for value in optimizer.state[params[0]]["sum"])
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    for param in params:
        assert all(value == initial for value in optimizer.state[param]["sum"])


@pytest.mark.parametrize("default", [torch.float64, torch.float16], ids=str)
@each_input
def test_set_default_dtype_works_with_foreach(name, kwargs, default):
    """Of the same name in torch's test_optim.py: counts are float32, or float64 where that is
    the default; float64 parameters agree."""
    foreach = not any(isinstance(value, torch.Tensor) for value in kwargs.values())
    counts = torch.float64 if default is torch.float64 else torch.float32
    with default_dtype(default), compiled_only():
        left, right = pair(name, torch.float64, **{"foreach": foreach, **kwargs})
        train((left[1], right[1]), (left[0], right[0]), 3)
        for params, optimizer in (left, right):
            steps = [optimizer.state[param].get("step") for param in params]
            kinds = {(s.dtype, s.device.type) for s in steps if s is not None}
            assert kinds <= {(counts, "cpu")} and (kinds or name == "SGD")
    if default is torch.float64:  # else torch's numbers in between are narrow
        assert_agree(left, right)
    # Then with the usual one, as a library may have set the other for a while.
    train((left[1], right[1]), (left[0], right[0]), 1, first=3)
    for a, b in zip(left[0], right[0], strict=True):
        assert left[1].state[a].get("step") == right[1].state[b].get("step")
