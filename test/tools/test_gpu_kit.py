# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kit for machines with a GPU is whole: unpacked elsewhere it runs without a compiler."""

import ast
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """Of one optimizer, for a device without cubins and the processor."""
    folder = tmp_path_factory.mktemp("kit")
    archive = folder / "kit.tar.gz"
    command = [sys.executable, ROOT / "tools/gpu/build_kit.py", "--targets", "compute_100",
               "--optimizers", "AdamW", "--out", archive]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "25 packages" in done.stdout  # of four storages: three for processors; of ranks
    elsewhere = folder / "elsewhere"
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(elsewhere, filter="data")
    return elsewhere / "kit"


def run_kit(kit, *arguments):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, kit / "run.py", "--device", "cpu", *arguments]
    return subprocess.run(
        command, cwd=kit.parent, env=kept | {"PYTHONWARNINGS": "ignore"}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(kit, tmp_path_factory):
    """The file of a run of all parts; other runs write to the same place."""
    done = run_kit(kit, "--quick", "--optimizers", "AdamW")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = tmp_path_factory.mktemp("results") / "results.json"
    return (kit.parent / "results.json").rename(kept)


def test_the_kit_runs(results):
    results = json.loads(results.read_text())
    assert [check["wrong"] for check in results["correctness"]] == [""]
    # torch's inductor does not quote the paths that it gives to the C++ compiler.
    failing = {"torch compiled"} if " " in sys.prefix else set()
    for case in results["benchmark"]:
        assert set(case["errors"]) <= failing and case["contestants"]["stepc"]["seconds"] > 0
    assert {case["storage"] for case in results["benchmark"]} == {"f32", "bf16", "bf16+f32"}


def test_ranks_need_no_compiler(kit):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", kit / "check_ranks.py",
               "--device", "cpu", "--optimizers", "AdamW"]  # fmt: skip
    done = subprocess.run(
        command, cwd=kit.parent, env=kept | {"OMP_NUM_THREADS": "1"}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(": same") == 5


# Of the standard library, since Python 3.11 or later.
NEWER = {
    "tomllib", "UTC", "StrEnum", "Self", "LiteralString", "assert_never", "reveal_type", "override",
    "batched", "file_digest", "chdir", "TaskGroup", "ExceptionGroup", "BaseExceptionGroup",
    "add_note", "cbrt", "exp2", "sumprod", "getLevelNamesMapping", "is_junction", "enterContext",
    "TypeAliasType", "process_cpu_count",
}  # fmt: skip


def names_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.name for alias in node.names)


def test_the_kit_is_of_python_3_10(kit):
    """Its grammar, and names of the library."""
    files = sorted(kit.rglob("*.py"))
    assert len(files) > 100
    for file in files:
        tree = ast.parse(file.read_text(), str(file), feature_version=(3, 10))
        for name in names_in(tree):
            assert name not in NEWER, f"{file.name}: {name}"


def test_wrong_steps_are_seen(kit):
    """Where torch's own step is another one."""
    script = kit / "kit_cases.py"
    before = script.read_text()
    changed = before.replace("_optim.AdamW, lr=1e-3, weight", "_optim.Adam, lr=1e-3, weight")
    assert changed != before
    try:
        script.write_text(changed)
        done = run_kit(kit, "--quick", "--optimizers", "AdamW", "--parts", "correctness")
    finally:
        script.write_text(before)
    assert done.returncode == 1 and "off torch's float64 by" in done.stdout


def test_all_targets_are_in_it():
    from stepc.torch.tensors import devices as _devices

    source = (ROOT / "tools/gpu/build_kit.py").read_text()
    for target in _devices.TARGETS:
        assert f'"{target}"' in source


def test_a_report(results, tmp_path):
    page = tmp_path / "gpu.md"
    page.write_text((ROOT / "docs" / "gpu.md").read_text())
    command = [sys.executable, ROOT / "tools/gpu/kit_report.py", results,
               "--page", page, "--plot", tmp_path / "gpu.png"]  # fmt: skip
    subprocess.run(command, check=True, timeout=120)
    assert "| AdamW | smoke | bf16+f32 |" in page.read_text()
    assert "Correctness: 1 checks, 0 of them wrong" in page.read_text()
    assert (tmp_path / "gpu.png").stat().st_size > 1000
