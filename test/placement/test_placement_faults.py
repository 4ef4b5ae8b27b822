# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of what brings states into memory are seen by the tests here."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from samples import sample

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("STEPC_BUILD", ROOT / "build"))
LIBRARY = BUILD / "lib/libstepc_runtime_faulty.so"
TESTS = "test_any_number_of_threads and 2"


def faults():
    text = "".join(path.read_text() for path in (ROOT / "runtime").rglob("*.cpp"))
    return sorted(set(re.findall(r'STEPC_FAULT\(\s*"(store-[^"]+)"\)', text)))


@pytest.mark.parametrize("fault", sample(faults(), "faults of stores", 3))
def test_a_fault_is_seen(fault):
    environment = os.environ | {"STEPC_FAULT": fault, "STEPC_RUNTIME_LIBRARY": str(LIBRARY)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HERE,
               f"--ignore={__file__}", "-k", TESTS]  # fmt: skip
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # Addresses of a store cannot be read: that ends the process.
    assert run.returncode in (1, -signal.SIGSEGV), run.stdout[-2000:]
    assert "assert" in run.stdout or run.returncode < 0


def test_there_are_some():
    assert len(faults()) >= 6
