# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""step.exp, step.log, step.pow and step.floor of tensors: the errors that docs/functions.md
states, special operands, intervals, and that compiled code has the interpreter's bits."""

import numpy as np
import oracle
import pytest
from oracle import interpret, special_pairs, special_values, write_definition

DTYPES = [np.float32, np.float64]
# In units in the last place.
STATED = {
    ("exp", np.float32): 0.501, ("exp", np.float64): 1.0,
    ("log", np.float32): 0.501, ("log", np.float64): 1.0,
    ("pow", np.float32): 0.501, ("pow", np.float64): 0.76,
}  # fmt: skip
EXACT = {"exp": np.exp, "log": np.log, "pow": np.power, "floor": np.floor}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def define(folder, name):
    if name == "pow":
        return write_definition(folder, "%r = step.pow %p, %g : [*]\n step.return %r")
    return write_definition(folder, f"%r = step.{name} %p : [*]\n step.return %r")


def run(folder, name, x, y=None, how="--interpret", **settings):
    batch = oracle.Batch()
    batch.add(define(folder, name), {"param": x, "grad": x if y is None else y}, **settings)
    return batch.run(how)[0]


def operands(name, dtype, count, seed):
    """Such that results are of every size, and arguments are near 1 or anywhere."""
    rng = np.random.default_rng(seed)
    least, most = (-1074, 1024) if dtype == np.float64 else (-149, 128)
    powers = rng.uniform(least - 2, most + 1, count)
    near = 1 + rng.standard_normal(count) * 2.0 ** rng.uniform(-20, -2, count)
    far = 2.0 ** rng.uniform(least, most, count)
    x = np.where(rng.random(count) < 0.5, np.abs(near), far).astype(dtype)
    x = np.where((x == 1) | (x == 0), dtype(3), x)
    if name == "exp":
        small = rng.standard_normal(count)
        return np.where(rng.random(count) < 0.5, small, powers * np.log(2)).astype(dtype), None
    return x, (powers / np.log2(x.astype("f8"))).astype(dtype) if name == "pow" else None


def units_off(actual, exact, dtype):
    """By long doubles, which have 11 bits more than doubles; what overflows counts as the
    first number that is too large."""
    info = np.finfo(dtype)
    first = np.ldexp(np.longdouble(1), info.maxexp)
    actual = actual.astype(np.longdouble)
    exact = np.clip(exact, -first, first)
    actual = np.clip(actual, -first, first)
    exponent = np.clip(np.frexp(np.abs(exact))[1] - 1, info.minexp, info.maxexp - 1)
    return np.abs(actual - exact) / np.ldexp(np.longdouble(1), exponent - info.nmant)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "log", "pow"])
def test_error(tmp_path, name, dtype):
    x, y = operands(name, dtype, 20000, 1)
    result = run(tmp_path, name, x, y)["param"]
    wide = [side.astype(np.longdouble) for side in (x, y) if side is not None]
    worst = units_off(result, EXACT[name](*wide), dtype).max()
    assert 0.4 < worst < STATED[name, dtype]


def test_the_measure_of_errors_sees_one_of_a_unit(tmp_path):
    x, _ = operands("exp", np.float32, 1000, 2)
    moved = np.nextafter(run(tmp_path, "exp", x)["param"], np.float32(np.inf))
    assert units_off(moved, np.exp(x.astype(np.longdouble)), np.float32).max() > 0.99


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "log", "pow", "floor"])
def test_special_operands_as_ieee(tmp_path, name, dtype):
    """numpy's functions of long doubles are the C library's, whose special operands are those
    of IEEE 754."""
    x, y = special_pairs(dtype)
    if name != "pow":
        x, y = np.concatenate([x, special_values(dtype)]), None
    sides = [side for side in (x, y) if side is not None]
    actual = run(tmp_path, name, x, y)["param"]
    expected = EXACT[name](*(side.astype(np.longdouble) for side in sides)).astype(dtype)
    np.testing.assert_array_max_ulp(actual, expected, maxulp=1, dtype=dtype)
    exact = ~np.isfinite(expected) | (expected == 0) | (name == "floor")
    oracle.assert_same(actual[exact], expected[exact], name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "log", "pow", "floor"])
def test_compiled_code_has_the_same_bits(tmp_path, name, dtype):
    """In vectors and what is left of them: 16 elements go together."""
    x, y = special_pairs(dtype)
    more, powers = operands(name if name != "floor" else "exp", dtype, 5003, 3)
    x = np.concatenate([x, more])
    y = np.concatenate([y, more if powers is None else powers])
    expected = run(tmp_path, name, x, y)["param"]
    oracle.assert_same(run(tmp_path, name, x, y, "--compare")["param"], expected, name)


@pytest.mark.parametrize("name", ["exp", "log", "pow", "floor"])
def test_of_halves(tmp_path, name):
    """What is stored in 16 bits is computed as f32."""
    x = np.random.default_rng(4).uniform(0.1, 9, 1003).astype("f2")
    expected = run(tmp_path, name, x, x[::-1].copy())["param"]
    compiled = run(tmp_path, name, x, x[::-1].copy(), "--compare")["param"]
    oracle.assert_same(compiled, expected, name)


@pytest.mark.parametrize("name", ["exp", "log", "floor"])
def test_of_scalars(tmp_path, name):
    """In f64, whatever the tensors are, in the prologue and beside a tensor."""
    path = write_definition(
        tmp_path,
        f"%r = step.{name} %x : f64\n%yes = step.constant true\n"
        "%p1 = step.select %yes, %r, %g : f64, [*]\n step.return %p1",
        globals_='%x = step.hyper "x" = 0.0',
    )
    batch, one = oracle.Batch(), np.zeros(3)
    values = [0.3, 2.75, 700.5, 1e-310, -1.5, 0.0]
    for value in values:
        batch.add(path, {"param": one, "grad": one}, hypers={"x": value})
    interpreted, compiled = batch.run(), batch.run("--compare")
    for value, ours, other in zip(values, interpreted, compiled, strict=True):
        tensor = run(tmp_path / "..", name, np.full(3, value))["param"]
        oracle.assert_same(ours["param"], tensor, f"{name} {value}")
        oracle.assert_same(other["param"], tensor, f"{name} {value}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "log", "pow"])
def test_intervals_hold_the_result(tmp_path, name, dtype):
    """Of what went through an addition, so that operands are intervals; a unit more lies
    outside."""
    x, y = operands(name, dtype, 4000, 5)
    tame = np.abs(x) < 80 if name == "exp" else (x > 1e-30) & (x < 1e30)
    x, y = x[tame], np.full(x.size, dtype(0.375))[tame] if y is not None else None
    second = ", %q" if name == "pow" else ""
    path = write_definition(
        tmp_path,
        f"%z = step.constant 0.0\n%q = step.add %g, %z : [*], f64\n"
        f"%s = step.add %p, %z : [*], f64\n%r = step.{name} %s{second} : [*]\n step.return %r",
    )
    arrays = {"param": x, "grad": x if y is None else y}
    bounds = interpret(path, arrays, mode="bound")
    exact = interpret(path, arrays)["param"]
    low, high = bounds["param:low"], bounds["param:high"]
    assert ((low <= exact) & (exact <= high)).all()
    assert (low < high).any()
    width = (high - low) / np.spacing(np.abs(exact))
    far = np.abs(exact) > 0.1  # near 1 a logarithm has fewer bits than its operand
    assert np.median(width[far]) < (300 if dtype == np.float32 else 3000)


def test_a_floor_that_may_be_either_is_a_jump(tmp_path):
    path = write_definition(
        tmp_path,
        "%s = step.add %p, %g : [*]\n%r = step.floor %s : [*]\n step.return %r",
    )
    x = np.array([0.5, 1.0, 2.0, -3.0, 7.25], "f4")
    arrays = {"param": x, "grad": np.zeros(5, "f4")}
    bounds = interpret(path, arrays, mode="bound")
    assert list(bounds["jumps"]) == [5, 3]
    assert list(bounds["param:high"] - bounds["param:low"]) == [0, 1, 1, 1, 0]
