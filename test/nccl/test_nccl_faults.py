# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of the world over NCCL, each of which some test of this folder must see."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from double import FAULTY_RUNTIME, ROOT

NAMES = sorted(
    name
    for path in (ROOT / "runtime" / "nccl").glob("*.cpp")
    for name in re.findall(r'STEPC_FAULT\(\s*"(nccl-[^"]+)"\)', path.read_text())
)


def run(name):
    environment = {
        **os.environ, "STEPC_RUNTIME_LIBRARY": str(FAULTY_RUNTIME), "STEPC_FAULT": name,
        "PYTHONPATH": str(ROOT / "frontend"),
    }  # fmt: skip
    script = Path(__file__).with_name("nccl_faults.py")
    return subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )


def test_there_are_enough_faults():
    assert len(NAMES) == len(set(NAMES)) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_seen(name):
    seen = run(name)
    assert seen.returncode == 1 and seen.stdout, f"{name}: {seen.stderr[-400:]}"


def test_without_a_fault_nothing_is_seen():
    seen = run("none")
    assert seen.returncode == 0, seen.stdout
