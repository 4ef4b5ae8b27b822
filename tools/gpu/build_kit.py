#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the kit that runs and times Stepc on a machine with a GPU.

    .venv/bin/python tools/gpu/build_kit.py [--out build/gpu/stepc-gpu-kit.tar.gz]
    .venv/bin/python tools/gpu/build_kit.py --targets sm_90     # of one device

The kit has the Python package, the runtime, packages of every optimizer of its cases, and
the scripts of tools/gpu/kit: `python3 run.py` there is all. tools/gpu/kit_report.py makes
the table and the plot of docs/gpu.md of the results.json that it writes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("STEPC_BUILD", ROOT / "build"))
STEPC = BUILD / "bin" / "stepc"
TARGETS = ("sm_80", "sm_90", "sm_100", "compute_100", "cpu")  # all that stepc.torch asks for
LIMIT = 60 << 20  # bytes of the archive


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=BUILD / "gpu" / "stepc-gpu-kit.tar.gz")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--optimizers", nargs="+", help="some cases (default: all)")
    parser.add_argument("--without-ranks", action="store_true", help="of one device alone")
    return parser.parse_args()


def copy_files(folder: Path) -> None:
    """The Python package with its libraries, the definitions, and the scripts."""
    ignored = shutil.ignore_patterns("__pycache__", "_ext")
    shutil.copytree(ROOT / "frontend" / "stepc", folder / "stepc", ignore=ignored)
    shutil.copytree(ROOT / "frontend" / "optimizers", folder / "optimizers")
    for library in ("libstepc_runtime.so", "_stepc_walk.abi3.so"):
        shutil.copy2(BUILD / "lib" / library, folder / "stepc" / library)
    for script in sorted((ROOT / "tools" / "gpu" / "kit").glob("*.py")):
        shutil.copy2(script, folder / script.name)
    shutil.copy2(ROOT / "tools" / "bench" / "shapes.py", folder / "shapes.py")
    shutil.copy2(ROOT / "tools" / "gpu" / "check_ranks.py", folder / "check_ranks.py")
    shutil.copy2(ROOT / "LICENSE", folder / "LICENSE")
    compiler = STEPC.read_bytes()
    revision = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
        check=False,
    ).stdout.strip()  # fmt: skip
    identity = f"kit {revision} {hashlib.sha256(compiler).hexdigest()[:12]}"
    (folder / "identity.txt").write_text(identity + "\n")


def count_packages(folder: Path) -> int:
    return sum(1 for _ in (folder / "cache").rglob("*.package"))


def fill_cache(folder: Path, targets: list[str], names: list[str] | None) -> None:
    """Compiles what the cases need."""
    os.environ["STEPC_CACHE_DIR"] = str(folder / "cache")
    os.environ["STEPC_COMPILER_IDENTITY"] = (folder / "identity.txt").read_text().strip()
    os.environ["STEPC_COMPILER"] = str(STEPC)
    sys.path[:0] = [str(folder)]
    import torch
    from kit_cases import ALL_STORAGES, CASES

    for name in names or CASES:
        case = CASES[name]
        for storage, (dtype, _) in ALL_STORAGES.items():
            for target in targets:
                # The compiler makes all rules: tensors of one shape stand for any.
                params = [torch.nn.Parameter(torch.ones(4, 3, dtype=dtype))]
                optimizer = case.make(params, **case.keywords(storage))
                optimizer.precompile(target)
        if case.reference is None:  # its steps in float64 stand for torch's
            params = [torch.nn.Parameter(torch.ones(4, 3, dtype=torch.float64))]
            case.make(params).precompile("cpu")
        print(f"  {name}", flush=True)


def fill_for_ranks(folder: Path, targets: list[str], names: list[str] | None) -> None:
    """What check_ranks.py needs on two ranks, by a run of it without a GPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
               str(folder / "check_ranks.py"), "--device", "cpu"]  # fmt: skip
    command += ["--precompile", *targets, *(["--optimizers", *names] if names else [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STEPC_COMPILER": str(STEPC)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def main() -> int:
    chosen = read_arguments()
    folder = chosen.out.parent / chosen.out.name.partition(".")[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy_files(folder)
    # The processor's steps are what a device's are compared with.
    targets = list(dict.fromkeys([*chosen.targets, "cpu"]))
    fill_cache(folder, targets, chosen.optimizers)
    if not chosen.without_ranks:
        fill_for_ranks(folder, targets, chosen.optimizers)
    packages = count_packages(folder)
    with tarfile.open(chosen.out, "w:gz") as archive:
        archive.add(folder, folder.name, filter=lambda f: None if "__pycache__" in f.name else f)
    size = chosen.out.stat().st_size
    print(f"{chosen.out}: {packages} packages, {size / 2**20:.1f} MiB")
    return 0 if size <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
