# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""f16 parameters and states: conversions, masters, and the zoo. numpy's conversions are the
oracle: to nearest, ties to even, with denormals."""

import numpy as np
import pytest
from driver import compile_package, make_tensors
from formulas import HYPERS, OPTIONS
from oracle import ZOO, Batch, Refused, assert_same, bf16_from, write_definition
from stepc import _runtime

STORAGES = [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("f16", "f32", "bf16"),
            ("f32", "f16", "f16")]  # fmt: skip
HOWS = ("--interpret", "compiled")
STATE = '%p: param[*], %g: grad[*], %s: state "s"[*] kept'
ALL = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def run(definition, arrays, how, **settings):
    batch = Batch()
    batch.add(definition, arrays, **settings)
    return batch.run(*(() if how == "--interpret" else ("--steps=1",)))[0]


def around_ties():
    """The middle of every two neighbours among the f16 and of the largest and what would be the
    next, in f32, and its own neighbours; all f16; the ends of the denormals; infinities and NaN."""
    positive = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype("f4")
    middle = (positive + np.append(positive[1:], np.float32(65536))) / 2
    tiny = np.float32(2.0**-25)  # half of the smallest denormal
    ends = np.array([tiny, np.nextafter(tiny, np.float32(1)), np.nextafter(tiny, np.float32(0)),
                     1e-45, 3e38, np.inf, np.nan], "f4")  # fmt: skip
    values = [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))]
    values = np.concatenate([*values, ALL.astype("f4"), ends])
    return np.concatenate([values, -values])


# --- Conversions --------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_f32_is_rounded_once(tmp_path, how):
    values = around_ties()
    path = write_definition(tmp_path, "step.return %g")
    result = run(path, {"param": np.zeros(values.size, "f2"), "grad": values}, how)
    assert_same(result["param"], values.astype(np.float16))


@pytest.mark.parametrize("how", HOWS)
def test_every_f16_is_read_and_written_as_it_is(tmp_path, how):
    path = write_definition(tmp_path, "step.return %p, %p", STATE)
    result = run(path, {"param": ALL, "grad": ALL, "s": np.zeros(ALL.size, "f4")}, how)
    assert_same(result["param"], ALL)
    assert_same(result["s"], ALL.astype("f4"))


def test_f64_is_rounded_once(tmp_path):
    """Interpreted: just off the middle of two f16, which by way of f32 are ties."""
    low = np.arange(1, 0x7BFF, 7, dtype=np.uint16)
    middle = (low.view("f2").astype("f8") + (low + np.uint16(1)).view("f2").astype("f8")) / 2
    values = np.concatenate([middle * (1 + 2.0**-40), middle * (1 - 2.0**-40), middle])
    values = np.concatenate([values, -values])
    assert (values.astype("f4").astype("f2") != values.astype("f2")).any()
    path = write_definition(tmp_path, "step.return %p, %g", STATE.replace(" kept", ""))
    arrays = {"param": values, "grad": values, "s": np.zeros(values.size, "f2")}
    assert_same(run(path, arrays, "--interpret")["s"], values.astype("f2"))


def test_initial_values_are_rounded_as_numpy_does(tmp_path):
    """Of states that the runtime makes."""
    for number in ("0.1", "1.0e-5", "3.0e-8", "65519.0", "-65520.0", "2049.0", "-0.0"):
        path = write_definition(
            tmp_path, "step.return %p, %s",
            f'%p: param[*], %g: grad[*], %s: state "s"[*] = {number} kept',
        )  # fmt: skip
        arrays = {"param": np.ones(5, "f2"), "grad": np.ones(5, "f2")}
        expected = np.full(5, float(number)).astype("f2")
        for how in HOWS:
            assert_same(run(path, arrays, how, state="f16")["s"], expected, number)


# --- The zoo ------------------------------------------------------------------


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")

    def get(name):
        off = "".join(f",option.{option}=false" for option in OPTIONS[name])
        specs = [f"--variant=param={p},grad={g},state={s}{off}" for p, g, s in STORAGES]
        data = compile_package(ZOO / f"{name}.mlir", folder, name, specs)
        return _runtime.Package.from_bytes(data)

    return get


@pytest.mark.parametrize("name", HYPERS)
def test_optimizers(name, packages, checker):
    """Every size to 130 and large ones, at other places in memory."""
    package = packages(name)
    shapes = [(n,) for n in range(131)] + [(), (3, 0, 2), (4099,), (5, 7, 11)]
    options = dict.fromkeys(OPTIONS[name], False)

    def place(row, operand, shape):
        return {"offset": (row + 5 * operand) % 16}

    for storages in STORAGES:
        tensors = make_tensors(name, storages, HYPERS[name], options, shapes, place)
        tensors.bind(package, fresh=True, threads=2, chunk=1000)
        for seed in range(2):
            tensors.new_gradients(seed)
            tensors.step(checker)


def test_statistics(tmp_path):
    """Sums are f64 beside f16 too."""
    rng = np.random.default_rng(5)
    arrays = {n: rng.standard_normal((33, 70)).astype("f2") for n in ("param", "grad")}
    for name in ("adafactor", "lamb", "came"):
        for state in ("f32", "f16"):
            batch = Batch()
            batch.add(ZOO / f"{name}.mlir", arrays, steps=3, state=state)
            batch.run("--compare")


# --- Masters ------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_a_master_is_kept_where_it_rounds_to_the_parameter(tmp_path, how):
    master = around_ties()
    param = master.astype("f2")
    param[::7] = 3.0
    path = write_definition(tmp_path, "step.return %p")
    arrays = {"param": param, "grad": param, "master": master}
    result = run(path, arrays, how, master="f32")
    same = master.astype("f2") == param  # not so of NaN
    expected = np.where(same, master, param.astype("f4"))
    assert_same(result["master"], expected)
    assert_same(result["param"], param)


@pytest.mark.parametrize("name", ["adamw", "sgd", "lion", "adafactor"])
def test_steps_with_masters_are_those_of_f32(tmp_path, name):
    rng = np.random.default_rng(7)
    arrays = {"param": rng.standard_normal((9, 31)).astype("f2")}
    for step in range(4):
        arrays[f"grad:{step}"] = rng.standard_normal((9, 31)).astype("f2")
    arrays["grad"] = arrays["grad:0"]
    batch, compared = Batch(), Batch()
    for one in (batch, compared):
        one.add(ZOO / f"{name}.mlir", arrays, master="f32", steps=4)
    batch.add(ZOO / f"{name}.mlir", {**arrays, "param": arrays["param"].astype("f4")}, steps=4)
    compared.run("--compare")
    kept, whole = batch.run()
    assert_same(kept["master"], whole["param"])
    assert_same(kept["param"], whole["param"].astype("f2"))
    for state in whole.keys() - {"param"}:
        assert_same(kept[state], whole[state], state)


# --- Refusals -----------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_one_value_in_both_kinds_of_16_bits_is_refused(tmp_path, how):
    path = write_definition(tmp_path, "%x = step.add %p, %g : [*]\n step.return %x, %x", STATE)
    arrays = {"param": ALL[:4], "grad": ALL[:4], "s": bf16_from(np.zeros(4, "f4"))}
    with pytest.raises(Refused, match="stored as both bf16 and f16, of which neither has the"):
        run(path, arrays, how)


@pytest.mark.parametrize("how", HOWS)
def test_remainders_are_refused(tmp_path, how):
    path = write_definition(tmp_path, "step.return %g")
    arrays = {"param": ALL[:4], "grad": ALL[:4]}
    with pytest.raises(Refused, match="only bf16 has masters, and f16 those that are states"):
        run(path, arrays, how, master="remainder")
