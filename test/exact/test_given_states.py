# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of which some states are given: a ``fresh`` holds in the step that creates a state
that it speaks of, and in no other."""

import itertools

import numpy as np
import pytest
from definitions import Definition
from oracle import ZOO, interpret, store, widen
from steps import Case, Group, Packages, Tensor, check

# What each state leaves says whether its own fresh, and the rule's, have held.
DEFINITION = """
step.optimizer @given {
  %with_c = step.option "with_c" = true
  %one = step.constant 1.0
  %two = step.constant 2.0
  step.rule @any(%p: param[*], %g: grad[*], %a: state "a"[*] = 0.5, %b: state "b"[*],
                 %c: state "c"[*] = 0.25 if %with_c, %any: fresh, %of_a: fresh("a"),
                 %of_c: fresh("c"), %none: fresh()) {
    %a1 = step.select %of_a, %g, %a : [*]
    %b1 = step.add %b, %g : [*]
    %c1 = step.select %of_c, %p, %c : [*]
    %x = step.select %any, %one, %two : f64
    %y = step.select %none, %one, %two : f64
    %u = step.mul %a1, %x : [*], f64
    %v = step.mul %b1, %y : [*], f64
    %w = step.add %u, %v : [*]
    %z = step.add %w, %c1 : [*]
    %s = step.select %with_c, %z, %w : [*]
    %p1 = step.sub %p, %s : [*]
    step.return %p1, %a1, %b1, %c1
  }
}
"""
AVERAGE = """
step.fragment @start {
  %half = step.constant 0.5
  step.rule @any(%p: param[*], %m: state "mean"[*] kept, %first: fresh) {
    %s = step.add %p, %m : [*]
    %h = step.mul %s, %half : [*], f64
    %m1 = step.select %first, %p, %h : [*]
    step.return %m1
  }
}
"""
STATES = ["a", "b", "c", "mean"]
SUBSETS = [list(s) for n in range(5) for s in itertools.combinations(STATES, n)]


@pytest.fixture
def definition(tmp_path):
    (tmp_path / "given.mlir").write_text(DEFINITION)
    (tmp_path / "start.mlir").write_text(AVERAGE)
    return Definition(tmp_path / "given.mlir", [tmp_path / "start.mlir"])


def arrays_of(given, rng, storages, size=70):
    names = {"param": storages[0], "grad": storages[1]} | dict.fromkeys(given, storages[2])
    return {name: store(rng.standard_normal(size).astype("f4"), s) for name, s in names.items()}


@pytest.mark.parametrize("with_c", [True, False])
def test_each_subset(definition, tmp_path, with_c):
    """All together in one model: those of other flags are other cohorts."""
    rng, tensors, storages = np.random.default_rng(3), [], ("f32", "f32", "bf16")
    names = [n for n in STATES if with_c or n != "c"]
    for given in SUBSETS:
        if set(given) <= set(names):
            missing = [n for n in names if n not in given]
            tensors.append(Tensor((70,), storages, arrays_of(given, rng, storages), count=3,
                                  fresh=missing if given else True,
                                  participates=[len(given) % 2 == 0, True]))  # fmt: skip
    groups = [Group(options={"with_c": with_c})]
    failures = check([Case(definition, groups, tensors, steps=3)], Packages(tmp_path))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("given", SUBSETS, ids="-".join)
def test_what_it_means(definition, given):
    """Beside formulas that are written out here."""
    arrays = arrays_of(given, np.random.default_rng(4), ("f32",) * 3)
    p, g = arrays["param"], arrays["grad"]
    zero = np.zeros_like(p)
    a = arrays["a"] if "a" in given else g
    b = arrays.get("b", zero) + g
    c = arrays["c"] if "c" in given else p
    x = 2.0 if {"a", "b", "c"} <= set(given) else 1.0
    y = 1.0 if not given else 2.0
    result = interpret(definition.path, arrays, fragments=definition.fragments)
    after = p - ((a * np.float32(x) + b * np.float32(y)) + c)
    mean = (after + arrays["mean"]) * np.float32(0.5) if "mean" in given else after
    for name, expected in {"a": a, "b": b, "c": c, "param": after, "mean": mean}.items():
        assert np.array_equal(result[name], expected), name


@pytest.mark.parametrize("storages", [("bf16", "bf16", "f32"), ("f16", "f32", "f32")],
                         ids="-".join)  # fmt: skip
@pytest.mark.parametrize(
    "given",
    [["momentum_buffer"], ["master"], [], ["momentum_buffer", "master"]],
    ids="-".join,
)
def test_a_missing_master_begins_nothing_else(tmp_path, given, storages):
    """As of a checkpoint of a run without masters: the momentum goes on. And the other way
    round, where the momentum is switched on later."""
    rng = np.random.default_rng(5)
    arrays = arrays_of([n for n in given if n != "master"], rng, storages)
    if "master" in given:
        arrays["master"] = np.asarray(rng.standard_normal(70), "f4")
        arrays["param"] = store(arrays["master"], storages[0])
    hypers = {"lr": 0.25, "momentum": 0.5}
    settings = {"hypers": hypers, "master": "f32", "param": storages[0], "grad": storages[1]}
    result = interpret(ZOO / "sgd.mlir", arrays, **settings)
    start = arrays.get("master", widen(arrays["param"]).astype("f4"))
    g = widen(arrays["grad"]).astype("f4")
    buffer = arrays["momentum_buffer"] * np.float32(0.5) + g if "momentum_buffer" in given else g
    assert np.array_equal(result["momentum_buffer"], buffer)
    assert np.array_equal(result["master"], start - buffer * np.float32(0.25))
