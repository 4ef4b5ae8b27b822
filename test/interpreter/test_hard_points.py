# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each operation on elements and on scalars where numbers are hard (NaN, infinities, both
zeros, denormals, the largest and the smallest), interpreted and compiled, beside a formula of
numpy that is written here or in test_operations.py. The operations are those of the dialect's
definition files: one without a formula fails.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import oracle
import pytest
from oracle import ROOT, assert_same, special_pairs, special_values, write_definition
from test_operations import BINARY, COMPARISONS, UNARY, lerp, powi

WAYS = {"interpreted": "--interpret", "compiled": "--steps=1"}


@dataclass
class Case:
    """``text`` makes %r, or the mask %m, of the tensors %p and %g and the scalars %a and %b;
    ``formula`` the same of arrays."""

    text: str
    formula: object
    scalars: tuple = ((0.0, 0.0),)


def power(base, exponent):
    """As IEEE 754's; Python raises where that has infinity or NaN of numbers."""
    try:
        return math.pow(base, exponent)
    except ValueError:
        odd = exponent % 2 == 1
        return (math.copysign(math.inf, base) if odd else math.inf) if base == 0 else math.nan


LESS, LARGE = "%l = step.compare lt, %p, %g : [*]\n", "%h = step.compare ge, %p, %a : [*], f64\n"
HARD = [0.0, -0.0, 0.25, 0.5, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan, 5e-324, 1.7e308]
BOUNDS = tuple((a, 0.0) for a in HARD)

TENSORS = {
    **{n: [Case(f"%r = step.{n} %g : [*]", lambda x, y, a, b, f=f: f(y))]
       for n, f in UNARY.items()},
    **{n: [Case(f"%r = step.{n} %p, %g : [*]", lambda x, y, a, b, f=f: f(x, y)),
           Case(f"%r = step.{n} %a, %g : f64, [*]", lambda x, y, a, b, f=f: f(a, y), BOUNDS)]
       for n, f in BINARY.items()},
    "lerp": [Case("%r = step.lerp %p, %g, %a : [*], [*], f64",
                  lambda x, y, a, b: lerp(x, y, a), BOUNDS)],
    "compare": [Case(f"%m = step.compare {n}, %p, %g : [*]", lambda x, y, a, b, f=f: f(x, y))
                for n, f in COMPARISONS.items()],
    "select": [Case(f"{LESS}%r = step.select %l, %g, %p : mask[*], [*]",
                    lambda x, y, a, b: np.where(x < y, y, x)),
               Case(f"{LESS}%r = step.select %l, %a, %p : mask[*], f64, [*]",
                    lambda x, y, a, b: np.where(x < y, a, x), BOUNDS)],
    "and": [Case(f"{LESS}{LARGE}%m = step.and %l, %h : mask[*]",
                 lambda x, y, a, b: (x < y) & (x >= a), BOUNDS)],
    "or": [Case(f"{LESS}{LARGE}%m = step.or %l, %h : mask[*]",
                lambda x, y, a, b: (x < y) | (x >= a), BOUNDS)],
    "not": [Case(f"{LESS}%m = step.not %l : mask[*]", lambda x, y, a, b: ~(x < y))],
    "is_finite": [Case("%m = step.is_finite %g : [*]", lambda x, y, a, b: np.isfinite(y))],
}  # fmt: skip

# Of scalars alone, which are f64; %t is a count.
EXTREME = [*HARD, -2.5, 1e300, -5e-324, 2.0**-1022, 1 - 2.0**-53, 1.0 + 2.0**-52]
PAIRS = tuple((a, b) for a in EXTREME for b in EXTREME)
COUNTS = [1, 2, 3, 5, 1000, 2**53 + 1, 2**63 - 1]
L64, H64 = "%l = step.compare lt, %a, %b : f64\n", "%h = step.is_finite %a : f64\n"
SCALARS = {
    **{n: [Case(f"%r = step.{n} %a : f64", lambda a, b, t, f=f: f(a))]
       for n, f in UNARY.items()},
    **{n: [Case(f"%r = step.{n} %a, %b : f64", lambda a, b, t, f=f: f(a, b))]
       for n, f in BINARY.items()},
    "lerp": [Case("%r = step.lerp %a, %b, %b : f64", lambda a, b, t: lerp(a, b, b))],
    "compare": [Case(f"%m = step.compare {n}, %a, %b : f64", lambda a, b, t, f=f: f(a, b))
                for n, f in COMPARISONS.items()],
    "select": [Case(f"{L64}%r = step.select %l, %b, %a : f64",
                    lambda a, b, t: np.where(a < b, b, a))],
    "and": [Case(f"{L64}{H64}%m = step.and %l, %h : i1",
                 lambda a, b, t: (a < b) & np.isfinite(a))],
    "or": [Case(f"{L64}{H64}%m = step.or %l, %h : i1",
                lambda a, b, t: (a < b) | np.isfinite(a))],
    "not": [Case(f"{L64}%m = step.not %l : i1", lambda a, b, t: ~(a < b))],
    "is_finite": [Case("%m = step.is_finite %b : f64", lambda a, b, t: np.isfinite(b))],
    "powi": [Case("%r = step.powi %a, %t",
                  lambda a, b, t: np.array([powi(x, int(n)) for x, n in zip(a, t, strict=True)]))],
    "pow": [Case("%r = step.pow %a, %b", np.vectorize(lambda a, b, t: power(a, b)))],
    "to_f64": [Case("%r = step.to_f64 %t", lambda a, b, t: t.astype(np.float64))],
}  # fmt: skip
# Functions that are not correctly rounded: test_functions.py has their hard points.
ROUNDED = {"exp", "log", "pow"}
# Whose powers need no rounding: the others are in test_pow.py.
EXACT = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def operations():
    """The mnemonics of the operations on elements, and of those on scalars alone."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "dialect").glob("*.td")))
    found = re.findall(r'^def Step_\w+Op\s*:\s*Step_(\w+)<"(\w+)"', text, re.MULTILINE)
    kinds = ("ElementwiseOp", "ConditionOp", "UnaryOp", "BinaryOp", "LogicalOp")
    elements = {name for kind, name in found if kind in kinds}
    values = (ROOT / "dialect" / "StepValueOps.td").read_text()
    of_values = set(re.findall(r'^def Step_\w+Op\s*:\s*Step_\w+<"(\w+)"', values, re.MULTILINE))
    # What a definition gives, and a count of steps: no formula of a value. Of tensors alone:
    # test_operations.py.
    return elements, of_values - {"constant", "every", "round"}


def test_every_operation_has_a_formula():
    elements, values = operations()
    assert len(elements) >= 17 and elements < values
    assert elements - ROUNDED == set(TENSORS)
    assert values - ROUNDED == set(SCALARS) - ROUNDED


def number(value):
    """As JSON has it."""
    return value if math.isfinite(value) else str(value)


HYPERS = '%a = step.hyper "a" = 0.0\n%b = step.hyper "b" = 0.0\n%one = step.constant 1.0\n'
HYPERS += "%zero = step.constant 0.0"


def stored(case, kind):
    """What returns the result as a tensor: of a condition 1 or 0."""
    text, result = f"%yes = step.constant true\n{case.text}\n", "%r"
    if "%m =" in case.text:
        of = "" if kind == "i1" else f"{kind}, "
        text += f"%n = step.select %m, %one, %zero : {of}f64\n"
        result = "%n"
    if kind == "i1":
        text += f"%z = step.select %yes, {result}, %g : f64, [*]\n"
        result = "%z"
    return f"{text}step.return {result}"


def make(folder, case, kind, arguments="%p: param[*], %g: grad[*], %t: count"):
    return write_definition(folder, stored(case, kind), arguments, HYPERS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TENSORS)
def test_elements(name, way, tmp_path):
    for number_, case in enumerate(TENSORS[name]):
        folder = tmp_path / str(number_)
        folder.mkdir()
        path, batch, expected = make(folder, case, "mask[*]"), oracle.Batch(), []
        for dtype in (np.float32, np.float64):
            x, y = special_pairs(dtype)
            for a, b in case.scalars:
                batch.add(path, {"param": x, "grad": y}, hypers={"a": number(a), "b": number(b)})
                scalars = [np.full_like(x, dtype(each)) for each in (a, b)]
                expected.append(case.formula(x, y, *scalars).astype(dtype))
        for found, value in zip(batch.run(WAYS[way]), expected, strict=True):
            assert_same(found["param"], value, f"{name} {case.text}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCALARS)
def test_scalars(name, way, tmp_path):
    for number_, case in enumerate(SCALARS[name]):
        folder = tmp_path / str(number_)
        folder.mkdir()
        path, batch, one = make(folder, case, "i1"), oracle.Batch(), np.zeros(1)
        values = [(a, b) for a in EXACT for b in EXACT] if name == "pow" else PAIRS
        triples = [(a, b, COUNTS[k % len(COUNTS)]) for k, (a, b) in enumerate(values)]
        for a, b, count in triples:
            hypers = {"a": number(a), "b": number(b)}
            batch.add(path, {"param": one, "grad": one}, hypers=hypers, count=count)
        a, b, counts = (np.array(column) for column in zip(*triples, strict=True))
        expected = np.asarray(case.formula(a, b, counts), np.float64)
        found = np.array([result["param"][0] for result in batch.run(WAYS[way])])
        assert_same(found, expected, f"{name} {case.text}")


def test_the_hard_points_are_there():
    for dtype in (np.float32, np.float64):
        values, info = special_values(dtype), np.finfo(dtype)
        wanted = [info.max, info.tiny, info.smallest_subnormal, dtype(np.inf), dtype(0)]
        assert {*wanted, *(-each for each in wanted)} <= {*values.tolist()}
        assert np.isnan(values).any() and {False, True} == {*np.signbit(values[values == 0])}
