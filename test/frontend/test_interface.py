# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interfaces of format 2: which rule takes which shape, shapes of states, names."""

import json

import pytest
from stepc.interface import Condition, Interface, Rule, describe_options


def rule(*dims, guard=(), name="r", states=()):
    data = {"name": name, "dims": list(dims), "guard": list(guard), "states": list(states)}
    return Rule.from_json(data)


@pytest.mark.parametrize(
    ("dims", "fits", "does_not"),
    [
        ("*", [(), (3,), (0, 2), (1, 2, 3, 4)], []),
        ("n", [(3,), (0,)], [(), (3, 1)]),
        ("n m", [(3, 4), (0, 1)], [(), (3,), (1, 3, 4)]),
        ("n n", [(4, 4), (0, 0)], [(4, 5), (4,)]),
        ("...b n m", [(3, 4), (2, 3, 4), (5, 0, 3, 4)], [(), (3,)]),
        ("...b n", [(3,), (2, 3)], [()]),
        ("n 1", [(3, 1), (1, 1)], [(3, 2), (1,)]),
    ],
)
def test_dims(dims, fits, does_not):
    given = rule(*dims.split())
    assert [shape for shape in fits if not given.holds(shape, {})] == []
    assert [shape for shape in does_not if given.holds(shape, {})] == []


@pytest.mark.parametrize(
    ("condition", "shape", "expected"),
    [
        ({"rank": True, "predicate": "ge", "value": 2}, (3, 4), True),
        ({"rank": True, "predicate": "ge", "value": 2}, (3,), False),
        ({"rank": True, "predicate": "eq", "option": "min"}, (1, 1, 1), True),
        ({"extent": -1, "predicate": "ge", "option": "min"}, (9, 3), True),
        ({"extent": -1, "predicate": "ge", "option": "min"}, (9, 2), False),
        ({"extent": 0, "predicate": "lt", "value": 9}, (9, 3), False),
        ({"extent": -2, "predicate": "ge", "value": 0}, (9,), False),
        ({"extent": 1, "predicate": "ge", "value": 0}, (9,), False),
        ({"option": "on"}, (), True),
        ({"option": "off"}, (), False),
        ({"option": "on", "predicate": "ne", "value": 1}, (), False),
        ({"option": "off", "predicate": "eq", "value": 0}, (), True),
    ],
)
def test_conditions(condition, shape, expected):
    """A condition on an extent that is not there does not hold."""
    options = {"min": 3, "on": True, "off": False}
    assert Condition.from_json(condition).holds(shape, options) is expected


def test_shapes_of_states():
    given = rule("...b", "n", "m")
    assert given.state_shape(("...b", "n", "1"), (2, 5, 3, 4), {}) == (2, 5, 3, 1)
    assert given.state_shape(("...b", "1", "m"), (3, 4), {}) == (1, 4)
    assert given.state_shape(("...b", "1", "1"), (2, 3, 4), {}) == (2, 1, 1)
    assert given.state_shape(("1",), (2, 3, 4), {}) == (1,)
    assert given.state_shape(("m", "n"), (0, 4), {}) == (4, 0)
    assert rule("*").state_shape(("*",), (2, 3), {}) == (2, 3)


def test_dims_that_follow_from_others():
    bound = [
        {"name": "r", "least_of": ["n", "m"], "option": "rank", "most": 6, "per": 1},
        {"name": "k", "least_of": ["m"], "per": 64},
    ]
    given = Rule.from_json({"dims": ["...b", "n", "m"], "states": [], "bound_dims": bound})
    assert given.state_shape(("...b", "n", "r"), (2, 9, 5), {"rank": 8}) == (2, 9, 5)
    assert given.state_shape(("...b", "n", "r"), (2, 9, 8), {"rank": 8}) == (2, 9, 6)
    assert given.state_shape(("r", "r"), (9, 8), {"rank": 3}) == (3, 3)
    assert given.state_shape(("k", "1"), (9, 65), {"rank": 3}) == (2, 1)


EXAMPLE = {
    "optimizer": "example",
    "hypers": [{"name": "lr", "default": 0.5}],
    "options": [
        {"name": "factored", "default": True},
        {"name": "min_dim", "default": 128},
        {"name": "moves", "derived": {"hyper": "lr", "predicate": "ne", "value": 0.0}},
    ],
    "scalars": [{"name": "scale", "default": 65536.0, "scope": "model"}],
    "statistics": [{"name": "norm2", "kind": "sum", "scope": "group"}],
    "reports": [{"name": "grad_norm", "scope": "model", "result": 1}],
    "rules": [
        {
            "name": "matrix",
            "dims": ["...b", "n", "m"],
            "guard": [
                {"extent": -1, "predicate": "ge", "option": "min_dim"},
                {"extent": -2, "predicate": "ge", "value": 2},
                {"option": "factored"},
            ],
            "states": [{"name": "row", "dims": ["...b", "n", "1"], "init": 1.0, "guard": None}],
        },
        {
            "name": "any",
            "dims": ["*"],
            "guard": [],
            "states": [
                {"name": "row", "dims": ["*"], "init": 0.0, "guard": None},
                {"name": "all", "dims": ["*"], "init": 0.0, "guard": "factored"},
            ],
        },
    ],
}


def test_interface_of_format_2():
    interface = Interface.from_json(json.loads(json.dumps(EXAMPLE)))
    assert interface.options == (("factored", True), ("min_dim", 128))
    assert interface.states == ("row", "all")
    assert [(s.name, s.scope, s.default) for s in interface.scalars] == [("scale", "model", 65536)]
    assert [(s.name, s.scope) for s in interface.statistics] == [("norm2", "group")]
    assert [(s.name, s.scope) for s in interface.reports] == [("grad_norm", "model")]
    assert interface.rules[0].states[0].init == 1.0
    assert interface.rules[1].states[1].guard == "factored"
    assert not interface.rules[0].takes_all and interface.rules[1].takes_all


def test_the_first_rule_that_holds():
    interface = Interface.from_json(EXAMPLE)

    def name(shape, **options):
        return interface.rule_of(shape, interface.resolve(options, (0.5,))).name

    assert name((2, 128)) == "matrix" and name((7, 2, 200)) == "matrix"
    assert name((2, 127)) == name((1, 128)) == name((128,)) == name(()) == "any"
    assert name((2, 3), min_dim=3) == "matrix"
    assert name((2, 128), factored=False) == "any"


def test_no_rule():
    data = {**EXAMPLE, "rules": EXAMPLE["rules"][:1]}
    interface = Interface.from_json(data)
    assert interface.rule_of((3,), interface.resolve({}, (0.5,))) is None


def test_integers_stay_integers():
    interface = Interface.from_json(EXAMPLE)
    full = interface.resolve({"min_dim": 3}, (0.0,))
    assert full == {"factored": True, "min_dim": 3, "moves": False}
    assert describe_options(full) == "factored=true, min_dim=3, moves=false"


def test_format_1():
    """What the compiler printed before there were dims of rules."""
    data = {k: EXAMPLE[k] for k in ("optimizer", "hypers")}
    data["options"] = []
    data["rules"] = [{"name": "any", "states": [{"name": "m", "dims": ["*"], "guard": None}]}]
    interface = Interface.from_json(data)
    assert interface.rule_of((2, 3), {}).takes_all and interface.scalars == ()
