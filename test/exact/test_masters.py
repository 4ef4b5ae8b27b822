# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bf16 parameters with the f32 behind them: compiled and interpreted steps, and both forms."""

import json

import numpy as np
import pytest
from oracle import (
    ZOO,
    Batch,
    assert_same,
    bf16_from,
    bf16_to_f32,
    stepc_run,
    write_definition,
)

STEPS = 5
HOWS = ("--interpret", "compiled")


def upper_half(values):
    """The bits of the nearest bf16, ties away from zero, by exact arithmetic: a tie
    is decided by the next f32 outward, which is none."""
    outward = np.nextafter(values, np.copysign(np.float32(np.inf), values))
    is_tie = (values.view(np.uint32) & 0xFFFF) == 0x8000
    return bf16_from(np.where(is_tie & np.isfinite(values), outward, values))


def lower_half(values):
    whole = values.view(np.uint32).astype(np.int64)
    rest = whole - (upper_half(values).astype(np.int64) << 16)
    return np.where(np.isnan(values), 0, rest).astype(np.int16)


def special_floats():
    """Every upper half, with lower ones at and around a tie, and random ones."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    rng = np.random.default_rng(0)
    lows = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    parts = [upper | np.uint32(low) for low in lows]
    parts.append(upper | rng.integers(0, 2**16, 2**16, dtype=np.uint32))
    return np.concatenate(parts).view(np.float32)


def run(definition, arrays, how, **settings):
    batch = Batch()
    batch.add(definition, arrays, **settings)
    return batch.run(*(() if how == "--interpret" else ("--steps=1",)))[0]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("form", ["f32", "remainder"])
def test_every_f32_is_taken_apart_and_put_together(tmp_path, how, form):
    """A step that stores the gradient leaves its halves; one that stores the parameter
    as it was keeps them."""
    values = special_floats()[:: 1 if how == "compiled" else 5]
    number = ~np.isnan(values)
    taken = write_definition(tmp_path, "step.return %g")
    start = {"param": np.zeros(values.size, "u2"), "grad": values}
    with np.errstate(all="ignore"):
        result = run(taken, start, how, master=form)
        assert_same(result["param"], upper_half(values))
        if form == "f32":
            assert_same(result["master"], values)
        else:
            assert_same(result["remainder"], lower_half(values))
    name = "master" if form == "f32" else "remainder"
    (tmp_path / "other").mkdir()
    kept = write_definition(
        tmp_path / "other", "step.return %p, %p", '%p: param[*], %g: grad[*], %s: state "s"[*] kept'
    )
    second = {**result, "grad": values, "s": np.zeros_like(values)}
    again = run(kept, second, how, master=form)
    assert_same(again["s"][number], values[number])
    assert np.isnan(again["s"][~number]).all()
    for array in ("param", name):
        assert_same(again[array][number], result[array][number])


@pytest.mark.parametrize("how", HOWS)
def test_halves_of_different_numbers_are_the_parameter_where_they_make_nan(tmp_path, how):
    upper = np.array([0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x3F80], "u2")
    rest = np.array([-5, -5, 7, 7, -1, 3], "i2")
    path = write_definition(
        tmp_path, "step.return %p, %p", '%p: param[*], %g: grad[*], %s: state "s"[*] kept'
    )
    arrays = {"param": upper, "grad": upper, "remainder": rest, "s": np.zeros(6, "f4")}
    result = run(path, arrays, how, master="remainder")
    expected = bf16_to_f32(upper)
    expected[-1] = np.array([0x3F800003], "u4").view("f4")[0]
    assert_same(result["s"], expected)


@pytest.mark.parametrize("how", HOWS)
def test_a_parameter_that_somebody_wrote_is_its_master(tmp_path, how):
    """Elements that the master does not round to, and no others."""
    rng = np.random.default_rng(3)
    master = rng.standard_normal(1000).astype("f4")
    param = upper_half(master)
    param[::7] ^= 0x0100
    path = write_definition(tmp_path, "step.return %p")
    result = run(path, {"param": param, "grad": param, "master": master}, how, master="f32")
    expected = master.copy()
    expected[::7] = bf16_to_f32(param)[::7]
    assert_same(result["master"], expected)
    assert_same(result["param"], param)


CASES = [
    ("adamw.mlir", {"weight_decay": 0.1}, (7, 33)),
    ("sgd.mlir", {"momentum": 0.9, "lr": 0.1}, (1030,)),
    ("lion.mlir", {}, (513,)),
    ("asgd.mlir", {"t0": 1.0}, (70,)),
    ("adafactor.mlir", {}, (5, 40)),
    ("lamb.mlir", {}, (9, 31)),
]


def case_arrays(shape):
    rng = np.random.default_rng(7)
    arrays = {"param": bf16_from(rng.standard_normal(shape).astype("f4"))}
    for step in range(STEPS):
        arrays[f"grad:{step}"] = bf16_from(rng.standard_normal(shape).astype("f4"))
    arrays["grad"] = arrays["grad:0"]
    # Zeros of both signs, and gradients that make infinities and NaN.
    arrays["param"].flat[:2] = 0x0000, 0x8000
    arrays["grad:1"].flat[:2] = 0, 0
    return arrays


@pytest.mark.parametrize(("name", "hypers", "shape"), CASES, ids=[case[0] for case in CASES])
def test_steps(tmp_path, name, hypers, shape):
    """Compiled and interpreted, with a master or a remainder, and without sharing a
    bit of code the f32 parameter: all the same."""
    arrays = case_arrays(shape)
    np.savez(tmp_path / "in.npz", **arrays)
    settings = {"hypers": hypers, "steps": STEPS}
    lines = [{**settings, "master": form} for form in ("f32", "remainder")]
    finished = stepc_run(
        ZOO / name, f"--tensors={tmp_path}/in.npz", "--batch=-", "--compare",
        input="\n".join(map(json.dumps, lines)),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr + finished.stdout
    batch = Batch()
    for form in ("f32", "remainder"):
        batch.add(ZOO / name, arrays, master=form, **settings)
    wide = {**arrays, "param": bf16_to_f32(arrays["param"])}
    batch.add(ZOO / name, wide, **settings)
    master, remainder, whole = batch.run()
    assert_same(master["master"], whole["param"])
    assert_same(master["param"], upper_half(whole["param"]))
    assert_same(remainder["param"], master["param"])
    assert_same(remainder["remainder"], lower_half(whole["param"]))
    for state in whole.keys() - {"param"}:
        assert_same(master[state], whole[state], state)
        assert_same(remainder[state], whole[state], state)


REFUSED = [
    (["--param=f32", "--master=f32"], "which is stored as f32; only bf16 has masters, and f16"),
    (["--param=bf16", "--master=f16"], "expected f32 or remainder"),
    (["--param=bf16", "--master=f32", "--mode=f64"], "which is for exact mode only"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_refused(tmp_path, flags, message):
    np.savez(tmp_path / "in.npz", **{k: np.ones(3, "f4") for k in ("param", "grad")})
    finished = stepc_run(
        ZOO / "sgd.mlir", f"--tensors={tmp_path}/in.npz", "--interpret", "-o", "x.npz", *flags
    )
    assert finished.returncode != 0
    assert message in finished.stderr


def test_a_state_of_another_type_is_refused(tmp_path):
    arrays = {name: np.ones(3, "u2") for name in ("param", "grad")}
    path = write_definition(tmp_path, "step.return %p")
    np.savez(tmp_path / "in.npz", **arrays, remainder=np.zeros(4, "i2"))
    finished = stepc_run(
        path, f"--tensors={tmp_path}/in.npz", "--interpret", "-o", "x.npz", "--master=remainder"
    )
    assert "'remainder' has shape 4, expected 3" in finished.stderr
