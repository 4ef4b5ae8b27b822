# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Versions, paths, the processor, the cache and variables of Stepc that are set."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

from .._cache_files import listed
from .._installed import installed
from .._units import size


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def run(given: argparse.Namespace) -> int:
    found = facts()
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, value in found.items():
        print(f"{name:16} {'none' if value is None else value}")
    return 0


def facts() -> dict[str, str | None]:
    """By name; None for what is not there."""
    found = {**installed(), "python": platform.python_version()}
    try:
        from ..torch import info

        found |= info()
    except ImportError as error:
        found["torch"] = f"not usable: {error}"
    found["cache_entries"] = _cache_entries(found["cache"])
    for name in sorted(os.environ):
        if name.startswith("STEPC_"):
            found[name] = os.environ[name]
    return found


def _cache_entries(root: str | None) -> str | None:
    if root is None or not Path(root).is_dir():
        return None
    try:
        entries = listed(Path(root))
    except OSError as error:
        return f"not usable: {error.strerror}"
    return f"{len(entries)} of {size(sum(entry.size for entry in entries))}"
