#!/usr/bin/env python3
"""Fails when docs/images/adafactor.svg is not what `stepc --explain=svg` draws; with
`--write`, draws it.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
PICTURE = ROOT / "docs" / "images" / "adafactor.svg"
COMMAND = ["frontend/optimizers/adafactor.mlir", "--option=has_beta1=false", "--explain=svg"]


def main():
    run = subprocess.run([STEPC, *COMMAND], cwd=ROOT, check=True, capture_output=True)
    if "--write" in sys.argv:
        PICTURE.write_bytes(run.stdout)
    elif PICTURE.read_bytes() != run.stdout:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is stale: run tools/docs/check_explain.py --write")


if __name__ == "__main__":
    main()
