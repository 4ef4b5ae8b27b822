# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an installation of Stepc consists of, without torch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from . import __version__, _cache, _compiler, _library, errors
from .definition import zoo


def installed() -> dict[str, str | None]:
    """Versions and paths, None for what is not there; compiles nothing."""
    found: dict[str, str | None] = {
        "stepc": __version__,
        "compiler": None,
        "runtime": None,
        "runtime_version": None,
        "include": _include(),
        "optimizers": None if (folder := zoo()) is None else str(folder),
        "processor": None,
        "cache": None if (cache := _cache.directory()) is None else str(cache),
    }
    with contextlib.suppress(errors.CompilerError):
        found["compiler"] = str(_compiler.find_compiler())
    with contextlib.suppress(errors.RuntimeLibraryError):
        library = _library.load_library()
        version = library.stepcVersion()
        found["runtime"] = library._name
        found["runtime_version"] = f"{version // 1000}.{version % 1000}"
        found["processor"] = library.stepcCpuTarget().decode()
    return found


def _include() -> str | None:
    """The folder of the C interface's headers: in the package, or in the tree around it."""
    package = Path(__file__).resolve().parent
    for folder in (package / "include", package.parents[1] / "runtime" / "include"):
        if (folder / "stepc" / "stepc.h").is_file():
            return str(folder)
    return None
