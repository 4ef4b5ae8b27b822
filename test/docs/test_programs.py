# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program that docs/programs.md shows is the one that the compiler makes."""

import os
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
PAGE = (ROOT / "docs" / "programs.md").read_text()


def get_program(name, text):
    """The lines of one program, without the indentation of the optimizer that it stands in."""
    (program,) = re.findall(rf"^ +step\.program @{name}\(.*?^    }}$", text, re.S | re.M)
    return "".join(line.removeprefix("    ") + "\n" for line in program.splitlines())


def test_the_program_is_real():
    (command,) = re.findall(r"^    stepc (adafactor\.mlir .*)$", PAGE, re.M)
    (shown,) = re.findall(r"^```mlir\n(.*?)^```", PAGE, re.S | re.M)
    definition, *arguments = shlex.split(command)
    printed = subprocess.run(
        [STEPC, ROOT / "frontend" / "optimizers" / definition, *arguments],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert shown == get_program("adafactor_matrix_0", printed)
    assert len(shown.splitlines()) <= 60
