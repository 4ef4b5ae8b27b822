# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interfaces: names; and which rule takes which shape, with which states, as the library says."""

import json
import pickle

import pytest
from stepc import errors
from stepc._describe import Query
from stepc.interface import Interface, describe_options

OPTIONS = [
    {"name": "min", "default": 3},
    {"name": "on", "default": True},
    {"name": "off", "default": False},
]


def rule(*dims, guard=(), name="r", states=(), **more):
    states = [{"name": f"s{i}", "dims": list(own), "init": 0.0} for i, own in enumerate(states)]
    return {"name": name, "dims": list(dims), "guard": list(guard), "states": states, **more}


def interface(*rules):
    data = {"optimizer": "x", "hypers": [], "options": OPTIONS, "rules": list(rules)}
    return Interface.from_json(data)


def ask(given, *shapes, **options):
    values = given.in_order(given.resolve(options, ()))
    return given.describe([Query(values, shape) for shape in shapes])


def takes(given, shape):
    return ask(given, shape)[0].rule is not None


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
    given = interface(rule(*dims.split()))
    assert [shape for shape in fits if not takes(given, shape)] == []
    assert [shape for shape in does_not if takes(given, shape)] == []


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
    assert takes(interface(rule("*", guard=[condition])), shape) is expected


def shapes(given, shape, **options):
    return [state.shape for state in ask(given, shape, **options)[0].states]


def test_shapes_of_states():
    dims = ["...b", "n", "m"]
    reduced = [("...b", "n", "1"), ("...b", "1", "m"), ("...b", "1", "1"), ("1",), dims]
    given = interface(rule(*dims, states=reduced))
    assert shapes(given, (2, 5, 3, 4)) == [
        (2, 5, 3, 1),
        (2, 5, 1, 4),
        (2, 5, 1, 1),
        (1,),
        (2, 5, 3, 4),
    ]
    assert shapes(given, (3, 4)) == [(3, 1), (1, 4), (1, 1), (1,), (3, 4)]
    assert shapes(interface(rule("n", "m", states=[("m", "n")])), (0, 4)) == [(4, 0)]
    [found] = ask(given, (2, 5, 3, 4))
    assert [state.of_param for state in found.states] == [
        (0, 1, 2, None),
        (0, 1, None, 3),
        (0, 1, None, None),
        (None,),
        (0, 1, 2, 3),
    ]
    assert [state.is_full for state in found.states] == [False] * 4 + [True]


def test_parts():
    """Of a rank: rows, and a range of the elements, beside which reduced states are whole."""
    dims = ["n", "m"]
    given = interface(rule(*dims, states=[("n", "1"), ("1", "m"), dims]))
    values = given.in_order(given.resolve({}, ()))
    cut, ranged = given.describe(
        [
            Query(values, (6, 4), part=(2, 4), sharded=1),
            Query(values, (6, 4), range=(5, 12)),
        ]
    )
    assert [state.part for state in cut.states] == [(2, 1), (1, 4), (2, 4)]
    assert [state.part for state in ranged.states] == [(6, 1), (1, 4), (7,)]
    assert (cut.elements, ranged.elements) == (8, 7)
    with pytest.raises(errors.TensorError, match=r"a part of shape \[2, 4\] is not one"):
        given.describe([Query(values, (6, 4), part=(2, 4))])


def test_dims_that_ranks_cannot_share():
    lasting = {"dims": ["n", "flat range"], "line": 4, "column": 9}
    given = interface(rule("n", "n", unshardable=lasting), rule("*", name="any"))
    values = given.in_order(given.resolve({}, ()))
    square, other, ranged = given.describe(
        [
            Query(values, (6, 6), sharded=2),
            Query(values, (6, 4), sharded=2),
            Query(values, (6, 6), range=(0, 9)),
        ]
    )
    assert square.rule.needs_matrices and square.rule.unshardable == ("n",)
    assert (square.rule.line, square.rule.column) == (4, 9)
    assert (square.cut_dim, other.cut_dim, ranged.cut_dim) == ("n", None, "flat range")
    assert not other.rule.needs_matrices and other.rule.name == "any"


def test_dims_that_follow_from_others():
    bound = [
        {"name": "r", "least_of": ["n", "m"], "option": "min", "most": 6, "per": 1},
        {"name": "k", "least_of": ["m"], "per": 64},
    ]
    states = [("...b", "n", "r"), ("...b", "r", "r"), ("...b", "k", "1")]
    given = interface(rule("...b", "n", "m", states=states, bound_dims=bound))
    assert shapes(given, (2, 9, 5), min=8) == [(2, 9, 5), (2, 5, 5), (2, 1, 1)]
    assert shapes(given, (2, 9, 8), min=8) == [(2, 9, 6), (2, 6, 6), (2, 1, 1)]
    assert shapes(given, (9, 65), min=3) == [(9, 3), (3, 3), (2, 1)]
    [found] = ask(given, (9, 8), min=0)
    assert found.rule.name == "r" and found.states == ()
    assert "dim 'r' of rule 'r' is 0 for shape [9, 8] with option 'min' = 0" in found.refusal


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


def ask_example(shape, **options):
    interface = Interface.from_json(EXAMPLE)
    values = interface.in_order(interface.resolve(options, (0.5,)))
    return interface.describe([Query(values, shape)])[0]


def test_names():
    interface = Interface.from_json(json.loads(json.dumps(EXAMPLE)))
    assert interface.options == (("factored", True), ("min_dim", 128))
    assert interface.states == ("row", "all")
    assert [(s.name, s.scope, s.default) for s in interface.scalars] == [("scale", "model", 65536)]
    assert [(s.name, s.scope) for s in interface.statistics] == [("norm2", "group")]
    assert [(s.name, s.scope) for s in interface.reports] == [("grad_norm", "model")]
    assert interface.rules == ("matrix", "any")
    found, other, without = [
        ask_example(shape, **options).states
        for shape, options in (((2, 128), {}), ((3,), {}), ((3,), {"factored": False}))
    ]
    assert [(s.name, s.init, s.exists) for s in found] == [("row", 1.0, True)]
    assert [(s.name, s.init, s.exists) for s in other] == [("row", 0.0, True), ("all", 0.0, True)]
    assert [(s.name, s.exists) for s in without] == [("row", True), ("all", False)]
    assert pickle.loads(pickle.dumps(interface)) == interface


def test_the_first_rule_that_holds():
    def name(shape, **options):
        return ask_example(shape, **options).rule.name

    assert name((2, 128)) == "matrix" and name((7, 2, 200)) == "matrix"
    assert name((2, 127)) == name((1, 128)) == name((128,)) == name(()) == "any"
    assert name((2, 3), min_dim=3) == "matrix"
    assert name((2, 128), factored=False) == "any"


def test_no_rule():
    [found] = ask(interface(rule("n", "m", name="matrix")), (3,))
    assert found.rule is None and found.variant is None and found.states == ()
    words = "tensor 0: no rule of optimizer 'x' takes shape [3]: 'matrix' has dims [n, m]"
    assert (found.refusal, found.status) == (words, "STEPC_SHAPE_MISMATCH")


def test_integers_stay_integers():
    interface = Interface.from_json(EXAMPLE)
    full = interface.resolve({"min_dim": 3}, (0.0,))
    assert full == {"factored": True, "min_dim": 3, "moves": False}
    assert describe_options(full) == "factored=true, min_dim=3, moves=false"


def test_text_that_the_library_refuses():
    data = {**EXAMPLE, "rules": [{**EXAMPLE["rules"][1], "dims": ["n"]}]}
    interface = Interface.from_json(data)  # which knows names alone
    words = r"the interface is corrupt: 'rules\[0\].states\[0\].dims' does not follow"
    with pytest.raises(errors.PackageError, match=words):
        interface.resolve({}, (0.5,))
