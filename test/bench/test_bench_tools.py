# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The benchmarks that stand alone: two builds in turn (here twice the same one), and steps within
the backward pass."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_build_beside_itself():
    command = [sys.executable, str(ROOT / "tools" / "bench" / "builds.py"), str(ROOT), str(ROOT)]
    command += ["--optimizers", "stepc,stepc-lion", "--shapes", "smoke", "--rounds", "2"]
    command += ["--dtypes", "f32", "--definitions", "adamw"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(.+?) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
    assert [what for what, *_ in rows] == [
        "compile adamw.mlir",
        "stepc smoke f32",
        "stepc-lion smoke f32",
    ]
    assert all(float(figure) > 0 for _, *figures in rows for figure in figures)
    assert "median of 2 cases" in done.stdout


def test_gradients_within_the_pass():
    command = [sys.executable, str(ROOT / "tools" / "bench" / "fused_backward.py")]
    command += ["--layers", "4", "--width", "32", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(.+?), (behind|within) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
    assert [how for _, how, *_ in rows] == ["behind", "within"] * 2 + ["within"]


def test_gradients_within_the_pass_on_ranks():
    command = [sys.executable, str(ROOT / "tools" / "bench" / "fused_backward.py")]
    command += ["--layers", "4", "--width", "32", "--rounds", "1", "--ranks", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(.+), (behind|within) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.M)
    assert [how for _, how, *_ in rows] == ["behind"] * 2 + ["within", "behind"] + ["within"] * 2


def test_steps_that_refresh():
    pytest.importorskip("pytorch_optimizer")
    command = [sys.executable, str(ROOT / "tools" / "bench" / "refreshes.py")]
    command += ["--width", "16", "--rounds", "1", "--most", "32"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\S+ ?SOAP|\S+Shampoo|\S+AdamW) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$",
                      done.stdout, re.M)  # fmt: skip
    assert [name for name, *_ in rows] == [
        "stepc.torch.SOAP", "pytorch_optimizer SOAP", "stepc.torch.Shampoo", "stepc.torch.AdamW",
    ]  # fmt: skip
    assert re.search(r"theirs over ours, of the mean: \d", done.stdout)
