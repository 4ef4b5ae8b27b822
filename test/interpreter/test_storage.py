# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounding, and where values are rounded to their storage types."""

from fractions import Fraction

import numpy as np
import pytest
from oracle import (
    assert_same,
    bf16_from,
    bf16_to_f32,
    interpret,
    special_pairs,
    special_values,
    widen,
    write_definition,
)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# --- Rounding -----------------------------------------------------------------


def test_f32_to_bf16_for_every_upper_half(tmp_path):
    upper = np.arange(2**16, dtype=np.uint32) << 16
    rng = np.random.default_rng(0)
    halves = [np.full(2**16, low, dtype=np.uint32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001)]
    halves += [rng.integers(0, 2**16, 2**16, dtype=np.uint32) for _ in range(3)]
    values = np.concatenate([upper | low for low in halves]).view(np.float32)
    path = write_definition(tmp_path, "step.return %g")
    result = interpret(path, {"param": np.zeros(values.size, "u2"), "grad": values})
    assert_same(result["param"], bf16_from(values))


def test_every_bf16_is_read_and_written_as_it_is(tmp_path):
    bits = np.arange(2**16).astype(np.uint16)
    path = write_definition(tmp_path, "step.return %p")
    assert_same(interpret(path, {"param": bits, "grad": bits})["param"], bits)


def test_f64_to_f32(tmp_path):
    floats, others = special_pairs(np.float32)
    wide = floats.astype("f8")
    middle = (wide + np.nextafter(floats, np.float32(np.inf)).astype("f8")) / 2
    values = np.concatenate([
        special_pairs(np.float64)[0], wide, others.astype("f8") * wide, middle,
        np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf),
        # The edges: half the smallest denormal, and what rounds to infinity.
        np.array([2.0**-150, np.nextafter(2.0**-150, 1), 2.0**128 - 2.0**103, -(2.0**128)]),
        np.nextafter(np.array([2.0**128 - 2.0**103]), 0),
    ])  # fmt: skip
    path = write_definition(
        tmp_path, "step.return %p, %g", '%p: param[*], %g: grad[*], %s: state "s"[*]'
    )
    arrays = {"param": values, "grad": values, "s": np.zeros(values.size, "f4")}
    result = interpret(path, arrays)
    assert_same(result["s"], values.astype(np.float32))
    assert_same(result["param"], values)


def nearest_bf16(value):
    """The bits of the bf16 nearest to a finite double, by exact arithmetic."""
    guess = int(bf16_from(np.array([value], dtype=np.float32))[0])
    candidates = [bits for bits in (guess - 1, guess, guess + 1) if 0 <= bits < 2**16]
    values = [Fraction(float(bf16_to_f32(np.array([b], "u2"))[0])) for b in candidates]
    distances = [abs(v - Fraction(value)) for v in values]
    nearest = min(distances)
    ties = [b for b, d in zip(candidates, distances, strict=True) if d == nearest]
    return min(ties, key=lambda bits: bits & 1)


def test_f64_to_bf16_is_rounded_once(tmp_path):
    # Just above and below the middle of two bf16: by way of f32 they are ties.
    bits = np.random.default_rng(1).integers(0x0080, 0x7F7E, 300).astype("u2")
    low, high = (bf16_to_f32(b).astype("f8") for b in (bits, bits + np.uint16(1)))
    middle = (low + high) / 2
    values = np.concatenate([middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40)])
    values = np.concatenate([values, -values])
    path = write_definition(
        tmp_path, "step.return %p, %g", '%p: param[*], %g: grad[*], %s: state "s"[*]'
    )
    arrays = {"param": values, "grad": values, "s": np.zeros(values.size, "u2")}
    expected = np.array([nearest_bf16(v) for v in values], dtype="u2")
    assert (expected != bf16_from(values.astype("f4"))).any()
    assert_same(interpret(path, arrays)["s"], expected)


def test_f64_to_f32_operands_of_f32_compute_are_rounded_when_read(tmp_path):
    g = np.array([1 + 2.0**-24 + 2.0**-50])
    path = write_definition(tmp_path, "%r = step.sub %g, %p : [*]\n step.return %r")
    result = interpret(path, {"param": np.ones(1, "f4"), "grad": g})
    assert_same(result["param"], np.array([2.0**-23], dtype="f4"))


# --- Where values are rounded -------------------------------------------------

STATE = '%p: param[*], %g: grad[*], %s: state "s"[*]'


def bf16(values):
    """Rounded to bf16, as f32."""
    return bf16_to_f32(bf16_from(values))


@pytest.fixture
def numbers():
    p, g, s = np.random.default_rng(2).standard_normal((3, 500)).astype("f4")
    return bf16_from(p), g, s


def test_a_later_use_sees_the_rounded_value(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(
        tmp_path, "%a = step.add %p, %g : [*]\n%b = step.mul %a, %s : [*]\n step.return %a, %b",
        STATE,
    )  # fmt: skip
    result = interpret(path, {"param": p, "grad": g, "s": s})
    new = bf16(bf16_to_f32(p) + g)
    assert_same(result["param"], bf16_from(new))
    assert_same(result["s"], new * s)
    assert (new * s != (bf16_to_f32(p) + g) * s).any()


def test_a_value_before_the_stored_one_is_not_rounded(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(
        tmp_path,
        "%a = step.add %p, %g : [*]\n%b = step.neg %a : [*]\n%c = step.mul %a, %s : [*]\n"
        "step.return %b, %c",
        STATE,
    )
    result = interpret(path, {"param": p, "grad": g, "s": s})
    assert_same(result["param"], bf16_from(-(bf16_to_f32(p) + g)))
    assert_same(result["s"], (bf16_to_f32(p) + g) * s)


def test_a_value_stored_twice_has_the_narrowest_storage(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(tmp_path, "%a = step.add %p, %g : [*]\n step.return %a, %a", STATE)
    result = interpret(path, {"param": p, "grad": g, "s": s})
    expected = bf16(bf16_to_f32(p) + g)
    assert_same(result["param"], bf16_from(expected))
    assert_same(result["s"], expected)


def test_an_absent_state_does_not_narrow_a_value(tmp_path, numbers):
    _, g, s = numbers
    path = write_definition(
        tmp_path, "%a = step.add %p, %g : [*]\n step.return %a, %a",
        STATE + " if %o", '%o = step.option "o" = false',
    )  # fmt: skip
    p = s * np.float32(3)
    assert_same(interpret(path, {"param": p, "grad": g}, state="bf16")["param"], p + g)
    present = interpret(path, {"param": p, "grad": g}, state="bf16", options={"o": True})
    assert_same(present["param"], bf16(p + g))


def test_a_returned_argument_is_rounded_only_into_what_is_stored(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(
        tmp_path, "%a = step.mul %g, %s : [*]\n step.return %g, %a", STATE
    )  # fmt: skip
    result = interpret(path, {"param": p, "grad": g, "s": s})
    assert_same(result["param"], bf16_from(g))
    assert_same(result["s"], g * s)


def test_the_result_of_a_select_is_rounded_and_its_operands_are_not(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(
        tmp_path,
        "%a = step.select %o, %g, %p : [*]\n%b = step.mul %a, %s : [*]\n"
        "%c = step.mul %g, %b : [*]\n step.return %a, %c",
        STATE,
        '%o = step.option "o" = true',
    )
    result = interpret(path, {"param": p, "grad": g, "s": s})
    assert_same(result["param"], bf16_from(g))
    assert_same(result["s"], g * (bf16(g) * s))


def test_f32_states_of_f64_parameters(tmp_path):
    p, g = np.random.default_rng(4).standard_normal((2, 300))
    s = np.zeros(300, dtype="f4")
    path = write_definition(
        tmp_path, "%a = step.add %p, %g : [*]\n%b = step.mul %a, %g : [*]\n step.return %b, %a",
        STATE,
    )  # fmt: skip
    result = interpret(path, {"param": p, "grad": g, "s": s})
    assert_same(result["s"], (p + g).astype("f4"))
    assert_same(result["param"], (p + g).astype("f4").astype("f8") * g)


def test_f64_mode_rounds_nothing(tmp_path, numbers):
    p, g, s = numbers
    path = write_definition(
        tmp_path,
        "%a = step.mul %p, %g : [*]\n%b = step.mul %a, %k : [*], f64\n step.return %a, %b",
        STATE,
        '%k = step.hyper "k" = 0.1',
    )
    result = interpret(path, {"param": p, "grad": g, "s": s}, mode="f64")
    assert_same(result["param"], widen(p) * g.astype("f8"))
    assert_same(result["s"], widen(p) * g.astype("f8") * 0.1)


@pytest.mark.parametrize("storage", ["bf16", "f32"])
def test_denormals_and_specials_survive_storage(tmp_path, storage):
    x = special_values(np.float32)
    path = write_definition(tmp_path, "%a = step.mul %g, %k : [*], f64\n step.return %a",
                            globals_='%k = step.hyper "k" = 0.5')  # fmt: skip
    result = interpret(path, {"param": x, "grad": x}, param=storage)
    half = x * np.float32(0.5)
    assert_same(result["param"], bf16_from(half) if storage == "bf16" else half)


# --- Options, states and the first step ---------------------------------------

GUARDED = '%p: param[*], %g: grad[*], %s: state "s"[*] = 2.5 if %o, %first: fresh'
DERIVED = '%mu = step.hyper "mu" = 0.0\n%o = step.option "o" = %mu {} 0.5'


@pytest.mark.parametrize(
    ("word", "holds"),
    [("lt", [1, 0, 0]), ("le", [1, 1, 0]), ("gt", [0, 0, 1]),
     ("ge", [0, 1, 1]), ("eq", [0, 1, 0]), ("ne", [1, 0, 1])],
)  # fmt: skip
def test_derived_options_follow_the_hyper_parameter(tmp_path, word, holds):
    path = write_definition(
        tmp_path,
        "%b = step.add %s, %g : [*]\n%d = step.select %o, %b, %g : [*]\nstep.return %d, %b",
        GUARDED,
        DERIVED.format(word),
    )
    g = np.arange(3, dtype="f4")
    for mu, exists in zip([0.25, 0.5, 0.75], holds, strict=True):
        result = interpret(path, {"param": g, "grad": g}, hypers={"mu": mu})
        assert ("s" in result) == bool(exists)
        assert_same(result["param"], g + np.float32(2.5) if exists else g)


def test_fresh_and_initial_values(tmp_path):
    path = write_definition(
        tmp_path,
        "%b = step.select %first, %g, %s : [*]\n%c = step.add %b, %s : [*]\n step.return %b, %c",
        GUARDED,
        '%o = step.option "o" = true',
    )
    g, s = np.ones(2, "f4"), np.full(2, 7, "f4")
    half = np.float32(2.5)
    created = interpret(path, {"param": g, "grad": g})
    assert_same(created["param"], g)
    assert_same(created["s"], g + half)
    given = interpret(path, {"param": g, "grad": g, "s": s})
    assert_same(given["param"], s)
    forced = interpret(path, {"param": g, "grad": g, "s": s}, fresh=True)
    assert_same(forced["s"], g + s)
    # Only the first of several steps is fresh.
    twice = interpret(path, {"param": g, "grad": g}, steps=2)
    assert_same(twice["param"], g + half)


def test_count_goes_up_with_the_steps(tmp_path):
    path = write_definition(
        tmp_path,
        "%x = step.powi %two, %t\n%r = step.add %p, %x : [*], f64\n step.return %r",
        "%p: param[*], %g: grad[*], %t: count",
        "%two = step.constant 2.0",
    )
    zero = np.zeros(2, "f4")
    result = interpret(path, {"param": zero, "grad": zero}, count=3, steps=3)
    assert_same(result["param"], np.full(2, 8 + 16 + 32, "f4"))


def test_default_options_and_hyper_parameters(tmp_path):
    path = write_definition(
        tmp_path,
        "%a = step.mul %g, %k : [*], f64\n%r = step.select %o, %a, %g : [*]\nstep.return %r",
        globals_='%k = step.hyper "k" = 3.0\n%o = step.option "o" = true',
    )
    g = np.ones(1, "f4")
    assert interpret(path, {"param": g, "grad": g})["param"][0] == 3
    assert interpret(path, {"param": g, "grad": g}, hypers={"k": 5})["param"][0] == 5
    assert interpret(path, {"param": g, "grad": g}, options={"o": False})["param"][0] == 1
