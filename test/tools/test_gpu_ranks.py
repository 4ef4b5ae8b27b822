# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu/check_ranks.py without a GPU: it compares the processor with itself, and says what
differs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "gpu" / "check_ranks.py"


def test_two_ranks():
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
         "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(SCRIPT), "--device",
         "cpu", "--optimizers", "AdamW"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[:3000]
    layouts = ["zero=1, local", "zero=1, reduced", "zero=2", "DTensors", "layouts"]
    assert run.stdout.splitlines() == [f"AdamW, {layout}: same" for layout in layouts]


def test_what_differs_is_said(monkeypatch):
    spec = importlib.util.spec_from_file_location("check_ranks", SCRIPT)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    results, runs = check.Run.results, []

    def wrong(run):
        """Of the second run by a little, or by more."""
        runs.append(run)
        return [
            value + wrong.by * (run is runs[-1] and len(runs) % 2 == 0) for value in results(run)
        ]

    monkeypatch.setattr(check.Run, "results", wrong)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        cpu = torch.device("cpu")
        wrong.by = 1e-7
        assert check.difference("AdamW", "DTensors", cpu) == "parameter 0 has other bits"
        assert check.difference("CAME", "layouts", cpu) == ""
        wrong.by = 1e-3
        assert "parameter 0 is off by" in check.difference("CAME", "layouts", cpu)
    finally:
        dist.destroy_process_group()
