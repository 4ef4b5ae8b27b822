# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process whose states are ten times the windows takes the windows' memory for them."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "tools/bench/placement.py"
WINDOWS = 4 * 8 << 20
TENSORS = 10  # of 2048 x 2048, with two states of float32


def peak(folder, where):
    words = [sys.executable, BENCH, "--path", folder, "--tensors", str(TENSORS), "--peak", where]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])


def test_the_most_that_a_process_takes(tmp_path):
    states = TENSORS * 2048 * 2048 * 8
    assert states == 10 * WINDOWS
    assert peak(tmp_path, "memory") > 0.95 * states
    assert peak(tmp_path, "disk") < 1.25 * WINDOWS
