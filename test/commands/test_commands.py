# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m stepc``: info, explain, cache and check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stepc(tmp_path):
    """Runs a command with a cache of its own."""

    def run(*arguments, **variables):
        env = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}
        env |= {"STEPC_CACHE_DIR": str(tmp_path / "cache"), **variables}
        env = {name: value for name, value in env.items() if value is not None}
        command = [sys.executable, "-m", "stepc", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    return run


def fill(folder: Path):
    """The cache, with what a first step keeps."""
    code = (
        "import torch, stepc.torch\n"
        "p = torch.nn.Parameter(torch.ones(3)); p.grad = torch.ones(3)\n"
        "stepc.torch.SGD([p]).step()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "frontend"), "STEPC_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_info(stepc):
    done = stepc("info", "--json", STEPC_LOG="error")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["stepc"] == "0.1.0" and found["runtime_version"] == "0.1"
    assert Path(found["compiler"]).is_file() and Path(found["runtime"]).is_file()
    assert found["processor"].startswith("x86-64-v") and found["reading"] == "direct"
    assert found["STEPC_LOG"] == "error" and found["cache_entries"] is None
    lines = stepc("info", STEPC_RUNTIME_LIBRARY="/nonexistent").stdout.splitlines()
    assert ["runtime", "none"] in [line.split() for line in lines]


def test_info_without_torch(stepc, tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No torch', name='torch')\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "frontend")))
    done = stepc("info", PYTHONPATH=path)
    assert done.returncode == 0 and "not usable: stepc.torch needs torch 2.6" in done.stdout
    done = stepc("check", PYTHONPATH=path)
    assert done.returncode == 0 and "torch      left out: torch is not installed" in done.stdout


def test_cache(stepc, tmp_path):
    folder = tmp_path / "cache"
    assert "nothing has been kept yet" in stepc("cache", "list").stdout
    fill(folder)
    stranger = folder / "ab" / "notes.txt"
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("mine")
    lines = stepc("cache", "list").stdout.splitlines()
    assert sorted(line.split()[1] for line in lines[:-1]) == ["interface", "package"]
    assert lines[-1].startswith(f"'{folder}': 2 entries of ")
    assert "2 of " in stepc("info").stdout
    assert "removed 0 files" in stepc("cache", "clear", "--older-than", "1").stdout
    assert "removed 2 files" in stepc("cache", "clear").stdout
    assert [path for path in folder.rglob("*") if path.is_file()] == [stranger]
    done = stepc("cache", "clear", "--older-than", "-1")
    assert done.returncode == 1
    assert done.stderr == "stepc: error: --older-than is -1.0, which is no number of days\n"


def test_a_cache_of_others_is_left_alone(stepc, tmp_path):
    folder = tmp_path / "cache"
    fill(folder)
    folder.chmod(0o777)
    done = stepc("cache", "clear")
    assert done.returncode == 1 and "others than its owner, " in done.stderr
    assert len(list(folder.rglob("*.package"))) == 1


def test_explain(stepc):
    done = stepc("explain", "adamw")
    assert done.returncode == 0 and "28 bytes per parameter; least possible 28" in done.stdout
    path = ROOT / "frontend" / "optimizers" / "adafactor.mlir"
    assert "rule matrix" in stepc("explain", str(path), "--", "--layout=-1=tp").stdout
    done = stepc("explain", "adamv")
    assert done.returncode == 1
    assert done.stderr == "stepc: error: no optimizer 'adamv' comes with this installation\n"


def test_check(stepc, tmp_path):
    done = stepc("check")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.returncode == 0, done.stdout
    assert list(lines) == ["compiler", "runtime", "cache", "step", "torch"]
    assert all(said.startswith("ok: ") for said in lines.values())
    # What it tried with is gone.
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("STEPC_COMPILER", "/nonexistent", "compiler"),
        ("STEPC_RUNTIME_LIBRARY", "/nonexistent", "runtime"),
        ("STEPC_CACHE_DIR", "/proc/nowhere", "cache"),
    ],
)
def test_check_finds(stepc, variable, value, part):
    done = stepc("check", **{variable: value})
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.returncode == 1 and lines[part].startswith("failed: "), done.stdout
    assert "Traceback" not in done.stderr


def test_a_wrong_step_is_found(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "frontend"))
    from stepc import _runtime, cli

    monkeypatch.setattr(_runtime.Plan, "step", lambda self: None)
    assert cli.main(["check"]) == 1
    assert "element 1 is 1.0 after a step of SGD, expected 0" in capsys.readouterr().out


def test_plan(stepc):
    arguments = ("adamw", "--model", "gpt2", "--ranks", "2")
    done = stepc("plan", *arguments, "--advise", "--json", "--state", "q8", "--layout", "zero2")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["rungs"][0]
    assert first["constructor"] == (
        'stepc.torch.AdamW(model.parameters(), zero=stepc.torch.Zero(2), state_dtype="q8")'
    )
    done = stepc("plan", *arguments, "--layout", "zero4")
    assert done.returncode == 1 and done.stderr.startswith("stepc: error: unknown layout 'zero4'")
