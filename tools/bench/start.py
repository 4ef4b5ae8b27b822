#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long the first minutes take: installing the wheel, importing, a first step.

    tools/bench/start.py            builds a wheel, measures, prints a table
    tools/bench/start.py WHEEL      takes that wheel

Each figure is of new processes, a median of ``--rounds`` in turn. "Cold": the cache is empty, so
the step compiles; the compiler's files are in memory. torch is that of this environment, and its
own import and first step are not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

IMPORT = """
import time, torch
torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
begin = time.perf_counter()
import stepc.torch
print(time.perf_counter() - begin)
"""

FIRST_STEP = """
import time, torch, stepc.torch
params = [torch.nn.Parameter(torch.ones(64, 64)) for _ in range(4)]
for param in params:
    param.grad = torch.ones(64, 64)
torch.optim.AdamW(params, fused=True).step()
optimizer = stepc.torch.{name}(params)
begin = time.perf_counter()
optimizer.step()
print(time.perf_counter() - begin)
"""
OPTIMIZERS = ("AdamW", "hf.Adafactor", "Adafactor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wheel", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = given.wheel or build(Path(folder))
        found: dict[str, list[float]] = {}
        for _ in range(given.rounds):
            for name, seconds in measure(Path(folder), wheel):
                found.setdefault(name, []).append(seconds)
        print(f"wheel: {wheel.stat().st_size / 1e6:.1f} MB\n")
        print("| | seconds | all |\n|---|---|---|")
        for name, values in found.items():
            every = ", ".join(f"{value:.3g}" for value in values)
            print(f"| {name} | {statistics.median(values):.3g} | {every} |")


def build(folder: Path) -> Path:
    program = ROOT / "tools" / "wheel" / "build.py"
    subprocess.run(
        [sys.executable, program, "--out", folder / "dist"], check=True, stdout=sys.stderr
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def measure(folder: Path, wheel: Path):
    """What was measured, and seconds, of one round in an environment of its own."""
    environment, cache = folder / "environment", folder / "cache"
    for old in (environment, cache):
        shutil.rmtree(old, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = environment / "bin" / "python"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "STEPC_CACHE_DIR": str(cache)}

    def run(*arguments) -> str:
        command = [python, *arguments]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    adamw = FIRST_STEP.format(name="AdamW")
    begin = time.perf_counter()
    run("-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)
    installed = time.perf_counter()
    run("-c", adamw)
    yield "pip install", installed - begin
    yield (
        "pip install and a process that steps once, torch's import included",
        (time.perf_counter() - begin),
    )
    yield "import stepc.torch, beyond torch", float(run("-c", IMPORT))
    for name in OPTIMIZERS:
        shutil.rmtree(cache, ignore_errors=True)
        script = FIRST_STEP.format(name=name)
        yield f"first step of {name}, cold", float(run("-c", script))
        yield f"first step of {name}, from the cache", float(run("-c", script))


if __name__ == "__main__":
    main()
