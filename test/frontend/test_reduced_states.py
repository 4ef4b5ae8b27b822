# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of fewer dims than their parameter: memory, shapes, what can be bound."""

import re
from pathlib import Path

import pytest
import torch
from stepc import errors
from stepc.interface import Interface
from stepc.torch.binding.precision import Kept
from stepc.torch.binding.preparation import Preparation
from stepc.torch.binding.rules import Variants
from stepc.torch.binding.state_map import StateMap
from stepc.torch.tensors.members import Member

HEADER = Path(__file__).resolve().parents[2] / "runtime" / "include" / "stepc" / "kernel_abi.h"
KERNEL_ABI = int(re.search(r"STEPC_KERNEL_ABI_VERSION (\d+)", HEADER.read_text())[1])
DIMS = ["...b", "n", "m"]
STATES = {"exp_avg": DIMS, "row": ["...b", "n", "1"], "col": ["...b", "1", "m"]}
RULES = [
    {
        "name": "matrix",
        "dims": DIMS,
        "guard": [],
        "states": [
            {"name": name, "dims": dims, "init": 0.0, "guard": None}
            for name, dims in STATES.items()
        ],
    }
]
INTERFACE = Interface.from_json(
    {"optimizer": "example", "hypers": [], "options": [], "rules": RULES}
)


def operand(role, name, dims):
    access = {"reads": True, "writes": role != "grad"}
    return {"role": role, "name": name, "dims": dims, "storage": "f32", "init": 0.0, **access}


MANIFEST = {
    "format": 5,
    "kernel_abi": KERNEL_ABI,
    "optimizer": "example",
    **{key: [] for key in ("hypers", "options", "scalars", "statistics", "reports", "rounds")},
    "results": 0,
    "rules": RULES,
    "variants": [
        {
            "name": "example_matrix_0",
            "rule": "matrix",
            "options": {},
            "layout": {},
            "operands": [
                operand("param", "param", DIMS),
                operand("grad", "grad", DIMS),
                *(operand("state", name, dims) for name, dims in STATES.items()),
            ],
            "fresh": [],
            "scalars": {"functions": [], "slots": 0},
            "tensor_slots": 0,
            "space": "tiles",
            "workspace": [],
            "schedule": [
                {
                    "kernel": "k",
                    "strided_kernel": "k",
                    "segment": 0,
                    "reads": [1],
                    "writes": [0],
                    "after": [],
                }
            ],
            "rounds": False,
            "subsets": True,
        }
    ],
    "code": [{"target": "x86-64-v3", "file": "code/x86-64-v3.so", "cpu_features": []}],
}
DROPPED = {"row": -1, "col": -2}


def make(states, dropped, number=1):
    """Of parameters that have no masters and are not rounded by chance."""
    kept = Kept(master=None, state_dtype=None, rounding=None)
    variants = Variants(Interface.from_json(MANIFEST), [{}], kept)
    return Preparation(states, INTERFACE, MANIFEST, variants, dropped, number)


def prepare(param, state=None, dropped=DROPPED):
    preparation = make(StateMap({} if state is None else {param: state}), dropped)
    member = Member(0, 0, "parameter 'w'", "w", param, torch.ones_like(param))
    assert preparation.have_variants([member])
    preparation.prepare([member], counts=True)
    return member


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (1, 1), (0, 5), (5, 0), (200, 300), (4, 1)])
def test_shown_without_the_kept_dim(shape):
    """As transformers has them; the same memory as the plan's."""
    member = prepare(torch.nn.Parameter(torch.ones(shape)))
    exp_avg, row, col = member.states
    assert exp_avg.shape == shape
    assert row.shape == (*shape[:-1], 1) and col.shape == (*shape[:-2], 1, shape[-1])
    assert row.is_contiguous() and col.is_contiguous() and bool((row == 0).all())
    shown = member.items
    assert list(shown) == ["step", "exp_avg", "row", "col"]
    assert shown["row"].shape == shape[:-1] and shown["col"].shape == shape[:-2] + shape[-1:]
    assert shown["row"].data_ptr() == row.data_ptr()
    assert shown["col"].data_ptr() == col.data_ptr()
    assert member.shown == [shown["exp_avg"], shown["row"], shown["col"]]


def test_shown_as_they_are():
    """torch's Adafactor keeps the dim."""
    member = prepare(torch.nn.Parameter(torch.ones(3, 5)), dropped={})
    assert member.items["row"].shape == (3, 1) and member.items["col"].shape == (1, 5)


def test_strides_are_the_parameters_only_for_whole_states():
    member = prepare(torch.nn.Parameter(torch.ones(5, 3).t()))
    exp_avg, row, col = member.states
    assert exp_avg.stride() == (1, 3) and row.is_contiguous() and col.is_contiguous()


def test_states_that_can_be_bound_are_kept():
    param = torch.nn.Parameter(torch.ones(200, 300))
    first = prepare(param)
    state = dict(first.items)
    state["row"].fill_(7.0)
    second = prepare(param, state)
    assert second.items == {} and not second.fresh
    assert [s.data_ptr() for s in second.states] == [s.data_ptr() for s in first.states]
    assert second.states[1].shape == (200, 1) and bool((second.states[1] == 7).all())
    assert second.shown[1] is state["row"]


@pytest.mark.parametrize("how", ["strided", "f64", "alone"])
def test_others_are_copied(how):
    """As they are loaded: of another dtype, not dense, or small and alone."""
    param = torch.nn.Parameter(torch.ones(3, 5))
    row = torch.arange(3.0)
    if how == "strided":
        row = torch.arange(6.0)[::2]
    elif how == "f64":
        row = row.double()
    expected = row.float().clone()
    state = {"exp_avg": torch.ones(3, 5), "row": row, "col": torch.ones(5)}
    member = prepare(param, state)
    assert member.items["row"].equal(expected) and member.states[1].shape == (3, 1)
    assert member.items["row"].data_ptr() != row.data_ptr()


def test_shapes_that_do_not_fit():
    param = torch.nn.Parameter(torch.ones(3, 5))
    words = r"state 'row' of parameter 'w' has shape \(3, 1\), expected \(3,\)"
    with pytest.raises(errors.TensorError, match=words):
        prepare(param, {"row": torch.ones(3, 1)})
    words = r"state 'row' of parameter 'w' has shape \(3,\), expected \(3, 1\)"
    with pytest.raises(errors.TensorError, match=words):
        prepare(param, {"row": torch.ones(3)}, dropped={})


def test_no_rule_takes_the_shape():
    param = torch.nn.Parameter(torch.ones(3))
    member = Member(0, 0, "parameter 'w'", "w", param, torch.ones_like(param))
    preparation = make(StateMap(), {})
    assert not preparation.have_variants([member])
    words = r"no rule of optimizer 'example' takes parameter 'w' of shape \(3,\); rules: 'matrix'"
    with pytest.raises(errors.TensorError, match=words):
        preparation.prepare([member], counts=True)


def test_blocks_of_small_states():
    """Parts of common blocks, so that one version counter moves for many; each has a storage of
    its own bytes, so that none is saved with the others'."""
    params = [torch.nn.Parameter(torch.ones(n, 3)) for n in (1, 2, 5)]
    members = [
        Member(i, 0, f"parameter {i}", "w", p, torch.ones_like(p)) for i, p in enumerate(params)
    ]
    preparation = make(StateMap(), DROPPED, 3)
    preparation.prepare(members, counts=False)
    for name in STATES:
        items = [m.items[name] for m in members]
        assert len({item._base.untyped_storage().data_ptr() for item in items}) == 1
        assert all(item.untyped_storage().nbytes() == item.nbytes for item in items)
        before = [item._version for item in items]
        items[0].add_(1)
        assert [item._version for item in items] == [version + 1 for version in before]
    assert all(m.items["row"].data_ptr() % 64 == 0 for m in members)
