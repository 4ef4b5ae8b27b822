# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes that end right after their last exchange, as scripts do, end well: a thread of Gloo
that still frees a tensor needs the interpreter (pytorch issue 190489). Without what
stepc.torch does about it every second run of four ranks aborts here: the check runs each way once,
STEPC_BREADTH=1 eight times."""

import os
import subprocess
import sys

import pytest
from samples import number

SCRIPT = """
import sys, torch, torch.distributed as dist, stepc.torch
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
ranks = {"zero": 1, "gradients": "local"}
if sys.argv[1] == "ddp":
    model, ranks = torch.nn.parallel.DistributedDataParallel(model), {}
opt = stepc.torch.AdamW(model.parameters(), **ranks)
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    opt.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("how", ["ddp", "zero1"])
def test_leaving(how, tmp_path):
    script = tmp_path / "leaving.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", script, how]
    for _ in range(number(1, 8)):
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False,
            text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
