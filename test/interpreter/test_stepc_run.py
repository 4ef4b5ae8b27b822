# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stepc-run as a tool: its files, its command line, its exit statuses."""

import io
import json
import os
import re
import subprocess

import numpy as np
import pytest
from oracle import ROOT, ZOO, assert_same, bf16_from, interpret, stepc_run, write_definition

LION = ZOO / "lion.mlir"
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
X = np.arange(1, 7, dtype="f4").reshape(2, 3)


def run_on(path, *arguments, out=None):
    target = out or path.parent / "out.npz"
    return stepc_run(LION, f"--tensors={path}", "--interpret", "-o", target, *arguments)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in put.npz"
    np.savez(path, param=X, grad=X)
    return path


def loaded(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


# --- Files --------------------------------------------------------------------


def test_stored_and_deflated_archives_are_read_alike(tmp_path, source):
    deflated = tmp_path / "deflated.npz"
    big = np.zeros((40, 50), dtype="f4")
    np.savez_compressed(deflated, param=big, grad=big + 1)
    np.savez(source, param=big, grad=big + 1)
    assert deflated.stat().st_size < source.stat().st_size / 2
    for path in (source, deflated):
        out = tmp_path / f"{path.stem}-out.npz"
        assert run_on(path, out=out).returncode == 0
    first, second = (loaded(tmp_path / f"{p.stem}-out.npz") for p in (source, deflated))
    assert first.keys() == {"param", "exp_avg"}
    assert_same(first["param"], second["param"])
    assert (first["param"] != big).all()


def test_npy_files_of_each_version(tmp_path):
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "p.npy", "wb") as file:
            np.lib.format.write_array(file, X, version=version)
        np.save(tmp_path / "g.npy", X)
        run = stepc_run(
            LION, f"--tensors=param={tmp_path}/p.npy", f"--tensors=grad={tmp_path}/g.npy",
            "--interpret", "-o", tmp_path / "out.npz",
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        expected = interpret(LION, {"param": X, "grad": X})["param"]
        assert_same(loaded(tmp_path / "out.npz")["param"], expected)


def test_prefixes_are_tensors_of_their_own(tmp_path):
    path = tmp_path / "in.npz"
    arrays = {"a/param": X, "a/grad": X, "b/0/param": X * 2, "b/0/grad": X}
    np.savez(path, **arrays)
    assert run_on(path).returncode == 0
    results = loaded(tmp_path / "out.npz")
    assert results.keys() == {"a/param", "a/exp_avg", "b/0/param", "b/0/exp_avg"}
    assert_same(results["b/0/param"], interpret(LION, {"param": X * 2, "grad": X})["param"])


def test_results_can_be_the_input_of_the_next_step(tmp_path, source):
    run_on(source, out=tmp_path / "one.npz")
    np.savez(tmp_path / "next.npz", grad=X, **loaded(tmp_path / "one.npz"))
    run_on(tmp_path / "next.npz", "--count=2", out=tmp_path / "two.npz")
    run_on(source, "--steps=2", out=tmp_path / "both.npz")
    for name, array in loaded(tmp_path / "both.npz").items():
        assert_same(loaded(tmp_path / "two.npz")[name], array, name)


def npy_bytes(array, **keywords):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **keywords)
    return file.getvalue()


GOOD = npy_bytes(X)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            npy_bytes(X.astype("i4")),
            "has dtype '<i4', expected float16, float32, float64, uint16 for bf16, or int16 for "
            "remainders",
        ),
        (npy_bytes(X.astype(">f4")), "has dtype '>f4'"),
        (npy_bytes(np.asfortranarray(X)), "is in Fortran order"),
        (GOOD[:-4], "has shape 2x3 and 20 bytes of data"),
        (GOOD + b"\0" * 4, "has shape 2x3 and 28 bytes of data"),
        (GOOD[:40], "is truncated"),
        (b"PK" + GOOD, "is not in numpy's .npy format"),
        (GOOD[:6] + b"\7" + GOOD[7:], "has version 7 of the .npy format"),
        (GOOD.replace(b"'shape'", b"'shade'"), "has a header that is not numpy's"),
        (GOOD.replace(b"(2, 3)", b"(2, -3)"), "has a header that is not numpy's"),
        (GOOD.replace(b"(2, 3), }  ", b"(2, 3, 0)} "), "has shape 2x3x0 and 24 bytes of data"),
        (GOOD.replace(b"(2, 3), }" + b" " * 31, b"(4294967296, 4294967296, 4294967296, 1)}"),
         "has shape 4294967296x4294967296x4294967296x1 and 24 bytes of data"),
        (GOOD.replace(b"(2, 3), }" + b" " * 15, b"(99999999999999999999,)}"), "not numpy's"),
        (b"", "is not in numpy's .npy format"),
    ],
)  # fmt: skip
def test_bad_npy(tmp_path, source, data, message):
    path = tmp_path / "bad.npy"
    path.write_bytes(data)
    run = run_on(source, f"--tensors=exp_avg={path}")
    assert run.returncode == 1
    assert f"array 'exp_avg' in '{path}' " in run.stderr
    assert message in run.stderr


def test_every_truncation_and_many_changed_bytes_of_an_archive_are_refused(tmp_path):
    good = io.BytesIO()
    np.savez_compressed(good, param=X[:1], grad=X[:1])
    data = good.getvalue()
    rng = np.random.default_rng(0)
    damaged = [data[:length] for length in range(0, len(data), 17)]
    for position in rng.integers(0, len(data), 40):
        copy = bytearray(data)
        copy[position] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(copy))
    refused = 0
    for index, one in enumerate(damaged):
        path = tmp_path / f"{index}.npz"
        path.write_bytes(one)
        run = run_on(path)
        assert run.returncode in (0, 1), run
        refused += run.returncode
    # What is left are bits of dates and attributes, which mean nothing here.
    assert refused > 0.7 * len(damaged)


# --- Command line -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no INPUT is given"),
        ([LION, "--interpret"], "no -o FILE.npz is given"),
        ([LION, "--interpret", "--compare"], "--interpret and --compare exclude each other"),
        ([LION, "--mode=f64", "-o", "x.npz"], "--mode=f64 needs --interpret"),
        ([LION, "--interpret", "-o", "x", "--hyper=lr"], "--hyper lr: expected NAME=NUMBER"),
        (
            [LION, "--interpret", "-o", "x", "--option=a=x"],
            "expected NAME=true, NAME=false or NAME=INTEGER",
        ),
        ([LION, "--interpret", "-o", "x", "--param=f8"], "'f8' is no storage type of param"),
        ([LION, "--interpret", "-o", "x", "--grad=a:f32"], "only states have names"),
        ([LION, "--interpret", "-o", "x", "--no-such-flag"], "no-such-flag"),
        ([LION, "--interpret", "-o", "x", "--steps=0"], "--steps=0: expected 1 or more"),
        ([LION, "--interpret", "-o", "x", "--steps=-1"], "--steps=-1: expected 1 or more"),
        ([LION, "--compare", "--count=0"], "--count=0: expected 1 or more"),
    ],
)
def test_bad_usage_has_status_2(arguments, message):
    run = stepc_run(*arguments)
    assert run.returncode == 2
    assert message in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tensors=none.npz"], "cannot read 'none.npz': No such file"),
        (["--tensors=file.txt"], "'file.txt' is neither FILE.npz nor NAME=FILE.npy"),
        ([], "array 'param' is not given"),
        (["--batch=none.jsonl"], "cannot read 'none.jsonl'"),
    ],
)
def test_refused_input_has_status_1(arguments, message):
    run = stepc_run(LION, "--interpret", "-o", "x.npz", *arguments)
    assert run.returncode == 1
    assert message in run.stderr


def test_array_given_twice(source):
    run = run_on(source, f"--tensors={source}")
    assert run.returncode == 1
    assert "is given a second time" in run.stderr


def test_output_that_cannot_be_written(tmp_path, source):
    run = run_on(source, out=tmp_path / "none" / "out.npz")
    assert run.returncode == 1
    assert "cannot write" in run.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: "),
        ("[]", "line 2: expected an object"),
        ('{"speed": 1}', "line 2: 'speed' is no key of a case"),
        ('{"count": "one"}', "line 2: 'count' is no key of a case or has a wrong value"),
        ('{"steps": 0}', "line 2: 'steps' is no key of a case or has a wrong value"),
        ('{"hypers": {"lr": []}}', "line 2: 'hypers'"),
        ('{"options": {"maximize": 1.5}}', "line 2: 'options'"),
        ('{"mode": "fast"}', "line 2: 'mode'"),
        ('{"fresh": 1}', "line 2: 'fresh'"),
        ('{"param": "f8"}', "line 2: 'param'"),
    ],
)
def test_bad_batches(source, line, message):
    run = stepc_run(
        LION, "--interpret", "-o", "x.npz", "--batch=-", f"--tensors={source}", input="\n" + line
    )
    assert run.returncode == 1
    assert message in run.stderr


def test_command_line_and_batch_agree(tmp_path, source):
    arguments = ["--hyper=lr=0.5", "--hyper=weight_decay=0.25", "--option=maximize=true",
                 "--param=bf16", "--state=exp_avg:bf16", "--steps=3", "--count=4"]  # fmt: skip
    assert run_on(source, *arguments).returncode == 0
    line = {"hypers": {"lr": 0.5, "weight_decay": 0.25}, "options": {"maximize": True},
            "param": "bf16", "state": "exp_avg:bf16", "steps": 3, "count": 4}  # fmt: skip
    run = stepc_run(
        LION, "--interpret", "-o", tmp_path / "batch.npz", "--batch=-", f"--tensors={source}",
        input=json.dumps(line),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    first, second = loaded(tmp_path / "out.npz"), loaded(tmp_path / "batch.npz")
    assert first["param"].dtype == first["exp_avg"].dtype == np.uint16
    for name in first:
        assert_same(first[name], second[name], name)


def test_storage_option_rounds_the_arrays(tmp_path):
    path = write_definition(tmp_path, "step.return %p")
    values = np.random.default_rng(0).standard_normal(100).astype("f4")
    result = interpret(path, {"param": values, "grad": values}, param="bf16")
    assert_same(result["param"], bf16_from(values))


def test_help_names_every_option():
    run = stepc_run("--help")
    assert run.returncode == 0
    for word in ["--interpret", "--compare", "--tensors", "--hyper", "--option", "--rule",
                 "--count", "--fresh", "--steps", "--param", "--grad", "--state", "--batch",
                 "--mode", "--fragment", "--together", "uint16", "Exit status"]:  # fmt: skip
        assert word in run.stdout


def test_together_prefixes_are_tensors_of_one_model(tmp_path):
    path = write_definition(
        tmp_path,
        "%s1 = step.sum %g : [*]\n step.contribute %s, %s1\n"
        "%p1 = step.mul %g, %r : [*], f64\n step.return %p1",
        globals_='%s = step.statistic "s" sum over model\n'
        '%r = step.scalars over model {\n step.report "s", %s\n step.yield %s : f64\n}',
    )
    arrays = tmp_path / "in.npz"
    np.savez(arrays, **{"a/param": X, "a/grad": X, "b/param": X, "b/grad": X})
    out = tmp_path / "out.npz"
    for arguments, expected in (([], 21), (["--together"], 42)):
        run = stepc_run(path, f"--tensors={arrays}", "--interpret", "-o", out, *arguments)
        assert run.returncode == 0, run.stderr
        assert_same(loaded(out)["b/param"], X * np.float32(expected))
    assert_same(loaded(out)["report:s"], [42.0])


def test_fragments_from_the_command_line(tmp_path, source):
    fragment = tmp_path / "negate.mlir"
    fragment.write_text(
        "step.fragment @negate {\n step.rule @any(%g: grad[*]) {\n"
        "  %n = step.neg %g : [*]\n  step.return %n\n }\n}\n"
    )
    assert run_on(source, f"--fragment={fragment}").returncode == 0
    expected = interpret(LION, {"param": X, "grad": -X})["param"]
    assert_same(loaded(tmp_path / "out.npz")["param"], expected)
    # What is compiled is the same.
    run = stepc_run(LION, f"--tensors={source}", "--compare", f"--fragment={fragment}")
    assert run.returncode == 0, run.stdout + run.stderr


# --- Rules and sources ----------------------------------------------------------

TWO_RULES = """
step.optimizer @x {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %a: state "a"[n, m], %b: state "b"[n, m]) {
    %p1 = step.sub %p, %a : [n, m]
    step.return %p1, %g, %g : [n, m], [n, m], [n, m]
  }
  step.rule @any(%p: param[*], %g: grad[*], %a: state "a"[*], %b: state "b"[*]) {
    %p1 = step.sub %p, %b : [*]
    step.return %p1, %g, %g
  }
}
"""


def test_rules_may_drop_different_states(tmp_path):
    (tmp_path / "two.mlir").write_text(TWO_RULES)
    np.savez(tmp_path / "in.npz", **{"a/param": X, "a/grad": X, "b/param": X[0], "b/grad": X[0]})
    how = [tmp_path / "two.mlir", f"--tensors={tmp_path}/in.npz", "--together", "--steps=2"]
    run = stepc_run(*how, "--compare")
    assert run.returncode == 0, run.stderr
    assert stepc_run(*how, "-o", tmp_path / "out.npz").returncode == 0
    assert loaded(tmp_path / "out.npz").keys() == {"a/param", "a/a", "b/param", "b/b"}


def inserted_operations():
    """Those that no source may say, as the language reference lists them."""
    text = (ZOO.parents[1] / "docs" / "language.md").read_text()
    section = text.partition("## Operations that passes insert into rules")[2].partition("\n## ")[0]
    return [name for name in re.findall(r"^### `step\.(\w+)`", section, re.M) if name != "stored"]


INSERTED = {
    "broadcast": "%x = step.broadcast %p : [*] to [*]",
    "upper_half": "%x = step.upper_half %p : [*]",
    "lower_half": "%x = step.lower_half %p : [*]",
    "join_halves": "%x = step.join_halves %p, %g : [*], [*]",
    "carried": '%x = step.carried "x"',
    "carry": "%x = step.sum %p : [*]\nstep.carry %x as %x of %x",
    "to_i64": "%x = step.to_i64 %one",
    "round_stochastic": "%i = step.to_i64 %one\n"
    '%x = step.round_stochastic %p at %p, %i, %i of "" : [*]',
}


def test_each_operation_that_passes_insert_is_known_here():
    assert sorted(inserted_operations()) == sorted(INSERTED)


@pytest.mark.parametrize("name", INSERTED)
def test_compiler_and_interpreter_refuse_the_same(name, tmp_path, source):
    """Also where no result depends on it."""
    refuse_the_same(f"{INSERTED[name]}\n step.return %p", tmp_path, source)


@pytest.mark.parametrize("word", ["across [tp]", "unless %o"])
def test_what_passes_say_of_a_reduction_is_refused(word, tmp_path, source):
    refuse_the_same(f"%x = step.sum %g {word} : [*]\n step.return %p", tmp_path, source)


def refuse_the_same(body, tmp_path, source):
    path = write_definition(
        tmp_path, body, globals_='%one = step.constant 1.0\n%o = step.option "o" = false'
    )
    compiled = subprocess.run(
        [STEPC, path, "-o", tmp_path / "x.stepc"], capture_output=True, text=True, check=False
    )
    run = stepc_run(path, f"--tensors={source}", "--interpret", "-o", tmp_path / "out.npz")
    assert compiled.returncode == run.returncode == 1
    # What a verifier refuses both refuse alike.
    words = compiled.stderr.partition("error: ")[2].split("\n")[0]
    assert "is no operation of a source definition" in run.stderr or words in run.stderr
    assert "is no operation of a source definition" in words or "op " in words


@pytest.mark.parametrize("name", ["adamw", "adafactor", "asgd"])
def test_what_the_define_stage_leaves_means_the_same(name, tmp_path):
    text = subprocess.run(
        [STEPC, ZOO / f"{name}.mlir", "--compile-to=define"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "defined.mlir").write_text(text)
    arrays = {"param": X, "grad": X}
    for mode in ("exact", "f64"):
        one, other = (
            interpret(path, arrays, steps=2, mode=mode, state="f32")
            for path in (ZOO / f"{name}.mlir", tmp_path / "defined.mlir")
        )
        dropped = one.keys() - other.keys()
        assert dropped <= {"RMS", "trust_ratio"}
        for key in other:
            assert_same(one[key], other[key])
