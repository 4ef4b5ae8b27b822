# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``Optimizer.state``: a dict of dicts that counts its changes."""

import copy
import pickle
from collections import defaultdict

import pytest
from stepc.torch.binding.state_map import ParamState, StateMap

CHANGES = {
    "item": lambda s: s.__setitem__("a", 2),
    "delete": lambda s: s.__delitem__("a"),
    "update": lambda s: s.update({"a": 2}),
    "keywords": lambda s: s.update(a=2),
    "or": lambda s: s.__ior__({"a": 2}),
    "pop": lambda s: s.pop("a"),
    "popitem": lambda s: s.popitem(),
    "setdefault": lambda s: s.setdefault("b", 2),
    "clear": lambda s: s.clear(),
}


def sample():
    state = StateMap()
    state.put_quietly("p", {"a": 1})
    return state


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_a_parameters_state_counts(change):
    state, plain = sample(), {"a": 1}
    before = state.epoch
    change(state["p"]), change(plain)
    assert state.epoch > before
    assert state["p"] == plain


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_the_map_counts(change):
    state, plain = StateMap({"a": {}}), defaultdict(dict, {"a": {}})
    before = state.epoch
    change(state), change(plain)
    assert state.epoch > before
    assert state == plain


def test_dict_has_no_other_mutators():
    """Those that a later Python may add must be looked at."""
    known = {name.split("(")[0] for name in dir(dict)}
    mutators = {"__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault"}
    readers = {"copy", "fromkeys", "get", "items", "keys", "values"}
    public = {name for name in known if not name.startswith("_")}
    assert public <= mutators | readers | {"update"}


def test_reading_does_not_count():
    state = sample()
    before = state.epoch
    assert state["p"]["a"] == 1 and "q" not in state and state.get("q") is None
    assert list(state.items()) == [("p", {"a": 1})] and len(state["p"]) == 1
    assert state.epoch == before


def test_missing_keys_make_states_of_the_map():
    state = sample()
    before = state.epoch
    state["q"]["b"] = 2
    assert type(state["q"]) is ParamState and state.epoch >= before + 2


def test_foreign_dicts_become_states_of_the_map():
    state, other = sample(), sample()
    state["p"] = other["p"]
    assert state["p"] is not other["p"]
    before = state.epoch
    state["p"]["a"] = 5
    assert state.epoch == before + 1 and other["p"]["a"] == 1


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_plain(how):
    state = sample()
    outer, inner = how(state), how(state["p"])
    assert type(outer) is defaultdict and type(outer["p"]) is dict and type(inner) is dict
    assert outer == {"p": {"a": 1}} and inner == {"a": 1}
    outer["p"]["a"] = 9
    assert state["p"]["a"] == 1
    assert outer["new"] == {}
    assert type(state.copy()) is defaultdict and type(state["p"].copy()) is dict
