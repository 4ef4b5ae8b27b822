# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs killed_ranks.py, for test_killed.py and test_timeout.py."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def said_of(arguments, shared=True) -> str:
    """What is not as it should be, "" where all is. ``shared``: whether ranks exchange through
    memory, or through the sockets of Gloo alone."""
    variables = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parents[1] / "frontend"),
        "PYTHONWARNINGS": "ignore",
        "STEPC_SHARED_MEMORY": str(int(shared)),
    }
    run = subprocess.run(
        [sys.executable, str(HERE / "killed_ranks.py"), *arguments],
        env=os.environ | variables,
        capture_output=True, text=True, timeout=120 + 60 * len(arguments), check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def warm_up(kinds) -> None:
    """Has the cache know what the kinds need: a deadline is not of a compiler's."""
    assert said_of([f"{kind},-1," for kind in kinds], shared=False) == ""
