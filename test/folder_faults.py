# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of the runtime that the tests of one folder see."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("STEPC_BUILD", ROOT / "build"))
LIBRARY = BUILD / "lib/libstepc_runtime_faulty.so"


def faults(prefix):
    """Their names."""
    text = "".join(path.read_text() for path in (ROOT / "runtime").rglob("*.cpp"))
    return sorted(set(re.findall(rf'STEPC_FAULT\(\s*"({prefix}-[^"]+)"\)', text)))


def run_with(fault, file, tests):
    """How those tests end that stand beside ``file`` and that ``tests`` picks, with the fault."""
    environment = os.environ | {"STEPC_FAULT": fault, "STEPC_RUNTIME_LIBRARY": str(LIBRARY)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               Path(file).parent, f"--ignore={file}", "-k", tests]  # fmt: skip
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
