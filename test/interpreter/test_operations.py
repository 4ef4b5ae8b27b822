# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each operation of the dialect against numpy, to the bit."""

import numpy as np
import oracle
import pytest
import torch
from oracle import assert_same, interpret, special_pairs, special_values, write_definition

DTYPES = [np.float32, np.float64]


def sign(x):
    return np.where(x > 0, x.dtype.type(1), np.where(x < 0, x.dtype.type(-1), x))


def maximum(x, y):
    larger = np.where(x == y, np.where(np.signbit(x), y, x), np.where(x > y, x, y))
    return np.where(np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), larger)


def minimum(x, y):
    return -maximum(-x, -y)


UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "sign": sign, "floor": np.floor,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "maximum": maximum, "minimum": minimum,
}  # fmt: skip
COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(tmp_path, name, dtype):
    _, x = special_pairs(dtype)
    path = write_definition(tmp_path, f"%r = step.{name} %g : [*]\n step.return %r")
    assert_same(interpret(path, {"param": x, "grad": x})["param"], UNARY[name](x), name)


def nearest(x, to):
    """By torch; f64 by f32."""
    narrow = getattr(torch, {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[to])
    return torch.from_numpy(x.astype(np.float32)).to(narrow).float().numpy().astype(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("to", ["bf16", "f16", "f32"])
def test_round(tmp_path, to, dtype):
    _, x = special_pairs(dtype)
    # Halves of the last place that stays, to either side of the even one, and a hair beside.
    ulp = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23}[to]
    ties = 1 + ulp * (np.arange(8) + 0.5)
    hair = ulp * 2.0**-8
    x = np.concatenate([x.reshape(-1), ties, ties - hair, ties + hair, [65519.99, 65520, 3.39e38]])
    x = x.astype(dtype)
    path = write_definition(tmp_path, f"%r = step.round %g to {to} : [*]\n step.return %r")
    arrays = {"param": x, "grad": x}
    rounded = interpret(path, arrays)["param"]
    assert_same(rounded, nearest(x, to), to)
    bounds = interpret(path, arrays, mode="bound")
    low, high = bounds["param:low"], bounds["param:high"]
    known = ~np.isnan(rounded)
    assert ((low <= rounded) & (rounded <= high))[known].all()
    assert (low == high)[known].all()


def test_neg_and_abs_touch_the_sign_of_zero_only_as_they_say(tmp_path):
    x = np.array([0.0, -0.0], dtype=np.float32)
    neg = write_definition(tmp_path, "%r = step.neg %g : [*]\n step.return %r")
    assert list(np.signbit(interpret(neg, {"param": x, "grad": x})["param"])) == [True, False]
    abs_ = write_definition(tmp_path, "%r = step.abs %g : [*]\n step.return %r")
    assert list(np.signbit(interpret(abs_, {"param": x, "grad": x})["param"])) == [False, False]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(tmp_path, name, dtype):
    x, y = special_pairs(dtype)
    path = write_definition(tmp_path, f"%r = step.{name} %p, %g : [*]\n step.return %r")
    assert_same(interpret(path, {"param": x, "grad": y})["param"], BINARY[name](x, y), name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_rounds_a_scalar_once_to_the_compute_type(tmp_path, name, dtype):
    x = special_values(dtype)
    path = write_definition(
        tmp_path,
        f"%r = step.{name} %s, %g : f64, [*]\n step.return %r",
        globals_='%s = step.hyper "s" = 0.0',
    )
    # 0.1; halfway between floats, and just above; too large and too small for one.
    for scalar in [0.1, 1 + 2**-24, 1 + 2**-24 + 2**-50, 1e300, 1e-300, -1e-42, float("inf"), -0.0]:
        result = interpret(path, {"param": x, "grad": x}, hypers={"s": json_number(scalar)})
        expected = BINARY[name](np.full_like(x, dtype(scalar)), x)
        assert_same(result["param"], expected, f"{name} {scalar}")


def json_number(value):
    return value if np.isfinite(value) else str(value)


def lerp(start, end, weight):
    """As torch.lerp: three rounded operations, from the end that is nearer."""
    difference = end - start
    return np.where(
        weight < 0.5,
        start + weight * difference,
        end + (weight - weight.dtype.type(1)) * difference,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_ends_of_a_lerp_are_exact(tmp_path, dtype):
    x, y = special_pairs(dtype)
    path = write_definition(
        tmp_path,
        "%r = step.lerp %p, %g, %w : [*], [*], f64\n step.return %r",
        globals_='%w = step.hyper "w" = 0.0',
    )
    numbers = np.isfinite(x) & np.isfinite(y) & np.isfinite(y - x)
    for weight, end in ((0.0, x), (1.0, y)):
        result = interpret(path, {"param": x, "grad": y}, hypers={"w": weight})["param"]
        assert np.array_equal(result[numbers], end[numbers])


@pytest.mark.parametrize("dtype", DTYPES)
def test_lerp_is_three_rounded_operations(tmp_path, dtype):
    x, y = special_pairs(dtype)
    weight = np.random.default_rng(3).permutation(x)
    path = write_definition(
        tmp_path,
        "%r = step.lerp %p, %g, %w : [*]\n step.return %r, %w",
        '%p: param[*], %g: grad[*], %w: state "w"[*]',
    )
    result = interpret(path, {"param": x, "grad": y, "w": weight}, fresh=False)
    assert_same(result["param"], lerp(x, y, weight))
    assert_same(result["w"], weight)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lerp_of_scalars_beside_a_tensor_works_in_the_compute_type(tmp_path, dtype):
    x = special_values(dtype)
    path = write_definition(
        tmp_path,
        "%r = step.lerp %a, %b, %g : f64, f64, [*]\n step.return %r",
        globals_='%a = step.hyper "a" = 0.1\n%b = step.hyper "b" = 0.7',
    )
    a, b = dtype(0.1), dtype(0.7)
    assert_same(interpret(path, {"param": x, "grad": x})["param"], lerp(a, b, x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COMPARISONS)
def test_compare_and_select_by_a_mask(tmp_path, name, dtype):
    x, y = special_pairs(dtype)
    path = write_definition(
        tmp_path,
        f"%m = step.compare {name}, %p, %g : [*]\n"
        "%r = step.select %m, %p, %s : mask[*], [*], f64\n step.return %r",
        globals_='%s = step.hyper "s" = 0.1',
    )
    expected = np.where(COMPARISONS[name](x, y), x, dtype(0.1))
    assert_same(interpret(path, {"param": x, "grad": y})["param"], expected, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compare_rounds_its_scalar(tmp_path, dtype):
    # As f64, 0.1 is between two floats; as a float it equals the element.
    x = np.array([dtype(0.1)])
    path = write_definition(
        tmp_path,
        "%m = step.compare eq, %g, %s : [*], f64\n"
        "%r = step.select %m, %g, %zero : mask[*], [*], f64\n step.return %r",
        globals_='%s = step.hyper "s" = 0.1\n%zero = step.constant 0.0',
    )
    assert_same(interpret(path, {"param": x, "grad": x})["param"], x)


SCALARS = [0.0, -0.0, 0.1, -3.5, 1e300, 5e-324, float("inf"), float("nan"), 1 + 2**-40]


def run_scalars(tmp_path, expression, values):
    """`expression` makes %r of the hyper-parameters %a, %b, %c: an f64 for each triple."""
    path = write_definition(
        tmp_path,
        f"{expression}\n%yes = step.constant true\n"
        "%t = step.select %yes, %r, %g : f64, [*]\n step.return %t",
        globals_="\n".join(f'%{n} = step.hyper "{n}" = 0.0' for n in "abc"),
    )
    batch = oracle.Batch()
    one = np.zeros(1)
    for triple in values:
        hypers = dict(zip("abc", map(json_number, triple), strict=True))
        batch.add(path, {"param": one, "grad": one}, hypers=hypers)
    return np.array([result["param"][0] for result in batch.run()])


@pytest.mark.parametrize("name", BINARY)
def test_scalars_are_f64(tmp_path, name):
    triples = [(a, b, 0.0) for a in SCALARS for b in SCALARS]
    x, y, _ = (np.array(column) for column in zip(*triples, strict=True))
    assert_same(
        run_scalars(tmp_path, f"%r = step.{name} %a, %b : f64", triples), BINARY[name](x, y)
    )


@pytest.mark.parametrize("name", UNARY)
def test_unary_of_scalars(tmp_path, name):
    triples = [(a, 0.0, 0.0) for a in SCALARS]
    x = np.array(SCALARS)
    assert_same(run_scalars(tmp_path, f"%r = step.{name} %a : f64", triples), UNARY[name](x))


def test_lerp_and_select_of_scalars(tmp_path):
    triples = [(a, b, c) for a in SCALARS for b in SCALARS for c in SCALARS]
    x, y, z = (np.array(column) for column in zip(*triples, strict=True))
    assert_same(run_scalars(tmp_path, "%r = step.lerp %a, %b, %c : f64", triples), lerp(x, y, z))
    text = "%m = step.compare lt, %a, %b : f64\n%r = step.select %m, %c, %b : f64"
    assert_same(run_scalars(tmp_path, text, triples), np.where(x < y, z, y))


def powi(base, exponent):
    """As the description of step.powi, with numpy's doubles."""
    result, factor, n = np.float64(1), np.float64(base), abs(exponent)
    while n:
        if n & 1:
            result = result * factor
        factor = factor * factor
        n >>= 1
    return np.float64(1) / result if exponent < 0 else result


@pytest.mark.parametrize(
    "exponent", [0, 1, 2, 3, 7, 1000, 2**40 + 12345, -1, -5, 2**63 - 1, -(2**63)]
)
def test_powi(tmp_path, exponent):
    path = write_definition(
        tmp_path,
        "%r = step.powi %b, %t\n%yes = step.constant true\n"
        "%x = step.select %yes, %r, %g : f64, [*]\n step.return %x",
        "%p: param[*], %g: grad[*], %t: count",
        '%b = step.hyper "b" = 0.0',
    )
    batch, one = oracle.Batch(), np.zeros(1)
    bases = [0.9, 0.999, 1.0, -1.0, 1 - 2**-45, 2.0, 0.0, -0.5, 1e-3]
    for base in bases:
        batch.add(path, {"param": one, "grad": one}, hypers={"b": base}, count=exponent)
    results = [result["param"][0] for result in batch.run()]
    assert_same(np.array(results), np.array([powi(base, exponent) for base in bases]))


def test_powi_is_close_to_the_power():
    assert powi(0.999, 1000) == pytest.approx(0.999**1000, rel=1e-13)


# --- Shapes -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 6), (1, 6), (4, 1), (0, 6), (1, 1)])
def test_broadcasting_of_dims_of_one(tmp_path, shape):
    rng = np.random.default_rng(1)
    n, m = shape
    arrays = {
        "param": rng.standard_normal((n, m)).astype("f4"),
        "grad": rng.standard_normal((n, m)).astype("f4"),
        "row": rng.standard_normal((n, 1)).astype("f4"),
        "column": rng.standard_normal((1, m)).astype("f4"),
    }
    path = write_definition(
        tmp_path,
        "%outer = step.mul %r, %c : [n, 1], [1, m]\n"
        "%p1 = step.lerp %p, %outer, %r : [n, m], [n, m], [n, 1]\n"
        "%mask = step.compare lt, %r, %c : [n, 1], [1, m]\n"
        "%p2 = step.select %mask, %c, %p1 : mask[n, m], [1, m], [n, m]\n"
        "%half = step.mul %r, %s : [n, 1], f64\n"
        "step.return %p2, %half, %c : [n, m], [n, 1], [1, m]",
        '%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1], %c: state "column"[1, m]',
        '%s = step.hyper "s" = 0.5',
    )
    result = interpret(path, arrays, fresh=False)
    p, r, c = arrays["param"], arrays["row"], arrays["column"]
    expected = np.where(r < c, np.broadcast_to(c, p.shape), lerp(p, r * c, r))
    assert_same(result["param"], expected)
    assert_same(result["row"], r * np.float32(0.5))
    assert_same(result["column"], c)


def test_one_element_broadcasts_to_any_rank(tmp_path):
    path = write_definition(
        tmp_path,
        "%p1 = step.mul %g, %s : [*], [1]\n step.return %p1, %s : [*], [1]",
        '%p: param[*], %g: grad[*], %s: state "s"[1]',
    )
    for shape in [(), (1,), (5,), (2, 3, 4), (0,)]:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + np.float32(0.1)
        arrays = {"param": x, "grad": x, "s": np.array([3.0], dtype=np.float32)}
        assert_same(interpret(path, arrays)["param"], x * np.float32(3))


def test_select_by_a_scalar_broadcasts_what_it_takes(tmp_path):
    path = write_definition(
        tmp_path,
        "%p1 = step.select %o, %r, %g : [n, 1], [n, m]\n step.return %p1, %r : [n, m], [n, 1]",
        '%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]',
        '%o = step.option "o" = true',
    )
    g, row = np.ones((3, 4), dtype="f4"), np.arange(3, dtype="f4").reshape(3, 1)
    arrays = {"param": g, "grad": g, "row": row}
    assert_same(interpret(path, arrays)["param"], np.broadcast_to(row, (3, 4)))
    assert_same(interpret(path, arrays, options={"o": False})["param"], g)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 3, 4, 5)])
def test_any_rank(tmp_path, shape):
    x = np.random.default_rng(5).standard_normal(shape).astype("f4")
    path = write_definition(tmp_path, "%r = step.add %p, %g : [*]\n step.return %r")
    assert_same(interpret(path, {"param": x, "grad": x})["param"], x + x)
