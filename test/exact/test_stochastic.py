# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stochastic rounding to bf16: compiled, interpreted, and in numpy from the paper."""

import json

import numpy as np
import pytest
from oracle import ZOO, Batch, assert_same, bf16_from, stepc_run, write_definition
from philox import halves, philox4x32, rounded

HOWS = ("--interpret", "compiled")


def special_floats():
    """Every upper half, with lower ones at the ends and random ones."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    rng = np.random.default_rng(0)
    parts = [upper | np.uint32(low) for low in (0, 1, 0x8000, 0xFFFF)]
    parts.append(upper | rng.integers(0, 2**16, 2**16, dtype=np.uint32))
    return np.concatenate(parts).view(np.float32)


def run(definition, arrays, how, **settings):
    batch = Batch()
    batch.add(definition, arrays, **settings)
    return batch.run(*(() if how == "--interpret" else ("--steps=1",)))[0]


# From Random123's kat_vectors: counter, key and result of philox4x32 10.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_generator_is_philox(counter, key, words):
    assert tuple(int(word) for word in philox4x32(counter, key)) == words


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("seed", "count"), [(0, 1), (2**52 + 12345, 2**33 + 7)])
def test_every_f32_is_rounded_by_its_own_bits(tmp_path, how, seed, count):
    """A step that stores the gradient, in the parameter and in a state."""
    values = special_floats()[:: 1 if how == "compiled" else 5]
    path = write_definition(
        tmp_path,
        "%v = step.mul %g, %g : [*]\n    step.return %g, %v",
        '%p: param[*], %g: grad[*], %s: state "v"[*] kept',
    )
    arrays = {
        "param": np.zeros(values.size, "u2"),
        "grad": values,
        "v": np.zeros(values.size, "u2"),
    }
    result = run(path, arrays, how, rounding_seed=seed, count=count)
    indices = np.arange(values.size)
    assert_same(result["param"], rounded(values, halves(indices, seed, count)))
    with np.errstate(all="ignore"):
        squares = values * values
    assert_same(result["v"], rounded(squares, halves(indices, seed, count, "v")))
    finite = np.isfinite(values)
    assert np.isfinite((result["param"].astype("u4") << 16).view("f4")[finite]).all()
    exact = finite & (values.view("u4") % 2**16 == 0)
    assert_same(result["param"][exact], bf16_from(values[exact]))


CASES = [
    ("adamw.mlir", {"weight_decay": 0.1}, (7, 33)),
    ("sgd.mlir", {"momentum": 0.9, "lr": 0.1}, (1030,)),
    ("lion.mlir", {}, (513,)),
    ("adafactor.mlir", {}, (70, 40)),
    ("came.mlir", {}, (5, 2100)),
    ("lamb.mlir", {}, (3, 9, 31)),
]


@pytest.mark.parametrize("state", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "hypers", "shape"), CASES, ids=[case[0] for case in CASES])
def test_steps(tmp_path, name, hypers, shape, state):
    """Compiled and interpreted, in both spaces; states of fewer dims are rounded to nearest."""
    rng = np.random.default_rng(7)
    arrays = {"param": bf16_from(rng.standard_normal(shape).astype("f4"))}
    for step in range(3):
        arrays[f"grad:{step}"] = bf16_from(rng.standard_normal(shape).astype("f4"))
    arrays["grad"] = arrays["grad:0"]
    np.savez(tmp_path / "in.npz", **arrays)
    settings = {"hypers": hypers, "steps": 3, "rounding_seed": 99, "state": state}
    finished = stepc_run(
        ZOO / name, f"--tensors={tmp_path}/in.npz", "--batch=-", "--compare",
        input=json.dumps(settings),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr + finished.stdout


def test_with_a_master_the_states_alone(tmp_path):
    rng = np.random.default_rng(8)
    arrays = {name: bf16_from(rng.standard_normal(300).astype("f4")) for name in ("param", "grad")}
    batch = Batch()
    settings = {"master": "remainder", "steps": 2, "state": "bf16"}
    batch.add(ZOO / "adamw.mlir", arrays, rounding_seed=1, **settings)
    batch.add(ZOO / "adamw.mlir", arrays, rounding_seed=2, **settings)
    batch.add(ZOO / "adamw.mlir", arrays, **settings)
    first, second, nearest = batch.run("--compare")
    for other in (second, nearest):
        assert (first["exp_avg"] != other["exp_avg"]).any()
    # The first step rounds its states only, and these by less than a unit.
    assert np.abs(first["exp_avg"].astype("i4") - nearest["exp_avg"]).max() <= 2


REFUSED = [
    (["--param=f32", "--rounding-seed=1"], "without a master, as bf16; nothing else is rounded so"),
    (["--param=bf16", "--rounding-seed=1", "--mode=f64"], "which is for exact mode only"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_refused(tmp_path, flags, message):
    np.savez(tmp_path / "in.npz", **{k: np.ones(3, "f4") for k in ("param", "grad")})
    mode = [] if "--param=f32" in flags else ["--interpret"]
    finished = stepc_run(
        ZOO / "sgd.mlir", f"--tensors={tmp_path}/in.npz", "-o", f"{tmp_path}/x.npz", *mode, *flags
    )
    assert finished.returncode != 0
    assert message in finished.stderr
