#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails when docs/images/adafactor.svg is not what `python -m stepc explain --svg` draws; with
`--write`, draws it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "adafactor.svg"
OPTIONS = ["--", "--option=has_beta1=false"]


def main():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "frontend")}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "adafactor.svg"
        command = [sys.executable, "-m", "stepc", "explain", "adafactor", "--svg", made, *OPTIONS]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        drawn = made.read_bytes()
    if "--write" in sys.argv:
        PICTURE.write_bytes(drawn)
    elif PICTURE.read_bytes() != drawn:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is stale: run tools/docs/check_explain.py --write")


if __name__ == "__main__":
    main()
