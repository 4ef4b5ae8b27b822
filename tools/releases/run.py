#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tries releases of torch: how they are read, how fast a step of many tensors is, and the
frontend's tests.

    tools/releases/run.py FOLDER 2.15.0 2.14.1 ...

Each release gets an environment of its own in FOLDER (some GB: releases on PyPI are CUDA
builds, which run without a device); one that is there already is used as it is. Prints a row a
release for the table in docs/install.md; logs are in FOLDER. ``--no-tests`` leaves the tests
out, ``--tests PATHS`` takes others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEASURE = Path(__file__).with_name("measure.py")
REQUIREMENTS = ROOT / "tools" / "setup" / "requirements.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--tests", nargs="+", default=["test/frontend"], metavar="PATH")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print("| torch | read | AdamW, ms | torch's fused, ms | passed | failed | skipped |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for release in options.releases:
        python = environment(options.folder / release, release)
        measured = measure(python)
        tests = [] if options.no_tests else options.tests
        counts = run_tests(python, options.folder / release, tests) if tests else ("-",) * 3
        cells = [measured["torch"], measured["reading"]]
        cells += [f"{measured[name]:.2f}" for name in ("ours", "theirs")]
        print("| " + " | ".join([*cells, *map(str, counts)]) + " |", flush=True)


def environment(folder: Path, release: str) -> Path:
    """The Python of an environment with that release and what the tests need."""
    python = folder / "bin" / "python"
    if python.is_file():
        return python
    lines = REQUIREMENTS.read_text().split()
    others = [line for line in lines if not line.startswith("torch==")]
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, f"torch=={release}", *others], check=True)
    return python


def run(python: Path, *arguments: str, log: Path | None = None) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}
    command = [str(python), *arguments]
    if log is None:
        return subprocess.run(command, env=env, cwd=ROOT, check=True, capture_output=True)
    with log.open("wb") as out:
        return subprocess.run(command, env=env, cwd=ROOT, stdout=out, stderr=out, check=False)


def measure(python: Path) -> dict:
    return json.loads(run(python, str(MEASURE)).stdout)


def run_tests(python: Path, folder: Path, tests: list[str]) -> tuple[int, int, int]:
    """How many passed, failed (or were errors) and were skipped."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    # A worker that crashed is not replaced: pytest-xdist may wait for its file's tests for ever.
    arguments = ("-n", "2", "--dist", "loadfile", "--max-worker-restart=0", "-q")
    arguments += (f"--junitxml={report}",)
    run(python, "-m", "pytest", *arguments, *tests, log=folder / "tests.log")
    suite = ElementTree.parse(report).getroot().find("testsuite")
    total, *others = (int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped"))
    failures, errors, skipped = others
    return total - failures - errors - skipped, failures + errors, skipped


if __name__ == "__main__":
    main()
