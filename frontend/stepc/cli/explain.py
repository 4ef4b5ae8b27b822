# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler makes of a definition: kernels, what they read and write, what crosses ranks.

A definition is one of those that come with Stepc, by name, or a file. Models are counted by
``stepc-plan``.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from .. import _compiler
from ..definition import Definition


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("definition", help="adamw, say, or my.mlir")
    parser.add_argument("arguments", nargs="*", help="of the compiler, behind --: --layout=-1=tp")


def run(given: argparse.Namespace) -> int:
    path = _path(given.definition)
    command = [_compiler.find_compiler(), path, "--explain", *given.arguments]
    return subprocess.run(command, check=False).returncode


def _path(name: str) -> Path:
    if Path(name).suffix == ".mlir":
        return Path(name)
    return Path(Definition.from_zoo(name).path)
