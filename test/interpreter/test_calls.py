# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalars that are written once: a call means the operations in its place. And what no
definition of the zoo needs to say twice."""

import re
from collections import Counter

import numpy as np
import pytest
from oracle import ZOO, Batch, Refused, assert_same, write_definition

GLOBALS = """
%lr = step.hyper "lr" = 0.3
%on = step.option "on" = false
%half = step.constant 0.5
"""
DEFINES = """
step.define @root(%x: f64) {
  %y = step.sqrt %x : f64
  step.yield %y : f64
}
step.define @rates(%t: i64, %x: f64, %f: i1) {
  %number = step.to_f64 %t
  %root = step.call @root(%number) : (f64) -> f64
  %slow = step.div %lr, %root : f64
  %rate = step.select %on, %slow, %x : f64
  %large = step.compare gt, %rate, %half : f64
  %either = step.or %large, %f : i1
  step.yield %rate, %either : f64, i1
}
"""
ARGUMENTS = '%p: param[*], %g: grad[*], %s: state "s"[*] if %on, %t: count, %f: fresh'
CALLED = """
%most = step.amax %g : [*]
%twice = step.call @root(%most) : (f64) -> f64
%rate, %either = step.call @rates(%t, %twice, %f) : (i64, f64, i1) -> (f64, i1)
"""
SPELLED = """
%most = step.amax %g : [*]
%twice = step.sqrt %most : f64
%number = step.to_f64 %t
%root = step.sqrt %number : f64
%slow = step.div %lr, %root : f64
%rate = step.select %on, %slow, %twice : f64
%large = step.compare gt, %rate, %half : f64
%either = step.or %large, %f : i1
"""
REST = """
%u = step.mul %g, %rate : [*], f64
%p1 = step.select %either, %u, %p : [*]
step.return %p1, %g
"""


@pytest.mark.parametrize("mode", ["exact", "bound", "f64"])
def test_a_call_is_its_operations(mode, tmp_path):
    batch, rng = Batch(), np.random.default_rng(0)
    grad = np.abs(rng.standard_normal((3, 5))).astype("f4")
    for on in (False, True):
        for text, defines in ((CALLED, DEFINES), (SPELLED, "")):
            folder = tmp_path / f"{on}{bool(defines)}"
            folder.mkdir()
            path = write_definition(folder, text + REST, ARGUMENTS, GLOBALS + defines)
            arrays = {"param": grad + 1, "grad": grad} | ({"s": grad} if on else {})
            batch.add(path, arrays, mode=mode, options={"on": on}, count=4, fresh=False)
    results = batch.run()
    for called, spelled in ((results[0], results[1]), (results[2], results[3])):
        assert called.keys() == spelled.keys()
        for name in called:
            assert_same(called[name], spelled[name], name)


def test_what_is_read_over_the_model_is_equal_in_all_groups(tmp_path):
    """In what a step.scalars calls, too."""
    path = write_definition(
        tmp_path, "%u = step.mul %g, %r : [*], f64\nstep.return %u", globals_="""
%lr = step.hyper "lr" = 1.0
step.define @inner() {
  %x = step.neg %lr : f64
  step.yield %x : f64
}
step.define @outer() {
  %x = step.call @inner() : () -> f64
  step.yield %x : f64
}
%r = step.scalars over model {
  %x = step.call @outer() : () -> f64
  step.yield %x : f64
}""")  # fmt: skip
    one = np.ones(2, "f4")
    batch = Batch()
    batch.add(path, {"param": one, "grad": one}, groups=[{"hypers": {"lr": 2.0}}])
    assert_same(batch.run()[0]["param"], np.full(2, -2, "f4"))
    batch.add(path, {"param": one, "grad": one}, groups=[{"hypers": {"lr": 2.0}}, {}])
    with pytest.raises(Refused, match="'lr' is read over the model, and groups differ in it"):
        batch.run()


# --- The zoo ------------------------------------------------------------------


def repeated(text, length=2):
    """Runs of so many operations on scalars that stand twice in different rules."""
    runs = Counter()
    for body in re.split(r"\n  (?=step\.|%)", re.sub(r" *//.*", "", text)):
        lines = [line.strip() for line in body.splitlines()]
        scalar = [bool(re.search(r"(: f64|: i1|step\.(pow|powi|to_f64) .*)$", line))
                  for line in lines]  # fmt: skip
        own = {"\n".join(lines[i : i + length]) for i in range(len(lines) - length + 1)
               if all(scalar[i : i + length])}  # fmt: skip
        runs.update(own)
    return [run for run, number in runs.items() if number > 1]


@pytest.mark.parametrize("path", sorted(ZOO.glob("**/*.mlir")), ids=lambda p: p.stem)
def test_no_scalars_stand_twice(path):
    assert repeated(path.read_text()) == []


def test_scalars_that_stand_twice_are_found():
    body = "    %w = step.sub %one, %b : f64\n    %r = step.sqrt %w : f64\n"
    rule = "  step.rule @{} {{\n" + body + "  }}\n"
    assert repeated("x {\n" + rule.format("a") + rule.format("b") + "}") != []
    assert repeated("x {\n" + rule.format("a") + "}") == []
