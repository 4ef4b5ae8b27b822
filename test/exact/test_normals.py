# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normal random numbers, interpreted: beside the generator in numpy and the quantile of mpmath,
and beside the distribution. That compiled ones have the same bits is in test_decompositions."""

import mpmath
import numpy as np
import pytest
from oracle import Batch, assert_same, write_definition
from philox import normal_parts

MOST = 8.21


def quantile(k):
    """With 40 digits."""
    with mpmath.workdps(40):
        p = (mpmath.mpf(int(k)) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 52
        return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


def run(folder, shapes, mode="f64", name="z", dims="[...b, n, m]", **settings):
    """What becomes of the parameter."""
    path = write_definition(
        folder,
        f'%z = step.random_normal "{name}" %seed, %t : {dims}\nstep.return %z : {dims}',
        f"%p: param{dims}, %g: grad{dims}, %t: count",
        '%seed = step.hyper "seed" = 1.0',
    )
    batch = Batch()
    for shape in shapes:
        zeros = np.zeros(shape, "f8" if mode == "f64" else "f4")
        batch.add(path, {"param": zeros, "grad": zeros}, mode=mode, **settings)
    return [result.get("param", result.get("param:low")) for result in batch.run()]


@pytest.mark.parametrize(("seed", "count"), [(0.0, 1), (-3.5, 2**33 + 7), (2.0**53, 2**31)])
def test_every_number_is_the_quantile_of_its_bits(seed, count, tmp_path):
    shapes = [(2, 7, 9), (1, 1), (13, 20)]
    found = run(tmp_path, shapes, hypers={"seed": seed}, count=count)
    for shape, numbers in zip(shapes, found, strict=True):
        assert numbers.shape == shape
        for k, number in zip(normal_parts(shape, seed, count, "z").flat, numbers.flat, strict=True):
            exact = quantile(k)
            assert abs(number - exact) <= 2**-50 * abs(exact), (k, number)


@pytest.mark.parametrize("mode", ["exact", "bound"])
def test_f32_is_rounded_once(mode, tmp_path):
    (wide,) = run(tmp_path, [(30, 40)])
    (single,) = run(tmp_path, [(30, 40)], mode)
    assert_same(single.astype("f4"), wide.astype("f4"))


def test_others_are_others(tmp_path):
    """Of another seed, count, name: nothing in common."""
    (first,) = run(tmp_path, [(20, 30)])
    (again,) = run(tmp_path, [(20, 30)])
    assert_same(first, again)
    others = [
        run(tmp_path, [(20, 30)], hypers={"seed": 1.5}),
        run(tmp_path, [(20, 30)], count=2),
        run(tmp_path, [(20, 30)], name="y"),
    ]
    for (other,) in others:
        assert not np.isin(first, other).any()
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.2


def test_they_are_normal(tmp_path):
    """Moments, the distribution by Kolmogorov's and Smirnov's distance, and neighbours."""
    (numbers,) = run(tmp_path, [(250, 400)])
    x, size = np.sort(numbers.ravel()), numbers.size
    assert abs(x.mean()) < 4 / np.sqrt(size) and abs(x.var() - 1) < 4 * np.sqrt(2 / size)
    assert abs((x**4).mean() - 3) < 4 * np.sqrt(96 / size)
    expected = np.array([float(mpmath.ncdf(value)) for value in x[::50]])
    assert np.abs(expected - (np.arange(size)[::50] + 0.5) / size).max() < 1.63 / np.sqrt(size)
    for shift in (1, 2, 400):
        flat = numbers.ravel()
        assert abs((flat[shift:] * flat[:-shift]).mean()) < 4 / np.sqrt(size)
    assert np.unique(x).size == size and np.abs(x).max() < MOST
