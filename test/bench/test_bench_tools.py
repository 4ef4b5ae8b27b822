# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The benchmarks that stand alone: two builds in turn (here twice the same one), and steps within
the backward pass."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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


def test_states_as_codes(tmp_path):
    """Bytes a parameter are those of codes and scales; peers that are not there are said."""
    command = [sys.executable, str(ROOT / "tools" / "bench" / "states.py"), "--shapes", "smoke"]
    command += ["--dtypes", "f32", "--rounds", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "states.txt").read_text()
    rows = re.findall(r"^(.+?)  +([\d.]+) +([\d.]+) +([\d.]+)$", said, re.M)
    sizes = {name: float(size) for name, _, size, _ in rows}
    assert sizes["stepc.torch.AdamW"] == 8 and sizes["stepc AdamW, states of 8 bits"] == 2.125
    assert re.search(r"^bitsandbytes AdamW8bit +(not installed|[\d.]+ )", said, re.M)


def test_training_with_states_of_several_formats(tmp_path):
    """The script behind the figures of docs/states.md, for a few steps; a step of codes as
    bitsandbytes' kernels make them keeps what their table can hold."""
    command = [sys.executable, str(ROOT / "tools" / "demo" / "states.py"), "--models", "wide"]
    command += ["--steps", "1", "10", "--rows", "1", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "states.json").read_text())["wide"]
    assert list(found) == ["f32", "q8", "bnb-cuda"]
    starts = {run["losses"][0] for run in found.values()}
    assert len(starts) == 1 and all(run["losses"][-1] < min(starts) for run in found.values())
    assert (tmp_path / "states.png").stat().st_size > 10_000


def load_dynamic_map():
    path = ROOT / "tools" / "demo" / "dynamic_map.py"
    spec = importlib.util.spec_from_file_location("dynamic_map", path)
    dynamic_map = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dynamic_map)
    return dynamic_map


def test_the_table_of_bitsandbytes():
    """256 numbers in order; a number that is small beside the largest one of its block has the
    code of 0, which is how an exact 0 comes back too."""
    dynamic_map = load_dynamic_map()
    for signed, least in ((True, 5.5e-7), (False, 3.25e-7)):
        table = dynamic_map.dynamic_map(signed)
        assert len(table) == 256 and torch.equal(table, table.sort().values)
        assert float(table.abs()[table != 0].min()) == pytest.approx(least)
    codes = dynamic_map._Codes(torch.zeros(300), signed=False)
    values = torch.full((300,), 1e-7)
    values[[0, 299]] = torch.tensor([1.0, 0.5])
    codes.write(values)
    read = codes.read((300,))
    assert float(read[0]) == 1.0 and read[1:256].eq(0).all()
    assert float(read[299]) == 0.5 and float(read[256]) == pytest.approx(0.5 * 3.25e-7)


def test_first_moments_of_bitsandbytes_keep_their_sign():
    """Its kernel moves a code by one where the entry's sign bit is not the moment's: what is below
    0, and -0, has the entry below 0 and not 0; what is above 0 may have 0, whose sign is +."""
    codes = load_dynamic_map()._Codes(torch.zeros(6), signed=True)
    codes.write(torch.tensor([1.0, 1e-8, -1e-8, 0.0, -0.0, -5.5e-7]))
    least = pytest.approx(-5.5e-7)
    assert codes.read((6,)).tolist() == [1.0, 0.0, least, 0.0, least, least]
