# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/examples/vit_hybrid.py, a few steps of it: four ranks against one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def losses(folder, *arguments):
    command = [sys.executable, ROOT / "tools" / "examples" / "vit_hybrid.py", "--out", folder]
    paths = os.pathsep.join([str(ROOT / "frontend"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [*command, "--epochs", "1", *arguments], capture_output=True, text=True, timeout=300,
        check=False, env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
    assert "test accuracy" in run.stdout and (folder / "vit_hybrid.png").stat().st_size > 1000
    return json.loads((folder / "vit_hybrid.json").read_text())


# Differences of losses near 2: of float16 sums of a few hundred products each, and of float32's.
@pytest.mark.parametrize(("zero", "precision", "apart"), [("1", "fp32", 2e-6), ("2", "fp16", 5e-3)])
def test_four_ranks_learn_as_one_process(tmp_path, zero, precision, apart):
    given = ["--ranks", "4", "--zero", zero, "--precision", precision, "--steps", "6"]
    runs = losses(tmp_path, *given, "--lr", "0.005")
    four, one = runs["4 ranks"], runs["one process"]
    assert len(four["losses"]) == len(one["losses"]) == 6
    for key in ("losses", "norms"):
        assert four[key] == pytest.approx(one[key], rel=apart), key
    assert four["rates"] == one["rates"] and four["scales"] == one["scales"]
    assert one["losses"][5] < one["losses"][0] - 0.1
    assert max(four["norms"]) > 1.0, "nothing was clipped"
