# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``tools/halves/run.py``, which takes every f32 apart: of a sample, and where one is wrong."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TOOL = Path(__file__).resolve().parents[2] / "tools" / "halves" / "run.py"
EVERY = 65521  # a prime, so that upper and lower halves of all kinds are among them


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("halves", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sample(tmp_path):
    command = [sys.executable, TOOL, "--every", str(EVERY)]
    environment = {**os.environ, "STEPC_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^(\d+) of 4294967296 f32, 0 wrong$", run.stdout, re.MULTILINE)
    assert run.stdout.startswith(f"{(1 << 32) // EVERY} of ")


@pytest.mark.parametrize("flaw", ["", "to even", "lost"])
def test_what_is_wrong_is_counted(tool, flaw):
    """Of a step in torch, right or with a flaw: a tie that goes to even, and lower halves
    that are lost."""
    bits = torch.tensor([0x3F808000, 0x3F818000, 0x3F801234, 0x7FC00001], dtype=torch.int32)
    param = torch.zeros(4, dtype=torch.bfloat16)
    state = {"whole": torch.zeros(4)}
    kept = torch.zeros(4, dtype=torch.int32)

    def step(back):
        if back:
            whole = kept if flaw != "lost" else kept & ~0xFFFF
            state["whole"].copy_(whole.view(torch.float32))
            return
        kept.copy_(state["whole"].view(torch.int32))
        upper = ((kept + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)
        param.copy_(state["whole"].bfloat16() if flaw == "to even" else upper)

    assert tool.wrong(param, state, bits, step) == {"": 0, "to even": 1, "lost": 3}[flaw]
