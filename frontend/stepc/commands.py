# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands of an installed Stepc: each starts the tool of its name, which lies in
the package. Nothing else of the package is imported."""

import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent / "bin"


def _start(name: str) -> None:
    """Becomes the tool; says in one line why where that fails."""
    tool = _FOLDER / name
    try:
        os.execv(tool, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: error: cannot run '{tool}': {error.strerror}")


def stepc() -> None:
    """The compiler: ``stepc DEFINITION.mlir -o PACKAGE.stepc``."""
    _start("stepc")


def stepc_opt() -> None:
    """Runs passes by name, as mlir-opt does."""
    _start("stepc-opt")


def stepc_run() -> None:
    """Runs a definition on arrays, compiled, interpreted or both."""
    _start("stepc-run")


def stepc_lsp_server() -> None:
    """The language server, for editors."""
    _start("stepc-lsp-server")
