"""The distributed benchmark's harness runs and counts. No time is judged here.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_two_ranks(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "bench" / "distributed.py")]
    command += ["--shape", "smoke", "--ranks", "2", "--rounds", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "distributed.json").read_text())
    assert (tmp_path / "distributed.txt").read_text() in done.stdout
    # torch's Adafactor raises on DTensors.
    assert set(results["absent"]) <= {"rows-torch-adafactor"}, results["absent"]
    assert all(len(values) == 2 for values in results["seconds"].values())
    assert len(results["ratios"]) == 19
    sent = results["sent"]
    assert sent["rows-adamw"] == {"calls": 0, "bytes": 0.0}
    # 1106 elements, of which the first rank has 560: lines of 64 bytes. And which of five tensors
    # have a gradient, with the digest of what ranks must have alike.
    assert sent["zero-adamw"] == {"calls": 2, "bytes": 4 * 560 + 16 * 6}
    half = sent["zero-adamw-local"]["bytes"] - sent["zero-adamw-half"]["bytes"]
    assert half == 2 * 553  # gradients in bfloat16
    assert sent["colossal"]["calls"] == 2 + 5
