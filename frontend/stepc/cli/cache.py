# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler made and keeps on disk: lists it, or removes it.

Nothing but entries of this user's cache is touched (:mod:`stepc._cache_files`).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .. import _cache, errors
from .._cache_files import drop, listed
from .._units import size

_DAY = 86400.0


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|clear")
    actions.add_parser("list", help="the entries, the one that was used last first")
    clear = actions.add_parser("clear", help="removes entries")
    clear.add_argument(
        "--older-than", type=float, default=0.0, metavar="DAYS", help="that were not used for DAYS"
    )


def run(given: argparse.Namespace) -> int:
    root = _cache.directory()
    if root is None:
        raise errors.StepcError("there is no cache: the home directory is not known")
    if given.action == "clear" and not given.older_than >= 0:
        raise ValueError(f"--older-than is {given.older_than}, which is no number of days")
    if not root.is_dir():
        print(f"'{root}': nothing has been kept yet")
    elif given.action == "list":
        _list(root)
    else:
        _clear(root, given.older_than)
    return 0


def _list(root: Path) -> None:
    entries = listed(root)
    for entry in entries:
        name, kind = entry.name.split(".")
        days = max(0.0, time.time() - entry.used) / _DAY
        print(f"{name[:12]}  {kind:9}  {size(entry.size):>8}  used {days:.0f} days ago")
    print(f"'{root}': {len(entries)} entries of {size(sum(entry.size for entry in entries))}")


def _clear(root: Path, days: float) -> None:
    # A file that was made this moment has a time behind the clock's by less than a second.
    dropped = drop(root, time.time() - days * _DAY + (0.0 if days else 1.0))
    amount = size(sum(entry.size for entry in dropped))
    print(f"'{root}': removed {len(dropped)} files of {amount}")
