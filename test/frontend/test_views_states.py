# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of parameters that a rule sees in another shape: saved, loaded, flattened."""

import copy
import io

import pytest
import stepc.torch as st
import torch
from common import bits_equal, make_params, set_grads
from stepc.torch.binding.rules import WholeState
from stepc.torch.ranks.base_part import Seen
from stepc.torch.tensors import patterns
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from viewed_params import (
    BLOCKS,
    CONV,
    ROW,
    train_adafactor,
)

pytestmark = pytest.mark.filterwarnings("ignore:stepc. S.* has no (bases|factors) of vectors")


def test_saved_and_loaded():
    """The view is saved with its group; a state that says none leaves the optimizer's."""
    optimizer, params = train_adafactor(4)
    first, before = train_adafactor()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert [g["view"] for g in saved["param_groups"]] == [CONV[1], BLOCKS[1], ROW[1]]
    assert saved["state"][0]["exp_avg"].shape == CONV[0]
    bare = copy.deepcopy(saved)
    for group in bare["param_groups"]:
        del group["view"]
    for state in (saved, bare):
        params_again = [torch.nn.Parameter(p.detach().clone()) for p in before]
        again, _ = train_adafactor(0, params=params_again)
        again.load_state_dict(state)
        for step in (2, 3):
            set_grads(params_again, seed=step)
            again.step()
        assert bits_equal(params, params_again)
        for p, q in zip(params, params_again, strict=True):
            assert bits_equal(optimizer.state[p].values(), again.state[q].values())
    copied = copy.deepcopy(first)
    for step in (2, 3):
        own_params = [g["params"][0] for g in copied.param_groups]
        set_grads(own_params, seed=step)
        copied.step()
    assert bits_equal(params, own_params)


@pytest.mark.parametrize("text", [None, BLOCKS[1]])
@pytest.mark.parametrize("kind", ["AdamW", "Adagrad"])
def test_a_first_step_without_a_gradient(kind, text):
    """After a load, and where the constructor makes states: what steps make later is saved."""
    params, plain = (make_params([BLOCKS[0], (4, 6)]) for _ in range(2))
    groups = [{"params": params[:1], "view": text}, {"params": params[1:]}]
    ours, theirs = getattr(st, kind)(groups, lr=0.1), getattr(st, kind)(plain, lr=0.1)
    if kind == "AdamW":
        set_grads(params, plain)
        ours.step()
        theirs.step()
        ours.load_state_dict(copy.deepcopy(ours.state_dict()))
    for step in (1, 2, 3):
        set_grads(params, plain, seed=step)
        if step == 1:
            params[0].grad = plain[0].grad = None
        ours.step()
        theirs.step()
    saved, expected = ours.state_dict()["state"], theirs.state_dict()["state"]
    for number in (0, 1):
        assert bits_equal(saved[number].values(), expected[number].values())
    assert float(saved[0]["step"]) == (3 if kind == "AdamW" else 2)
    ours.add_param_group({"params": make_params([(3,)])})  # which has all bound anew
    set_grads(params, plain, seed=4)
    ours.step()
    theirs.step()
    assert bits_equal(params, plain)


def flattened(optimizer, param, saved=None):
    """In the form without groups of torch.distributed.checkpoint, or loaded from it."""
    module = torch.nn.Module()
    module.weight = param
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    if saved is None:
        return get_optimizer_state_dict(module, optimizer, options=options)
    set_optimizer_state_dict(module, optimizer, saved, options=options)
    return None


def test_a_flattened_state():
    """Has the view of each parameter; torch loads it by the keys that the optimizer has."""

    def made(view, steps=2):
        (param,) = make_params([CONV[0]])
        optimizer = st.AdamW([{"params": [param]} | view])
        for step in range(steps):
            set_grads([param], seed=step)
            optimizer.step()
        return param, optimizer

    view = {"view": CONV[1]}
    param, optimizer = made(view)
    saved = flattened(optimizer, param)
    assert saved["param_groups.weight.view"] == CONV[1]
    again, loaded = made(view, 0)
    again.data.copy_(param.detach())
    flattened(loaded, again, copy.deepcopy(saved))
    for p, own in ((param, optimizer), (again, loaded)):
        set_grads([p], seed=2)
        own.step()
    assert bits_equal([param], [again]) and loaded.param_groups[0]["view"] == CONV[1]
    plain, without = made({})
    with pytest.raises(KeyError, match=r"param_groups\.weight\.view"):
        flattened(loaded, again, flattened(without, plain))
    flattened(without, plain, saved)
    assert "view" not in without.param_groups[0]


def test_a_state_of_no_view_leaves_the_optimizers():
    """Also one whose group says so."""
    (param,), (plain,) = make_params([CONV[0]]), make_params([CONV[0]])
    saved = st.AdamW([{"params": [plain], "view": None}]).state_dict()
    assert saved["param_groups"][0]["view"] is None
    for text in (CONV[1], None):
        optimizer = st.AdamW([{"params": [param], "view": text}])
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["view"] == text


def test_a_state_without_a_view_loads_with_one():
    """As Keller Jordan's of a convolution, whose buffer has the kernel's shape; and torch's."""
    (ours,), (plain,) = make_params([CONV[0]]), make_params([CONV[2]])
    optimizer, theirs = st.AdamW([{"params": [ours], "view": CONV[1]}]), torch.optim.AdamW([ours])
    set_grads([ours])
    theirs.step()
    optimizer.load_state_dict(theirs.state_dict())
    set_grads([ours], seed=1)
    optimizer.step()
    theirs.load_state_dict(optimizer.state_dict())
    assert theirs.state[ours]["exp_avg"].shape == CONV[0]
    # One that has the shape which is seen, as of a parameter that was reshaped by hand, too.
    other = st.AdamW([plain])
    set_grads([plain])
    other.step()
    optimizer.load_state_dict(other.state_dict())
    set_grads([ours], seed=1)
    optimizer.step()
    assert optimizer.state[ours]["exp_avg"].shape == CONV[0]
    assert float(optimizer.state[ours]["step"]) == 2


def test_states_that_lie_as_a_parameter():
    """One of a parameter's dims, each in its place, of which it has not all elements: it would be
    taken for one of all."""
    seen = Seen("w", patterns.parse("n m -> n 1 m"), lambda shape: {})
    assert seen.as_own(WholeState((4, 6), (0, 2)), (4, 6)) == WholeState((4, 6), (None, None))
    assert seen.as_own(WholeState((4,), (0,)), (4, 6)) == WholeState((4,), (0,))
    assert seen.as_own(WholeState((6,), (2,)), (4, 6)) == WholeState((6,), (1,))
    assert seen.as_own(WholeState((4, 1, 6), (0, 1, 2)), (4, 6)) == WholeState((4, 6), (0, 1))
