# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs in tools/examples are built as they say, and do what they say."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
LIBRARY = Path(
    os.environ.get("STEPC_RUNTIME_LIBRARY", ROOT / "build" / "lib" / "libstepc_runtime.so")
)
ZOO = ROOT / "frontend" / "optimizers"


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    program = tmp_path_factory.mktemp("examples") / "regression"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'runtime/include'}"]
    source = ROOT / "tools" / "examples" / "regression.cpp"
    compiler = os.environ.get("CXX", "c++")
    library = [str(LIBRARY), f"-Wl,-rpath,{LIBRARY.parent}"]
    subprocess.run([compiler, *flags, source, *library, "-o", program], check=True)
    return program


@pytest.mark.parametrize(("name", "fragments"), [("adamw", ["clip_by_norm", "ema"]), ("rprop", [])])
def test_regression(regression, tmp_path, name, fragments):
    package = tmp_path / f"{name}.stepc"
    arguments = [f"--fragment={ZOO / 'fragments' / f'{f}.mlir'}" for f in fragments]
    subprocess.run([STEPC, ZOO / f"{name}.mlir", *arguments, "-o", package], check=True)
    run = subprocess.run([regression, package], check=True, capture_output=True, text=True)
    first, last, furthest = map(float, re.findall(r"\S+e[+-]\d+", run.stdout))
    assert first > 0.5 and last < 1e-4 and furthest < 0.05


def test_an_error_is_said(regression, tmp_path):
    run = subprocess.run([regression, tmp_path / "none.stepc"], capture_output=True, text=True)
    assert run.returncode == 1 and "none.stepc" in run.stderr
