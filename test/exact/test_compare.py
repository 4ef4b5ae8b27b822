# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stepc-run on packages, and its comparison of compiled with interpreted results."""

import hashlib
import io
import shutil
import subprocess
import zipfile

import numpy as np
import pytest
from driver import compile_package
from oracle import STEPC_RUN, ZOO, assert_same, stepc_run

SGD = ZOO / "sgd.mlir"
HYPERS = ["--hyper=momentum=0.9", "--hyper=lr=0.1"]


@pytest.fixture
def source(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "in.npz"
    np.savez(path, **{name: rng.standard_normal((5, 9)).astype("f4") for name in ("param", "grad")})
    return path


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "package.stepc"
    path.write_bytes(compile_package(SGD, tmp_path, "sgd"))
    return path


def rewritten(path, change):
    """The package with its source changed, sealed anew."""
    with zipfile.ZipFile(path) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for info, data in members:
            archive.writestr(info, change(data) if info.filename == "source.mlir" else data)
        archive.comment = b"0" * 64
    data = buffer.getvalue()[:-64]
    target = path.with_name("rewritten.stepc")
    target.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    return target


def run(definition, source, *arguments):
    return stepc_run(definition, f"--tensors={source}", *HYPERS, *arguments)


def loaded(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_three_ways_to_run_agree(tmp_path, source, package):
    ways = {"compiled": (SGD,), "package": (package,), "interpreted": (SGD, "--interpret"),
            "source of the package": (package, "--interpret")}  # fmt: skip
    results = {}
    for name, (definition, *flags) in ways.items():
        out = tmp_path / f"{name}.npz"
        finished = run(definition, source, "--steps=3", "-o", out, *flags)
        assert finished.returncode == 0, finished.stderr
        results[name] = loaded(out)
    for name, arrays in results.items():
        assert arrays.keys() == {"param", "momentum_buffer"}
        for array, values in arrays.items():
            assert_same(values, results["compiled"][array], f"{name}, {array}")


def test_no_difference(source, package):
    for definition in (SGD, package):
        finished = run(definition, source, "--compare")
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout == "1 case: no difference\n"


def test_difference(tmp_path, source, package):
    other = rewritten(package, lambda text: text.replace(b"step.sub %theta,", b"step.add %theta,"))
    finished = run(other, source, "--compare", "-o", tmp_path / "out.npz")
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("param: 45 of 45 elements differ, first element 0: interpreted ")
    assert ", compiled " in lines[0]
    assert lines[1] == "1 case: differences"
    # The results of a comparison are the compiled ones.
    param, grad = (loaded(source)[name] for name in ("param", "grad"))
    assert_same(loaded(tmp_path / "out.npz")["param"], param - grad * np.float32(0.1))


def test_any_nan_equals_any_nan(tmp_path, source):
    arrays = loaded(source)
    arrays["grad"].view(np.uint32).flat[:3] = [0x7FC00001, 0xFF800123, 0x7F812345]
    np.savez(source, **arrays)
    assert run(SGD, source, "--compare", "-o", tmp_path / "out.npz").returncode == 0
    assert np.isnan(loaded(tmp_path / "out.npz")["param"]).sum() == 3


def test_batch_compares_each_case(source):
    lines = '{"hypers": {"lr": 0.5}}\n{"options": {"maximize": true}}\n{"param": "bf16"}\n'
    finished = stepc_run(SGD, f"--tensors={source}", "--compare", "--batch=-", input=lines)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "3 cases: no difference\n"


@pytest.mark.parametrize("position", [0, 40, -1, -70])
def test_damaged_package(source, package, position):
    data = bytearray(package.read_bytes())
    data[position] ^= 1
    package.write_bytes(data)
    finished = run(package, source, "--interpret", "-o", "x.npz")
    assert finished.returncode == 1
    assert f"cannot load '{package}': " in finished.stderr


def test_package_without_the_variant(source, package):
    finished = run(package, source, "--param=f64", "-o", "x.npz")
    assert finished.returncode == 1
    assert "cannot bind the tensors: " in finished.stderr
    finished = run(package, source, "--option=nesterov=true", "-o", "x.npz")
    assert finished.returncode == 1
    assert "cannot " in finished.stderr


def test_definition_that_the_compiler_refuses(source):
    finished = run(SGD, source, "--param=f64", "--state=bf16", "-o", "x.npz")
    assert finished.returncode == 1
    assert f"'stepc' refused '{SGD}' with --variant=param=f64" in finished.stderr


def test_missing_compiler(tmp_path, source):
    alone = tmp_path / "stepc-run"
    shutil.copy(STEPC_RUN, alone)
    finished = subprocess.run(
        [alone, SGD, f"--tensors={source}", "-o", "x.npz"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 1
    assert f"cannot find 'stepc' beside '{alone}'" in finished.stderr
