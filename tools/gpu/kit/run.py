# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the kit: correctness, the sanitizer, the benchmark. Writes results.json.

    python3 run.py                  # all of it, some twenty minutes
    python3 run.py --quick          # a few optimizers, small models
    python3 run.py --parts correctness
    python3 run.py --device cpu     # without a GPU, to see that the kit is whole

Needs Python 3.10 or newer, torch 2.13 or newer with CUDA, and a driver: no compiler, no
toolkit. compute-sanitizer is used where it is on PATH or in /usr/local/cuda/bin. The exit
status is 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("correctness", "streams", "ranks", "sanitizer", "benchmark")
OF_DEVICES = ("streams", "ranks", "sanitizer")  # parts that need one
CHECKS = ("correctness", *OF_DEVICES)  # parts that find something right or wrong
RANKS = 2
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
QUICK = ["AdamW", "hf.Adafactor", "LAMB"]


def prepare() -> None:
    """Packages are those that the kit brings; nothing is compiled."""
    os.environ["STEPC_CACHE_DIR"] = str(HERE / "cache")
    os.environ["STEPC_COMPILER_IDENTITY"] = (HERE / "identity.txt").read_text().strip()
    os.environ.setdefault("STEPC_EXTENSION", "1")
    sys.path[:0] = [str(HERE)]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--optimizers", nargs="+", help="some of them (default: all)")
    parser.add_argument("--models", nargs="+", help="some of them (default: all)")
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    return parser.parse_args()


def describe_machine(device: str) -> dict:
    import torch

    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "identity": os.environ["STEPC_COMPILER_IDENTITY"],
        "device": platform.processor(),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "device": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": list(torch.cuda.get_device_capability(0)),
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
    return found


def run_sanitizer() -> list[dict]:
    """A short run under each tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).is_file():
        return [{"tool": "compute-sanitizer", "left_out": "not found", "wrong": ""}]
    found = []
    for tool in TOOLS:
        command = [program, "--tool", tool, "--error-exitcode", "3", sys.executable,
                   str(HERE / "run.py"), "--parts", "correctness", "--quick", "--out",
                   os.devnull]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=1800, check=False
            )
            wrong = "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
        except subprocess.TimeoutExpired:
            wrong = "it did not end in half an hour"
        found.append({"tool": tool, "wrong": wrong})
    return found


def run_ranks() -> list[dict]:
    """Steps over ranks by torch's NCCL, where there are two devices: the layouts of two ranks are
    among the packages."""
    import torch

    if torch.cuda.device_count() < RANKS or not list(HERE.glob("check_ranks.py")):
        return [{"check": "ranks", "left_out": f"fewer than {RANKS} devices", "wrong": ""}]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}",
               str(HERE / "check_ranks.py")]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        wrong = "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
    except subprocess.TimeoutExpired:
        wrong = "it did not end in half an hour"
    return [{"check": "ranks", "wrong": wrong}]


def main() -> int:
    chosen = read_arguments()
    prepare()
    import benchmark
    import correctness
    import kit_cases
    import streams

    names = chosen.optimizers or (QUICK if chosen.quick else list(kit_cases.CASES))
    results: dict = {"machine": describe_machine(chosen.device)}
    models = chosen.models or (["smoke"] if chosen.quick else list(benchmark.MODELS))
    timed = [name for name in kit_cases.TIMED if name in names]
    rounds = 1 if chosen.quick else benchmark.ROUNDS
    parts = {
        "correctness": lambda: correctness.run_all(chosen.device, names, chosen.quick),
        "streams": lambda: streams.run_all(chosen.device),
        "ranks": run_ranks,
        "sanitizer": run_sanitizer,
        "benchmark": lambda: benchmark.run_all(chosen.device, models, timed, rounds),
    }
    for part, run in parts.items():
        if part not in chosen.parts or (part in OF_DEVICES and chosen.device != "cuda"):
            continue
        print(part, flush=True)
        results[part] = run()
        if str(chosen.out) != os.devnull:  # after each: what comes may end the process
            chosen.out.write_text(json.dumps(results, indent=1) + "\n")
    checks = [check for part in CHECKS for check in results.get(part, [])]
    wrong = [check for check in checks if check["wrong"]]
    print(f"{len(checks)} checks, {len(wrong)} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
