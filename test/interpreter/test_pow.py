# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""step.pow: the error that its description states, special operands, and that
compiled code has the interpreter's bits."""

import decimal

import numpy as np
import oracle
import pytest
from oracle import write_definition

SPECIAL = [
    0.0, 5e-324, 2.0**-1022, 0.5, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.5, 2.0, 3.0, 1e300,
    2.0**51 + 0.5, 2.0**52 + 1, 2.0**53 - 1, 2.0**53, 2.0**64, float("inf"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def run(folder, x, y, how="--interpret"):
    """x^y of each pair."""
    path = write_definition(
        folder,
        "%r = step.pow %x, %y\n%yes = step.constant true\n"
        "%p1 = step.select %yes, %r, %g : f64, [*]\n step.return %p1",
        globals_='%x = step.hyper "x" = 0.0\n%y = step.hyper "y" = 0.0',
    )
    batch, one = oracle.Batch(), np.zeros(1)
    for pair in zip(x, y, strict=True):
        hypers = {
            n: float(v) if np.isfinite(v) else str(v) for n, v in zip("xy", pair, strict=True)
        }
        batch.add(path, {"param": one, "grad": one}, hypers=hypers)
    return np.array([result["param"][0] for result in batch.run(how)])


def units_off(x, y, power):
    """How far `power` is from x^y, in units in its last place, in decimal."""
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -99999, 99999
        exact = (decimal.Decimal(y) * decimal.Decimal(x).ln()).exp()
        difference = abs(exact - decimal.Decimal(power))
        return float(difference / decimal.Decimal(float(np.spacing(power))))


def random_pairs(count, limits, seed):
    """Pairs whose powers are 2 to what is uniform between the limits."""
    rng = np.random.default_rng(seed)
    near_one = 1 + rng.standard_normal(count // 2) * 2.0 ** rng.uniform(-52, -1, count // 2)
    far = 2.0 ** rng.uniform(-1074, 1024, count - count // 2)
    x = np.abs(np.concatenate([near_one, far]))
    x = np.where(x == 1, 3.0, x)
    return x, rng.uniform(*limits, count) / np.log2(x)


def test_error(tmp_path):
    x, y = random_pairs(2000, (-1021, 1023), 1)
    worst = max(map(units_off, x, y, run(tmp_path, x, y)))
    assert 0.4 < worst < 0.51


def test_error_of_denormal_results(tmp_path):
    x, y = random_pairs(500, (-1074, -1022.1), 2)
    assert max(map(units_off, x, y, run(tmp_path, x, y))) < 0.76


@pytest.mark.parametrize("rate", [-0.8, -0.5, 0.3])
def test_powers_of_counts(tmp_path, rate):
    count = np.concatenate([np.arange(2.0, 300.0), 10.0 ** np.arange(3, 15)])
    powers = run(tmp_path, count, np.full(count.size, rate))
    assert max(map(units_off, count, np.full(count.size, rate), powers)) < 0.51


def special_pairs():
    values = [*SPECIAL, *(-v for v in SPECIAL), float("nan")]
    return [side.ravel() for side in np.meshgrid(values, values)]


def test_special_operands_as_ieee(tmp_path):
    """numpy's pow is the C library's, whose special operands are those of IEEE 754."""
    x, y = special_pairs()
    actual, expected = run(tmp_path, x, y), np.power(x, y)
    np.testing.assert_array_max_ulp(actual, expected, maxulp=1)
    exact = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(actual[exact], expected[exact])
    np.testing.assert_array_equal(
        np.signbit(actual) & ~np.isnan(actual), np.signbit(expected) & ~np.isnan(expected)
    )


def test_compiled_code_has_the_same_bits(tmp_path):
    x, y = random_pairs(500, (-1080, 1030), 3)
    special_x, special_y = special_pairs()
    finite = np.isfinite(special_x) & np.isfinite(special_y)
    count = np.arange(1.0, 100.0)
    x = np.concatenate([x, special_x[finite], count])
    y = np.concatenate([y, special_y[finite], np.full(count.size, -0.8)])
    oracle.assert_same(run(tmp_path, x, y, "--compare"), run(tmp_path, x, y))


def test_to_f64(tmp_path):
    path = write_definition(
        tmp_path,
        "%r = step.to_f64 %t\n%yes = step.constant true\n"
        "%p1 = step.select %yes, %r, %g : f64, [*]\n step.return %p1",
        "%p: param[*], %g: grad[*], %t: count",
    )
    batch, one = oracle.Batch(), np.zeros(1)
    counts = [0, 1, 7, -3, 2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63)]
    for count in counts:
        batch.add(path, {"param": one, "grad": one}, count=count)
    results = [result["param"][0] for result in batch.run()]
    assert results == [float(count) for count in counts]
