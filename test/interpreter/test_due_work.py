# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is done in some steps or again and again: of the interpreter, beside numpy."""

import math

import numpy as np
import pytest
from chains import normal
from oracle import Batch, assert_same, write_definition

MODES = ["exact", "bound", "f64"]


# --- step.every ---------------------------------------------------------------


def is_due(gap, count):
    """Of a gap of whole steps, with whole numbers."""
    return math.isfinite(gap) and (count - 1) % max(math.floor(gap), 1) == 0


GAPS = [1.0, 2.0, 3.0, 200.0, 0.0, -5.0, 0.5, 2.9, 2.0**31]
COUNTS = [1, 2, 3, 4, 5, 7, 8, 199, 200, 201, 202, 401, 2**31 + 1, 2**40 + 1, 3 * 2**40 + 1]


@pytest.mark.parametrize("mode", MODES)
def test_every(mode, tmp_path):
    path = write_definition(
        tmp_path,
        "%due = step.every %gap, %t\n%p1 = step.select %due, %g, %p : [*]\nstep.return %p1",
        "%p: param[*], %g: grad[*], %t: count",
        '%gap = step.hyper "gap" = 1.0',
    )
    batch, cases = Batch(), [(gap, count) for gap in GAPS for count in COUNTS]
    zero, one = np.zeros(1, "f4"), np.ones(1, "f4")
    for gap, count in cases:
        arrays = {"param": zero, "grad": one}
        batch.add(path, arrays, mode=mode, count=count, hypers={"gap": gap})
    for (gap, count), result in zip(cases, batch.run(), strict=True):
        name = "param" if "param" in result else "param:low"
        assert result[name] == is_due(gap, count), (gap, count)
    assert any(is_due(*case) for case in cases) and not all(is_due(*case) for case in cases)


@pytest.mark.parametrize("mode", ["exact", "f64"])
@pytest.mark.parametrize(("over", "gap"), [(0.0, math.nan), (1.0, math.inf), (-1.0, -math.inf)])
def test_every_of_no_number(over, gap, mode, tmp_path):
    """Which no hyper-parameter is, and a quotient may be."""
    path = write_definition(
        tmp_path,
        "%gap = step.div %over, %none : f64\n%due = step.every %gap, %t\n"
        "%p1 = step.select %due, %g, %p : [*]\nstep.return %p1",
        "%p: param[*], %g: grad[*], %t: count",
        '%over = step.hyper "over" = 1.0\n%none = step.hyper "none" = 0.0',
    )
    batch, zero, one = Batch(), np.zeros(1, "f4"), np.ones(1, "f4")
    for count in (1, 2, 7):
        arrays = {"param": zero, "grad": one}
        batch.add(path, arrays, mode=mode, count=count, hypers={"over": over})
    for count, result in zip((1, 2, 7), batch.run(), strict=True):
        # Below 1 it is every step.
        assert result["param"] == (gap < 0 or is_due(gap, count)), count


# --- step.when ----------------------------------------------------------------


def test_when(tmp_path):
    """The old values are those that were stored, and are stored again to the bit."""
    path = write_definition(
        tmp_path,
        "%due = step.every %gap, %t\n"
        "%q1 = step.when %due, %q : [n, n] {\n"
        "  %gt = step.transpose %g : [n, m]\n"
        "  %gg = step.matmul %g, %gt : [n, m], [m, n]\n"
        "  step.yield %gg : [n, n]\n"
        "}\n"
        "%u = step.matmul %q1, %g : [n, n], [n, m]\n"
        "step.return %u, %q1 : [n, m], [n, n]",
        '%p: param[n, m], %g: grad[n, m], %q: state "q"[n, n], %t: count',
        '%gap = step.hyper "gap" = 2.0',
    )
    batch, grad, old = Batch(), normal((3, 5), seed=1), normal((3, 3), seed=2)
    for count in (1, 2, 3):
        batch.add(path, {"param": grad, "grad": grad, "q": old}, count=count)
    first, second, third = batch.run()
    assert_same(second["q"], old)
    assert not np.array_equal(first["q"], old)
    for name in first:
        assert_same(first[name], third[name], name)


def test_what_is_not_due_is_not_computed(tmp_path):
    """A guarded state that is absent would be missed."""
    path = write_definition(
        tmp_path,
        "%q1 = step.when %on, %g : [*] {\n"
        "  %s1 = step.neg %s : [*]\n"
        "  step.yield %s1 : [*]\n"
        "}\n"
        "%p1 = step.sub %p, %q1 : [*]\n"
        "step.return %p1, %g",
        '%p: param[*], %g: grad[*], %s: state "s"[*] if %on',
        '%on = step.option "on" = false',
    )
    batch, one = Batch(), np.ones(2, "f4")
    batch.add(path, {"param": one, "grad": one}, options={"on": False})
    batch.add(path, {"param": one, "grad": one, "s": 3 * one}, options={"on": True})
    off, on = batch.run()
    assert_same(off["param"], 0 * one)
    assert_same(on["param"], 4 * one)


# --- step.repeat --------------------------------------------------------------

STEP = """
%t{0} = step.transpose %x{0} : [n, m]
%gram{0} = step.matmul %x{0}, %t{0} : [n, m], [m, n]
%y{0} = step.matmul %gram{0}, %x{0} : [n, n], [n, m]
%s{0} = step.mean %y{0} : [n, m]
%z{0} = step.mul %y{0}, %r{0} : [n, m], f64
%x{1} = step.add %z{0}, %p : [n, m]
%r{1} = step.add %r{0}, %s{0} : f64
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("times", [0, 1, 3])
def test_repeated(mode, times, tmp_path):
    """What is written as often."""
    globals_ = '%r0 = step.hyper "rate" = 0.125'
    arguments = "%p: param[n, m], %g: grad[n, m]"
    body = STEP.format("a", "b").replace("%xa", "%a").replace("%ra", "%b")
    repeated = (
        f"%x, %r = step.repeat {times} (%a: [n, m] = %g, %b: f64 = %r0) {{\n{body}\n"
        "step.yield %xb, %rb : [n, m], f64\n}\n"
        "%u = step.mul %x, %r : [n, m], f64\nstep.return %u : [n, m]"
    )
    written = "".join(STEP.format(k, k + 1) for k in range(times)).replace("%x0", "%g")
    last = "%g" if times == 0 else f"%x{times}"
    written += f"%u = step.mul {last}, %r{times} : [n, m], f64\nstep.return %u : [n, m]"
    batch, values = Batch(), normal((3, 4), seed=3) / 64
    for name, text in (("repeated", repeated), ("written", written)):
        (tmp_path / name).mkdir()
        path = write_definition(tmp_path / name, text, arguments, globals_)
        batch.add(path, {"param": values, "grad": 2 * values}, mode=mode)
    one, other = batch.run()
    for name in one:
        assert_same(one[name], other[name], name)
