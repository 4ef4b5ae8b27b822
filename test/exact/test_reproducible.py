# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of packages made with --reproducible: the same bits in any order of the elements and
of the tensors, and as near to the exact sum as f64 allows."""

import math

import numpy as np
import pytest
from definitions import Definition
from oracle import assert_same, write_definition
from steps import Case, Group, Launch, Packages, Tensor

OPTIMIZER = """
%total = step.statistic "total" sum over model
step.scalars over model {
  step.report "total", %total
  step.yield
}
%one = step.statistic "one" amax over model
step.scalars over model {
  step.report "one", %one
  step.yield
}
"""
RULE = """
%all = step.sum %g : [n, m]
%row = step.mean %g over [m] : [n, m]
%col = step.sum %g over [n] : [n, m]
step.contribute %total, %all
step.contribute %one, %all
step.return %p, %row, %col : [n, m], [n, 1], [1, m]
"""
ARGUMENTS = (
    '%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1] kept, %c: state "col"[1, m] kept'
)


def wide(rng, shape, info):
    return rng.standard_normal(shape) * np.exp2(rng.integers(-60, 60, shape))


def cancelling(rng, shape, info):
    x = wide(rng, shape, info)
    half = x.size // 2
    x.ravel()[half : 2 * half] = -x.ravel()[:half]
    x.ravel()[::7] *= 1 + 2.0**-20
    return rng.permutation(x.ravel()).reshape(shape)


def large(rng, shape, info):
    return rng.standard_normal(shape) * float(info.max) / 1e5


def least(rng, shape, info):
    return rng.standard_normal(shape) * float(info.smallest_normal)


def powers(rng, shape, info):
    return np.exp2(rng.integers(-50, 1, shape)) * rng.choice([-1, 1], shape)


def zeros(rng, shape, info):
    return np.where(rng.random(shape) < 0.5, 0.0, -0.0)


def infinite(*numbers):
    def values(rng, shape, info):
        x = rng.standard_normal(shape) * float(info.max) / 4
        x.ravel()[: len(numbers)] = numbers
        return rng.permutation(x.ravel()).reshape(shape)

    return values


inf, nan = np.inf, np.nan
KINDS = {
    "wide": wide, "cancelling": cancelling, "large": large, "least": least, "powers": powers,
    "zeros": zeros, "inf": infinite(inf), "-inf": infinite(-inf), "both": infinite(inf, -inf),
    "nan": infinite(nan), "all": infinite(inf, -inf, nan),
}  # fmt: skip


@pytest.fixture(scope="module")
def definition(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    path = write_definition(folder, RULE, ARGUMENTS, OPTIMIZER)
    return lambda flags: Definition(path, flags=flags)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    return Packages(tmp_path_factory.mktemp("packages"))


def run(definition, packages, arrays):
    dtype = arrays[0].dtype
    storages = ("f32",) * 3 if dtype == np.float32 else ("f64",) * 3
    tensors = [Tensor(x.shape, storages, {"param": x, "grad": x}, 0, None, 1, True) for x in arrays]
    case = Case(definition, [Group({})], tensors, 1, threads=2)
    packages.prepare([case])
    with np.errstate(all="ignore"):
        return Launch(case, packages.get(case)).run()


def exact(values):
    """The sum, rounded once; of what is not finite as of any order."""
    values = np.asarray(values, np.float64).ravel()
    odd = values[~np.isfinite(values)]
    if odd.size:
        with np.errstate(invalid="ignore"):
            return float(odd.sum())
    shift = 20 if np.max(np.abs(values), initial=0) > 2.0**900 else 0
    with np.errstate(over="ignore"):
        return float(np.ldexp(math.fsum(np.ldexp(values, -shift)), shift))


def is_near(found, values, divisor, compute):
    wanted = exact(values) / divisor
    with np.errstate(over="ignore"):
        if not np.isfinite(compute(wanted)):
            wanted = float(compute(wanted))
    if not math.isfinite(wanted):
        return found == wanted or (math.isnan(found) and math.isnan(wanted))
    # Beside five roundings what the smallest terms leave, and that to the compute type.
    size = float(np.max(np.abs(values), initial=0)) * len(values) / divisor
    error = 2.0**-50 * abs(wanted) + 2.0**-68 * size
    if compute == np.float32:
        error += 2.0**-23 * abs(wanted) + 2.0**-149
    return abs(found - wanted) <= error + 5e-324


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_near_to_the_exact_sum_in_any_order(kind, dtype, definition, packages):
    rng, info = np.random.default_rng(len(kind)), np.finfo(dtype)
    shapes = [(70, 1100), (3, 5), (129, 33)]
    with np.errstate(over="ignore", under="ignore"):
        arrays = [KINDS[kind](rng, shape, info).astype(dtype) for shape in shapes]
    results = run(definition(["--reproducible"]), packages, arrays)
    for index, x in enumerate(arrays):
        for row, found in zip(x, results[f"t{index}/row"].ravel(), strict=True):
            assert is_near(float(found), row, len(row), dtype), f"row of {index}"
        for column, found in zip(x.T, results[f"t{index}/col"].ravel(), strict=True):
            assert is_near(float(found), column, 1, dtype), f"column of {index}"
    everything = np.concatenate([x.ravel() for x in arrays])
    assert is_near(float(results["report:total"][0]), everything, 1, np.float64)
    # Elements of each tensor in another order, and the tensors.
    others = [rng.permutation(x.ravel()).reshape(x.shape) for x in arrays[::-1]]
    again = run(definition(["--reproducible"]), packages, others)
    for name in ("report:total", "report:one"):
        assert_same(np.array(results[name]), np.array(again[name]), name)
    rows = [x[:, rng.permutation(x.shape[1])] for x in arrays]
    again = run(definition(["--reproducible"]), packages, rows)
    for index in range(len(arrays)):
        assert_same(results[f"t{index}/row"], again[f"t{index}/row"])
    columns = [x[rng.permutation(x.shape[0])] for x in arrays]
    again = run(definition(["--reproducible"]), packages, columns)
    for index in range(len(arrays)):
        assert_same(results[f"t{index}/col"], again[f"t{index}/col"])


def test_without_the_option_the_order_counts(definition, packages):
    rng = np.random.default_rng(0)
    x = wide(rng, (70, 1100), None)
    results = run(definition([]), packages, [x])
    again = run(definition([]), packages, [rng.permutation(x.ravel()).reshape(x.shape)])
    assert results["report:one"] != again["report:one"]


def test_nothing_is_zero(definition, packages):
    """Of no elements and of tensors that have none."""
    results = run(definition(["--reproducible"]), packages, [np.zeros((0, 3), np.float32)])
    assert results["report:total"] == 0 and results["t0/col"].tolist() == [[0, 0, 0]]
    assert not np.signbit(results["t0/col"]).any()
