# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions against numpy, in the order that docs/statistics.md prescribes."""

import numpy as np
import pytest
import tree
from oracle import Batch, assert_same, bf16_from, bf16_to_f32, interpret, write_definition

KINDS = ["sum", "mean", "amax"]
DTYPES = [np.float32, np.float64]
REPORT = (
    '%s = step.statistic "s" amax over model\n'
    'step.scalars over model {\n step.report "r", %s\n step.yield\n}'
)


def whole(folder, kind, dims="*"):
    """A definition that reports the reduction of its gradient: an f64, not rounded."""
    return write_definition(
        folder,
        f"%r = step.{kind} %g : [{dims}]\n step.contribute %s, %r\n step.return %p : [{dims}]",
        f"%p: param[{dims}], %g: grad[{dims}]",
        REPORT,
    )


def normal(shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    # Magnitudes that make every order of addition a different result.
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)).astype(dtype)


SIZES = [0, 1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 2048, 3073, 5 * 1024, 70001]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_tensors(tmp_path, kind, dtype):
    path, batch = whole(tmp_path, kind), Batch()
    arrays = [normal(size, dtype, size) for size in SIZES]
    for x in arrays:
        batch.add(path, {"param": x, "grad": x})
    for x, result in zip(arrays, batch.run(), strict=True):
        # amax over tensors takes the only one's.
        expected = tree.reduce(x, ["*"], None, kind)
        assert_same(result["report:r"], [expected], f"{kind} of {x.size}")


def test_the_order_is_another_one_than_that_of_memory():
    # Or the tests above would say little.
    x = normal(5000, np.float64)
    assert tree.reduce(x, ["*"], None, "sum") != float(np.cumsum(x)[-1])
    assert tree.reduce(x, ["*"], None, "sum") != tree.statistic(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ("n, m", (70, 130)), ("n, m", (0, 3)), ("n, m", (3, 0)), ("n, m", (2, 1100)),
        ("n, 1", (1500, 1)), ("1, m", (1, 1500)), ("1, 1", (1, 1)),
        ("...b, n, m", (70, 3, 5)), ("...b, n, m", (9, 8, 3, 5)), ("...b, n, m", (66, 7)),
        ("...b, n, 1", (3, 70, 1)), ("...b, 1, 1", (5, 300, 1, 1)), ("...b, m", (3, 2, 40)),
        ("n, n", (20, 20)), ("k, n, m", (66, 3, 17)),
    ],
)  # fmt: skip
def test_whole_tensors_of_named_dims(tmp_path, kind, dims, shape):
    x = normal(shape)
    result = interpret(whole(tmp_path, kind, dims), {"param": x, "grad": x})
    expected = tree.reduce(x, dims.split(", "), None, kind)
    assert_same(result["report:r"], [expected])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dims", "over", "kept", "shape"),
    [
        ("n, m", "m", "n, 1", (5, 2100)), ("n, m", "n", "1, m", (130, 6)),
        ("n, m", "n, m", "1, 1", (70, 20)), ("n, m", "m, n", "1, 1", (70, 20)),
        ("n, m", "m", "n, 1", (3, 0)), ("n, m", "n", "1, m", (0, 3)),
        ("...b, n, m", "m", "...b, n, 1", (2, 3, 40)),
        ("...b, n, m", "n", "...b, 1, m", (2, 2, 70, 4)),
        ("...b, n, m", "n, m", "...b, 1, 1", (65, 3)), ("k, n, m", "k", "1, n, m", (70, 2, 3)),
    ],
)  # fmt: skip
def test_over_dims_it_is_rounded_once(tmp_path, dtype, kind, dims, over, kept, shape):
    path = write_definition(
        tmp_path,
        f"%r1 = step.{kind} %g over [{over}] : [{dims}]\nstep.return %p, %r1 : [{dims}], [{kept}]",
        f'%p: param[{dims}], %g: grad[{dims}], %r: state "r"[{kept}]',
    )
    x = normal(shape, dtype)
    result = interpret(path, {"param": x, "grad": x})
    with np.errstate(over="ignore"):
        expected = tree.reduce(x, dims.split(", "), over.split(", "), kind).astype(dtype)
    assert_same(result["r"], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_of_several_tensors_each_is_on_its_own(tmp_path, kind):
    path = write_definition(
        tmp_path,
        f"%r1 = step.{kind} %g, %p, %g over [m] : [n, m]\n"
        f"%r = step.{kind} %p, %g : [n, m]\n step.contribute %s, %r\n"
        "step.return %p, %r1 : [n, m], [n, 1]",
        '%p: param[n, m], %g: grad[n, m], %r0: state "r"[n, 1]',
        REPORT,
    )
    p, g = normal((70, 2100), seed=1), normal((70, 2100), seed=2)
    result = interpret(path, {"param": p, "grad": g})
    total = "sum" if kind == "mean" else kind
    combine = tree.KINDS[total][0]

    def reduced(over, *tensors):
        parts = [tree.reduce(x, ["n", "m"], over, total) for x in tensors]
        whole = parts[0]
        for part in parts[1:]:
            whole = combine(whole, part)
        return whole / (p.size if over is None else 2100) if kind == "mean" else whole

    assert_same(result["r"], reduced(["m"], g, p, g).astype("f4"))
    assert_same(result["report:r"], [reduced(None, p, g)])


def test_reductions_of_reductions(tmp_path):
    path = write_definition(
        tmp_path,
        "%row = step.mean %g over [m] : [...b, n, m]\n"
        "%one = step.sum %row over [n] : [...b, n, 1]\n"
        "%r = step.sum %one : [...b, 1, 1]\n step.contribute %s, %r\n"
        "step.return %p, %one : [...b, n, m], [...b, 1, 1]",
        '%p: param[...b, n, m], %g: grad[...b, n, m], %o: state "one"[...b, 1, 1]',
        REPORT,
    )
    x = normal((3, 5, 90, 70))
    result = interpret(path, {"param": x, "grad": x})
    row = tree.reduce(x, ["...b", "n", "m"], ["m"], "mean").astype("f4")
    one = tree.reduce(row, ["...b", "n", "1"], ["n"], "sum").astype("f4")
    assert_same(result["one"], one)
    # Of what was stored nothing is rounded further: it is f32 here.
    assert_same(result["report:r"], [tree.reduce(one, ["...b", "1", "1"], None, "sum")])


def test_what_is_stored_is_rounded_before_it_is_reduced(tmp_path):
    path = write_definition(
        tmp_path,
        "%m1 = step.neg %g : [*]\n %r = step.sum %m1 : [*]\n step.contribute %s, %r\n"
        "step.return %p, %m1",
        '%p: param[*], %g: grad[*], %m: state "m"[*]',
        REPORT,
    )
    x = normal(3000)
    result = interpret(path, {"param": x, "grad": x}, state="m:bf16")
    rounded = bf16_to_f32(bf16_from(-x))
    assert_same(result["report:r"], [tree.reduce(rounded, ["*"], None, "sum")])


def test_f64_mode_rounds_nothing(tmp_path):
    path = write_definition(
        tmp_path,
        "%q = step.mul %g, %g : [n, m]\n%r1 = step.sum %q over [m] : [n, m]\n"
        "step.return %p, %r1 : [n, m], [n, 1]",
        '%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1]',
    )
    x = normal((7, 90))
    result = interpret(path, {"param": x, "grad": x}, mode="f64")
    squares = x.astype("f8") * x.astype("f8")
    assert_same(result["r"], tree.reduce(squares, ["n", "m"], ["m"], "sum"))


SPECIAL = {
    "nan": [1, np.nan, 3], "inf": [1, np.inf, -5], "both": [np.inf, -np.inf], "zeros": [0, -0.0],
    "minus_zero": [-0.0], "minus_zeros": [-0.0, -0.0], "minus_inf": [-np.inf], "none": [],
    "denormal": [5e-324, 5e-324],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(tmp_path, kind, name):
    x = np.array(SPECIAL[name], dtype="f8")
    result = interpret(whole(tmp_path, kind), {"param": x, "grad": x})
    assert_same(result["report:r"], [tree.reduce(x, ["*"], None, kind)])


def test_special_results():
    def of(values, kind):
        return tree.reduce(np.array(values, dtype="f8"), ["*"], None, kind)

    assert of([], "sum") == 0.0 and not np.signbit(of([-0.0], "sum"))
    assert of([], "amax") == -np.inf and np.isnan(of([], "mean"))
    assert not np.signbit(of([-0.0, 0.0], "amax")) and np.signbit(of([-0.0], "amax"))
    assert np.isnan(of([1, np.nan], "amax")) and np.isnan(of([np.inf, -np.inf], "sum"))


def test_logical_operations_and_is_finite(tmp_path):
    path = write_definition(
        tmp_path,
        "%a = step.is_finite %g : [n, m]\n%b = step.compare lt, %r, %g : [n, 1], [n, m]\n"
        "%n = step.not %b : mask[n, m]\n%e = step.and %a, %n : mask[n, m]\n"
        "%o = step.or %e, %f : mask[n, m], i1\n%h = step.and %o, %yes : mask[n, m], i1\n"
        "%p1 = step.select %h, %p, %g : mask[n, m], [n, m]\n"
        "step.return %p1, %r : [n, m], [n, 1]",
        '%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1], %f: fresh',
        '%yes = step.option "yes" = true',
    )
    g = np.array([[1, np.inf, -np.nan], [-3, 2, 0]], dtype="f4")
    arrays = {"param": np.full_like(g, 9), "grad": g, "r": np.array([[0.5], [1]], dtype="f4")}
    result = interpret(path, arrays, fresh=False)["param"]
    taken = np.isfinite(g) & ~(arrays["r"] < g)
    assert_same(result, np.where(taken, arrays["param"], g))
    assert_same(interpret(path, arrays, fresh=True)["param"], arrays["param"])


# --- The order of additions is free -------------------------------------------

FREE = """
%u = step.mul %g, %c : [n, m], [1, m]
%uu = step.mul %u, %u : [n, m]
%r = step.{kind} %uu{free} : [n, m]
"""
BY_COLUMN = """
%gg = step.mul %g, %g : [n, m]
%cols = step.{kind} %gg over [n] : [n, m]
%half = step.mul %cols, %c : [1, m]
%whole = step.mul %half, %c : [1, m]
%r = step.{kind} %whole : [1, m]
"""
BOUNDED = """
%w = step.abs %c : [1, m]
%v = step.abs %s : [n, 1]
%f = step.mul %v, %w : [n, 1], [1, m]
%least = step.minimum %f, %bound : [n, m], f64
%u = step.mul %g, %least : [n, m]
%uu = step.mul %u, %u : [n, m]
%r = step.{kind} %uu{free} : [n, m]
"""
BOUNDED_BY_COLUMN = """
%w = step.abs %c : [1, m]
%v = step.abs %s : [n, 1]
%gv = step.mul %g, %v : [n, m], [n, 1]
%gg = step.mul %gv, %gv : [n, m]
%cols = step.{kind} %gg over [n] : [n, m]
%half = step.mul %cols, %w : [1, m]
%whole = step.mul %half, %w : [1, m]
%r = step.{kind} %whole : [1, m]
"""


def free(tmp_path, texts, bound):
    """What each text reduces, as exact mode and bound mode report it."""
    rng, batch = np.random.default_rng(7), Batch()
    arrays = {"param": np.ones((70, 90), "f4"), "grad": rng.standard_normal((70, 90)).astype("f4"),
              "c": rng.standard_normal((1, 90)).astype("f4"),
              "s": rng.standard_normal((70, 1)).astype("f4")}  # fmt: skip
    for number, text in enumerate(texts):
        for mode in ("exact", "bound"):
            folder = tmp_path / f"{number}{mode}"
            folder.mkdir()
            path = write_definition(
                folder,
                f"{text}\nstep.contribute %s0, %r\nstep.return %p, %c, %s : [n, m], [1, m], [n, 1]",
                '%p: param[n, m], %g: grad[n, m], %c: state "c"[1, m], %s: state "s"[n, 1]',
                f'%bound = step.hyper "bound" = {bound}\n' + REPORT.replace("%s", "%s0"),
            )
            batch.add(path, arrays, mode=mode)
    results = batch.run()
    exact = [result["report:r"].item() for result in results[::2]]
    return exact, [(r["report:r:low"].item(), r["report:r:high"].item()) for r in results[1::2]]


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize(("text", "form", "bound"), [
    (FREE, BY_COLUMN, 1.0), (BOUNDED, BOUNDED_BY_COLUMN, 1e6)])  # fmt: skip
def test_what_is_reassociable_is_of_its_form(kind, text, form, bound, tmp_path):
    texts = [text.format(kind=kind, free=" reassociable"), form.format(kind=kind),
             text.format(kind=kind, free="")]  # fmt: skip
    (free_, by_column, plain), (bounds, *_) = free(tmp_path, texts, bound)
    assert free_ == by_column != plain
    assert abs(free_ - plain) < 1e-6 * plain
    assert bounds[0] <= min(free_, plain) < max(free_, plain) <= bounds[1]


def test_where_the_bound_acts_it_is_what_is_written(tmp_path):
    texts = [BOUNDED.format(kind="mean", free=free_) for free_ in (" reassociable", "")]
    (free_, plain), (bounds, _) = free(tmp_path, texts, 1.0)
    assert free_ == plain
    assert bounds[0] <= plain <= bounds[1]
