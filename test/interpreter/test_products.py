# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products, transposes and extents of the interpreter, beside numpy.

An element of a product is one chain of fma for each leaf of 512 numbers, and leaves are added
in f64.
"""

from fractions import Fraction

import numpy as np
import pytest
from chains import LEAF, normal, product
from fused import fma32, fma64
from oracle import Batch, assert_same, interpret, special_values, write_definition

DTYPES = [np.float32, np.float64]


def times(folder, batch=""):
    """A definition whose state becomes the gradient times a given state."""
    return write_definition(
        folder,
        f"%q = step.matmul %g, %r : [{batch}n, m], [{batch}m, n]\n"
        f"step.return %p, %q, %r : [{batch}n, m], [{batch}n, n], [{batch}m, n]",
        f'%p: param[{batch}n, m], %g: grad[{batch}n, m], %l: state "l"[{batch}n, n], '
        f'%r: state "r"[{batch}m, n]',
    )


def add_product(batch, path, lhs, rhs, **settings):
    square = np.zeros((*lhs.shape[:-1], lhs.shape[-2]), lhs.dtype)
    batch.add(path, {"param": lhs, "grad": lhs, "l": square, "r": rhs}, **settings)


# --- Products -----------------------------------------------------------------


def test_the_order_that_is_written_out_is_an_order():
    # Or what follows would say little.
    x, y = normal((3, 1300), seed=1), normal((1300, 3), seed=2)
    mine = product(x, y, fma32)
    assert (mine != x @ y).any()
    twice = product(x, y, lambda a, b, c: a * b + c)
    assert (mine != twice).any(), "an fma is another thing than two roundings"
    sums = [x[:, a : a + LEAF].astype("f8") @ y[a : a + LEAF].astype("f8") for a in (0, 512, 1024)]
    np.testing.assert_allclose(mine, sum(sums), rtol=1e-2)


def test_the_fma_of_f32_is_that_of_fractions():
    rng = np.random.default_rng(3)
    x, y, z = (normal(4000, seed=seed) for seed in (1, 2, 3))
    # Sums that cancel, and ties.
    z[:1000] = (-x[:1000] * y[:1000]).astype(np.float32)
    x[1000:2000] = np.float32(1) + np.float32(2**-23) * rng.integers(0, 4, 1000)
    y[1000:2000] = np.float32(2.0**-24)
    z[1000:2000] = np.float32(1) + np.float32(2**-23) * rng.integers(0, 4, 1000)

    def nearest(exact):
        """By integers: the double nearest to an f32's tie is not what decides it."""
        guess = np.float32(float(exact))
        around = [np.nextafter(guess, np.float32(e)) for e in (-np.inf, np.inf)]
        return min([guess, *around], key=lambda v: (abs(Fraction(float(v)) - exact),
                                                    int(v.view(np.int32)) & 1))  # fmt: skip

    def exact(a, b, c):
        return Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))

    expected = [nearest(exact(*numbers)) for numbers in zip(x, y, z, strict=True)]
    assert_same(fma32(x, y, z) + np.float32(0), np.array(expected, np.float32) + np.float32(0))


def test_the_fma_of_f64_is_that_of_fractions():
    rng = np.random.default_rng(4)
    x, y, z = (normal(4000, np.float64, seed) for seed in (1, 2, 3))
    # Sums that cancel, ties, results and products that underflow or overflow, and zeros.
    z[:500] = -x[:500] * y[:500]
    x[500:1500] = 1 + 2.0**-52 * rng.integers(0, 4, 1000)
    y[500:1500] = 2.0**-53 * rng.choice([-1, 1], 1000)
    z[500:1500] = 1 + 2.0**-52 * rng.integers(0, 4, 1000)
    # A hair beside a tie, that a sum of what the first two lack would round away.
    x[1400:1500], y[1400:1500] = 1 + 2.0**-30, 2.0**-53 * (1 - 2.0**-30)
    for numbers in (x, y):
        numbers[1500:2500] *= 2.0 ** rng.integers(-560, 560, 1000)
    z[1500:2500] *= 2.0 ** rng.integers(-1060, 1000, 1000)
    x[1500:1700], y[1500:1700] = (normal(200, np.float64, k) * 2.0**-530 for k in (5, 6))
    z[1500:1700] = normal(200, np.float64, 7) * 2.0**-1060 * rng.integers(0, 2, 200)
    x[2500:2510], y[2505:2515], z[2500:2515:2] = 0.0, -0.0, -0.0

    def nearest(a, b, c):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            return float(exact) if exact else a * b + c
        except OverflowError:
            return np.inf if exact > 0 else -np.inf

    expected = np.array([nearest(*numbers) for numbers in zip(x, y, z, strict=True)])
    assert np.isinf(expected).any() and (abs(expected[expected != 0]) < 2.0**-1022).any()
    assert_same(fma64(x, y, z), expected)
    # Beside an infinity a product that overflows is nothing.
    odd = fma64(*np.array([[1e200, 1e200, -np.inf], [np.inf, 0.0, 1.0], [np.nan, 1.0, 1.0]]).T)
    assert_same(odd, np.array([-np.inf, np.nan, np.nan]))


DEPTHS = [0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 1537]


def test_leaves_of_f32(tmp_path):
    path, batch, cases = times(tmp_path), Batch(), []
    for depth in DEPTHS:
        for rows in (1, 3):
            cases.append((normal((rows, depth), seed=depth), normal((depth, rows), seed=1)))
            add_product(batch, path, *cases[-1])
    for (lhs, rhs), result in zip(cases, batch.run(), strict=True):
        assert_same(result["l"], product(lhs, rhs, fma32), f"{lhs.shape}")


def test_leaves_of_f64(tmp_path):
    path, batch, cases = times(tmp_path), Batch(), []
    for depth in (0, 1, 3, 511, 512, 513, 1025):
        lhs, rhs = normal((2, depth), np.float64, depth), normal((depth, 2), np.float64, 9)
        cases.append((lhs, rhs))
        add_product(batch, path, lhs, rhs, state="f64")
    for (lhs, rhs), result in zip(cases, batch.run(), strict=True):
        assert_same(result["l"], product(lhs, rhs, fma64), f"{lhs.shape}")


def test_no_rows_and_no_columns(tmp_path):
    path, batch = times(tmp_path), Batch()
    for rows, depth in [(0, 3), (0, 0), (2, 0)]:
        add_product(batch, path, np.ones((rows, depth), "f4"), np.ones((depth, rows), "f4"))
    for result, rows in zip(batch.run(), (0, 0, 2), strict=True):
        # +0.0 where there is nothing to add.
        assert_same(result["l"], np.zeros((rows, rows), "f4"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values(tmp_path, dtype):
    """Each by each, alone and with a number before and after it."""
    values = special_values(dtype)
    storage = "f32" if dtype == np.float32 else "f64"
    path, batch, cases = times(tmp_path), Batch(), []
    for extra in (0, 1, LEAF):
        lhs = np.zeros((len(values), 2 * extra + 1), dtype)
        rhs = np.zeros((2 * extra + 1, len(values)), dtype)
        lhs[:, extra], rhs[extra] = values, values
        if extra == 1:
            lhs[:, 0], rhs[2] = dtype(-0.0), dtype(-1.0)
        cases.append(extra)
        add_product(batch, path, lhs, rhs, state=storage)
    for extra, result in zip(cases, batch.run(), strict=True):
        with np.errstate(all="ignore"):
            # One number that is not 0: the product is all that is rounded.
            x, y = np.broadcast_arrays(values[:, None], values[None, :])
            rounded = x * y
        # A 0 is added to, which is +0.0; what is too small for a number keeps its sign,
        # but where +0.0 comes after it.
        is_zero = (x == 0) | (y == 0) if extra < 2 else rounded == 0
        expected = np.where(is_zero, rounded + dtype(0), rounded)
        assert_same(result["l"], expected, f"{extra} before and after")
        assert np.signbit(expected[expected == 0]).any() == (extra < 2)
    assert np.isinf(expected).any() and np.isnan(expected).any()


def test_what_overflows_on_its_way_stays_so(tmp_path):
    big = np.float32(3e38)
    lhs = np.array([[big, big, -big], [big, -big, big]], "f4")
    path, batch = times(tmp_path), Batch()
    rhs = np.array([[1, 1], [1, 1], [1, 1]], "f4")
    add_product(batch, path, lhs, rhs)
    # Of other leaves it is a sum in f64, which does not.
    far = np.zeros((2, 2 * LEAF + 1), "f4")
    far[:, [0, LEAF, 2 * LEAF]] = lhs
    add_product(batch, path, far, np.ones((far.shape[1], 2), "f4"))
    near, leaves = batch.run()
    assert_same(near["l"], np.array([[np.inf, np.inf], [big, big]], "f4"))
    assert_same(leaves["l"], np.full((2, 2), big, "f4"))


def test_subnormal_sums(tmp_path):
    tiny = np.float32(2.0**-149)
    lhs = np.array([[1, 3, -1, 5]], "f4") * tiny
    path, batch = times(tmp_path), Batch()
    rhs = np.array([[0.5], [0.5], [0.75], [1]], "f4")
    add_product(batch, path, lhs, rhs)
    # Each sum is rounded: 0.5 to 0, 1.5 to 2, 1.25 to 1, 6.
    assert_same(batch.run()[0]["l"], np.array([[6]], "f4") * tiny)


@pytest.mark.parametrize(
    ("dims", "shape"), [("k, ", (3, 2, 5)), ("...b, ", (2, 3, 2, 5)), ("...b, ", (4, 5))]
)
def test_batches_are_matrices_side_by_side(tmp_path, dims, shape):
    path, batch = times(tmp_path, dims), Batch()
    lhs, rhs = normal(shape, seed=1), normal((*shape[:-2], shape[-1], shape[-2]), seed=2)
    add_product(batch, path, lhs, rhs)
    assert_same(batch.run()[0]["l"], product(lhs, rhs, fma32))


def test_products_are_of_the_compute_type_whatever_is_stored(tmp_path):
    path, batch = times(tmp_path), Batch()
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in [(20, 40), (40, 20)])
    add_product(batch, path, x, y, state="f16")
    expected = product(x.astype("f4"), y.astype("f4"), fma32).astype(np.float16)
    assert_same(batch.run()[0]["l"], expected)
    chain = product(x, y, lambda a, b, c: a * b + c)
    assert (expected != chain).any()


# --- Transposes and extents ---------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "turned", "shape"),
    [
        ("n, m", "m, n", (3, 5)), ("n, m", "m, n", (0, 5)), ("n, n", "n, n", (4, 4)),
        ("1, m", "m, 1", (1, 5)), ("k, n, m", "k, m, n", (2, 3, 5)),
        ("...b, n, m", "...b, m, n", (2, 2, 3, 5)), ("...b, n, m", "...b, m, n", (3, 5)),
    ],
)  # fmt: skip
def test_transposes(tmp_path, dims, turned, shape):
    path = write_definition(
        tmp_path,
        f"%q = step.transpose %g : [{dims}]\nstep.return %p, %q : [{dims}], [{turned}]",
        f'%p: param[{dims}], %g: grad[{dims}], %t: state "t"[{turned}]',
    )
    x = normal(shape)
    expected = np.swapaxes(x, -1, -2).copy()
    result = interpret(path, {"param": x, "grad": x, "t": np.zeros_like(expected)})
    assert_same(result["t"], expected)


@pytest.mark.parametrize(
    ("dims", "asked", "shape", "extent"),
    [
        ("n, m", "n", (3, 5), 3), ("n, m", "m", (3, 5), 5), ("n, m", "n", (0, 5), 0),
        ("n, n", "n", (4, 4), 4), ("...b, n, m", "...b", (2, 3, 4, 5), 6),
        ("...b, n, m", "...b", (4, 5), 1), ("...b, n, m", "n", (2, 3, 4, 5), 4),
        ("*", "*", (2, 3, 4), 24), ("*", "*", (), 1),
    ],
)  # fmt: skip
def test_extents(tmp_path, dims, asked, shape, extent):
    path = write_definition(
        tmp_path,
        f"%n = step.extent {asked}\n%p1 = step.mul %g, %n : [{dims}], f64\n"
        f"step.return %p1 : [{dims}]",
        f"%p: param[{dims}], %g: grad[{dims}]",
    )
    x = normal(shape)
    assert_same(interpret(path, {"param": x, "grad": x})["param"], x * np.float32(extent))


@pytest.mark.parametrize(("predicate", "holds"), [("le", "nm n"), ("gt", "m"), ("eq", "n")])
def test_conditions_of_two_extents(tmp_path, predicate, holds):
    path = tmp_path / "definition.mlir"
    path.write_text(
        f"""step.optimizer @example {{
  %one = step.constant 1.0
  %two = step.constant 2.0
  step.rule @first(%p: param[n, m], %g: grad[n, m]) where extent 0 {predicate} extent -1 {{
    %p1 = step.mul %g, %one : [n, m], f64
    step.return %p1 : [n, m]
  }}
  step.rule @second(%p: param[*], %g: grad[*]) {{
    %p1 = step.mul %g, %two : [*], f64
    step.return %p1
  }}
}}
"""
    )
    shapes = {"nm": (2, 3), "n": (3, 3), "m": (4, 3)}
    for name, shape in shapes.items():
        x = normal(shape)
        result = interpret(path, {"param": x, "grad": x})["param"]
        assert_same(result, x * np.float32(1 if name in holds.split() else 2), name)
    # There is no last but one of a vector, and no first of a number.
    for shape in [(5,), ()]:
        x = normal(shape)
        path.write_text(path.read_text().replace("extent 0", "extent -2"))
        assert_same(interpret(path, {"param": x, "grad": x})["param"], x * np.float32(2))


# --- Bound mode ---------------------------------------------------------------

CHAIN = """%h = step.constant 0.1
%a = step.mul %g, %h : [n, m], f64
%at = step.transpose %a : [n, m]
%aa = step.matmul %a, %at : [n, m], [m, n]
%u = step.matmul %aa, %a : [n, n], [n, m]
step.return %u, %aa : [n, m], [n, n]"""
ROLES = '%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n]'


@pytest.mark.parametrize("depth", [700, 6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_of_factors_of_bf16(tmp_path, dtype, depth):
    """They hold what the exact mode has, of numbers whose sums are flushed too; and little more
    than what numbers of 8 bits may be."""
    path = write_definition(
        tmp_path,
        "%q = step.matmul %g, %r {factors = bf16} : [n, m], [m, n]\n"
        "step.return %p, %q, %r : [n, m], [n, n], [m, n]",
        '%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n], %r: state "r"[m, n]',
    )
    x, y = normal((4, depth), seed=3).astype(dtype), normal((depth, 4), seed=4).astype(dtype)
    if depth == 6:  # a sum of which is about 2^-126: numbers of bf16 in [1, 2) times 2^-64
        x, y = (np.sign(z) * (1 + np.floor(np.abs(z) % 1 * 128) / 128) * 2.0**-64 for z in (x, y))
        x, y = x.astype(dtype), y.astype(dtype)
    batch = Batch()
    add_product(batch, path, x, y)
    add_product(batch, path, x, y, mode="bound")
    exact, bounds = batch.run()
    low, high = bounds["l:low"], bounds["l:high"]
    assert ((low <= exact["l"]) & (exact["l"] <= high)).all()
    assert (high - low < 1e-3 * np.abs(x) @ np.abs(y) + 2.0**-116).all()
    true = x.astype("f8") @ y.astype("f8")
    if depth == 6:  # roundings alone would not explain it
        roundings = (depth + 2) * (2.0**-23 * np.abs(x) @ np.abs(y) + 2.0**-149)
        assert (np.abs(exact["l"] - true) > roundings).any()
    assert (exact["l"] != true).any()
    assert (np.abs(exact["l"] - true) < 2.0**-7 * np.abs(x) @ np.abs(y) + 2.0**-116).all()


@pytest.mark.parametrize("mode", ["exact", "f64"])
def test_lower_halves_for_the_whole(tmp_path, mode):
    path = write_definition(
        tmp_path,
        "%q = step.matmul %g, %r {symmetric} : [b, n, m], [b, m, n]\n"
        "step.return %p, %q, %r : [b, n, m], [b, n, n], [b, m, n]",
        '%p: param[b, n, m], %g: grad[b, n, m], %l: state "l"[b, n, n], %r: state "r"[b, m, n]',
    )
    x, y = normal((2, 4, 7), seed=1), normal((2, 7, 4), seed=2)
    batch = Batch()
    (tmp_path / "whole").mkdir()
    add_product(batch, times(tmp_path / "whole", "b, "), x, y, mode=mode)
    add_product(batch, path, x, y, mode=mode)
    add_product(batch, path, x, y, mode="bound")
    whole, half, bounds = batch.run()
    lower = np.tril(whole["l"])
    assert_same(half["l"], lower + np.tril(lower, -1).transpose(0, 2, 1))
    assert (np.triu(half["l"]) != np.triu(whole["l"])).any()
    assert ((bounds["l:low"] <= half["l"]) & (half["l"] <= bounds["l:high"])).all()


@pytest.mark.parametrize("mode", ["exact", "f64"])
@pytest.mark.parametrize("depth", [0, 1, 40, 513])
def test_bounds_hold_what_is_computed(tmp_path, depth, mode):
    path = write_definition(tmp_path, CHAIN, ROLES)
    x = normal((3, depth), seed=depth)
    arrays = {"param": x, "grad": x, "l": np.zeros((3, 3), "f4")}
    bounds = interpret(path, arrays, mode="bound")
    result = interpret(path, arrays, mode=mode)
    for name in ("param", "l"):
        low, high = bounds[f"{name}:low"], bounds[f"{name}:high"]
        assert ((low <= result[name]) & (result[name] <= high)).all(), name
        if depth > 1:
            # They say something.
            size = np.abs(result[name]).max()
            assert (high - low).max() < 0.05 * size and (high > low).all(), name


def test_bounds_hold_other_orders(tmp_path):
    """Numpy's product, in its order, is within them; a number that is wrong is not."""
    path, batch = times(tmp_path), Batch()
    x, y = normal((3, 700), seed=1), normal((700, 3), seed=2)
    add_product(batch, path, x, y, mode="bound")
    bounds = batch.run()[0]
    low, high = bounds["l:low"], bounds["l:high"]
    for other in (x @ y, x[:, ::-1] @ y[::-1], np.einsum("ik,kj->ij", x, y)):
        assert ((low <= other) & (other <= high)).all()
    exact = x.astype("f8") @ y.astype("f8")
    size = np.abs(x).astype("f8") @ np.abs(y).astype("f8")
    assert ((low <= exact) & (exact <= high)).all()
    assert (exact + size * 1e-3 > high).all() and (exact - size * 1e-3 < low).all()


def test_bounds_of_infinity_and_nan(tmp_path):
    path, batch = times(tmp_path), Batch()
    x = np.array([[1, np.inf], [1, np.nan], [1, 2], [3e38, 3e38]], "f4")
    y = np.array([[1, 1, 1, 1], [1, 1, 1, 1]], "f4")
    for mode in ("exact", "bound"):
        add_product(batch, path, x, y, mode=mode)
    result, bounds = batch.run()
    low, high, actual = bounds["l:low"], bounds["l:high"], result["l"]
    is_nan = np.isnan(actual)
    assert ((low <= actual) & (actual <= high))[~is_nan].all()
    assert is_nan[1].all() and not is_nan[[0, 2, 3]].any()
