# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled and exact results lie in the intervals of the interpreter's bound mode, and
results that are changed by two units in the last place do not."""

import numpy as np
import pytest
from definitions import Definition
from oracle import ZOO, Batch, bf16_from, widen
from steps import Case, Group, Packages, Tensor, interpret, launch
from test_whole_steps import HYPERS, make_case, profiles

MOST_OPEN = 1e-3
# Whether the least eigenvalue of a small factor is to be lifted, which rounding decides.
OFTEN_OPEN = {"shampoo": 0.1}


def make_cases(name, number=8, fragments=()):
    files = [ZOO / "fragments" / f"{fragment}.mlir" for fragment in fragments]
    definition = Definition(ZOO / f"{name}.mlir", files)
    rng = np.random.default_rng([7, *map(ord, name)])
    made = profiles(rng, definition)
    cases = [make_case(rng, name, definition, made[i % 2], i) for i in range(number)]
    for case in cases:
        case.steps = 1
        for tensor in case.tensors:
            tensor.arrays = {n: a for n, a in tensor.arrays.items() if ":" not in n}
    return cases


def outside(results, bounds):
    """How many elements of which results are not in their intervals."""
    found = {}
    for key in [key for key in bounds if key.endswith(":low")]:
        name = key.removesuffix(":low")
        values = widen(np.asarray(results[name])).reshape(bounds[key].shape)
        low, high, nan = (bounds[f"{name}:{end}"] for end in ("low", "high", "nan"))
        inside = np.where(np.isnan(values), nan == 1, (low <= values) & (values <= high))
        if not inside.all():
            at = int(np.argmin(inside.ravel()))
            found[name] = (int((~inside).sum()), values.ravel()[at], low.ravel()[at],
                           high.ravel()[at])  # fmt: skip
    return found


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("name", HYPERS)
def test_results_lie_within(name, tmp_path):
    cases = make_cases(name)
    packages = Packages(tmp_path)
    packages.prepare(cases)
    bounds, exact = interpret(cases, mode="bound"), interpret(cases)
    elements = opened = finite = 0
    for case, own, interpreted in zip(cases, bounds, exact, strict=True):
        assert not isinstance(own, str), own
        for results in (launch(case, packages), interpreted):
            assert not isinstance(results, str), results
            assert outside(results, own) == {}, case.describe()
        elements, opened = elements + own["jumps"][0], opened + own["jumps"][1]
        finite += np.isfinite(own["t0/param:low"]).sum()
    assert opened <= max(OFTEN_OPEN.get(name, MOST_OPEN) * elements, 1)
    assert finite > 0


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion"])
def test_two_units_more_lie_outside(name):
    """Of elements alone: most leave the interval, whichever way they go."""
    rng, batch = np.random.default_rng(3), Batch()
    arrays = {n: rng.standard_normal(4000).astype("f4") for n in ("param", "grad")}
    hypers = HYPERS[name] | {"lr": 1e-3}
    for mode in ("exact", "bound"):
        batch.add(ZOO / f"{name}.mlir", arrays, hypers=hypers, mode=mode)
    exact, bounds = batch.run()
    assert outside(exact, bounds) == {}
    for direction in (-np.inf, np.inf):
        moved = dict(exact)
        for array in ("param",):
            once = np.nextafter(exact[array], np.float32(direction))
            moved[array] = np.nextafter(once, np.float32(direction))
            number, *_ = outside(moved, bounds)[array]
            assert number > 0.3 * exact[array].size


def test_an_order_of_its_own_lies_within():
    """Sums of numpy's order, in f64, and rounded."""
    rng, batch = np.random.default_rng(5), Batch()
    arrays = {n: rng.standard_normal((65, 300)).astype("f4") for n in ("param", "grad")}
    batch.add(ZOO / "lamb.mlir", arrays, mode="bound",
              hypers={"lr": 0.1, "weight_decay": 0.1})  # fmt: skip
    [bounds] = batch.run()
    p, g = (arrays[n].astype("f8") for n in ("param", "grad"))
    m, v = 0.1 * g, 0.001 * g * g
    u = (m / 0.1) / (np.sqrt(v / 0.001) + 1e-6) + 0.1 * p
    expected = p - 0.1 * np.sqrt((p * p).sum()) / np.sqrt((u * u).sum()) * u
    assert outside({**{k.removesuffix(":low"): bounds[k] for k in bounds if ":low" in k},
                    "param": expected.astype("f4")}, bounds) == {}  # fmt: skip


def test_storage_widens_by_its_rounding():
    rng, batch = np.random.default_rng(6), Batch()
    param = bf16_from(rng.standard_normal(1000).astype("f4"))
    grad = bf16_from(rng.standard_normal(1000).astype("f4"))
    for mode in ("exact", "bound"):
        batch.add(ZOO / "adamw.mlir", {"param": param, "grad": grad}, mode=mode, state="bf16")
    exact, bounds = batch.run()
    assert outside(exact, bounds) == {}
    # Most intervals are one number of the storage.
    assert (bounds["param:low"] == bounds["param:high"]).mean() > 0.9


POWER = """
step.optimizer @powers {
  %x = step.hyper "x" = 0.0
  %y = step.hyper "y" = 0.0
  %z = step.hyper "z" = 0.0
  step.scalars over model {
    %sum = step.add %y, %z : f64
    %power = step.pow %x, %sum
    %is_number = step.is_finite %power : f64
    step.skip_if %is_number
    step.yield
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %g
  }
}
"""


@pytest.mark.parametrize(
    ("x", "y", "skips"),
    [(-0.3, 0.3, False), (-0.3, 1.0, None), (0.3, 0.3, True), (-np.inf, 0.3, None)],
)
def test_powers_of_what_is_negative(x, y, skips, tmp_path):
    """NaN, however the exponent is rounded, unless that may be an integer. None: refused."""
    path = tmp_path / "powers.mlir"
    path.write_text(POWER)
    arrays = {"param": np.ones(3, "f4"), "grad": np.zeros(3, "f4")}
    group = Group({"x": x, "y": y, "z": 1.0})
    case = Case(Definition(path), [group], [Tensor((3,), ("f32",) * 3, arrays)], steps=1)
    [found] = interpret([case], mode="bound")
    if skips is None:
        assert "rounding may decide whether the step is skipped" in found
    else:
        assert {*found["t0/param:low"], *found["t0/param:high"]} == {float(skips)}
