# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a file of cases on some processes, once, and hands out what each case said."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from samples import sample

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 600


# Of these files, which take longest, the check runs one of so many cases.
SAMPLED = {
    "colossal_cases.py": 3,
    "cuda_knobs_cases.py": 4,
    "cuda_layouts_cases.py": 4,
    "cuda_scaling_cases.py": 2,
    "cuda_streams_cases.py": 3,
    "cuda_zero_cases.py": 4,
    "dtensor_cases.py": 4,
    "flat_cases.py": 2,
    "fused_zero_cases.py": 2,
    "fused_zero_process_cases.py": 2,
    "hybrid_cases.py": 3,
    "knobs_cases.py": 2,
    "layouts_cases.py": 2,
    "models_cases.py": 4,
    "owners_cases.py": 3,
    "torchs_cases.py": 3,
    "works_cases.py": 3,
    "zero2_cases.py": 2,
    "zero_cases.py": 2,
    "zero_state_cases.py": 2,
}


# Ranks of one host share memory; these files go over Gloo's sockets, as between hosts: those
# that look at, or break, the calls of torch.distributed, and some of what exchanges most.
OVER_GLOO = {
    "hybrid_cases.py",
    "knobs_cases.py",
    "owners_cases.py",
    "traffic_cases.py",
    "zero2_faults_cases.py",
    "zero_cases.py",
}


def all_cases(file: str) -> list[str]:
    """The functions of the file that are marked as cases, without running it."""
    tree = ast.parse((HERE / file).read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(getattr(d, "id", "") == "case" for d in node.decorator_list)
    ]


def case_names(file: str) -> list[str]:
    """Those of the cases that are run."""
    return sample(all_cases(file), file, SAMPLED.get(file, 1))


def launch(file: str, folder: Path, world: int = 4) -> dict[str, str]:
    """What each case said: "" where it passed on all ranks."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [HERE, HERE.parent, ROOT / "frontend"])),
        "PYTHONWARNINGS": "ignore",
        "STEPC_CASES": ",".join(case_names(file)),
        "STEPC_SHARED_MEMORY": "0" if file in OVER_GLOO else "1",
    }
    command = [sys.executable, HERE / "forked_ranks.py", HERE / file, folder, str(world)]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    said: dict[str, str] = {}
    for rank in range(world):
        path = folder / f"{rank}.json"
        of_rank = json.loads(path.read_text()) if path.is_file() else {}
        for name in case_names(file):
            words = of_rank.get(name, "it did not come to its end")
            if words:
                said[name] = said.get(name, "") + f"rank {rank}: {words}\n"
    if said and run.returncode != 0:
        said = {name: f"{words}{run.stderr[-3000:]}" for name, words in said.items()}
    return {name: said.get(name, "") for name in case_names(file)}
