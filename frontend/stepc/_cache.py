# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler made, kept on disk: ``STEPC_CACHE_DIR``, or the user's.

Entries are named by a SHA-256 of all that they depend on. They are
written beside their place and renamed, so that any number of processes may
read and write at once. Of processes that lack the same entry, as the ranks of a
machine do at their start, one makes it and the others wait for it. A cache that
cannot be used, or trusted (:mod:`stepc._cache_files`), costs a compilation and one
warning, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ._cache_files import Entry, drop_old
from ._cache_lock import making
from ._log import log

T = TypeVar("T")

_FORMAT = "stepc-cache-2"
_warned = False


def directory() -> Path | None:
    """The cache's folder, whether or not it exists; None where there is no place for one."""
    named = os.environ.get("STEPC_CACHE_DIR")
    if named:
        path = os.path.expanduser(named)
        return None if path.startswith("~") else Path(path)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base, "stepc")
    # Without HOME and for a user without an entry in passwd it is "~" still.
    home = os.path.expanduser("~")
    return Path(home, ".cache", "stepc") if os.path.isabs(home) else None


def key(*parts: str) -> str:
    """The name of an entry that depends on all ``parts``."""
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        data = part.encode()
        digest.update(f"\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def load_or_make(name: str, kind: str, make: Callable[[], bytes], load: Callable[[bytes], T]) -> T:
    """``load`` of the entry, or of what ``make`` returns, which is then kept.

    ``load`` refuses with an exception what it cannot use; it is then made and
    written anew. What ``make`` raises, and what ``load`` says about bytes that
    are fresh, goes to the caller.
    """
    root = directory()
    if root is None:
        _warn_of_none()
        return load(make())
    entry = Entry(root, f"{name}.{kind}")
    found = _load(entry, load)
    if found is not None:
        return found[0]
    with making(entry) as locked:
        if locked and (found := _load(entry, load)) is not None:
            return found[0]  # another had it before
        data = make()
        loaded = load(data)
        _write(entry, data)
    return loaded


def _load(entry: Entry, load: Callable[[bytes], T]) -> tuple[T] | None:
    """``load`` of the entry; None where there is none that is whole."""
    try:
        data = entry.read()
    except OSError as error:
        _warn(entry, error)
        return None
    if data is not None:
        with contextlib.suppress(Exception):  # whatever is wrong, a new one replaces it
            found = (load(data),)
            log.debug("found '%s' in the cache", entry.path)
            return found
    return None


def _write(entry: Entry, data: bytes) -> None:
    try:
        entry.write(data)
        drop_old(entry.root)
    except OSError as error:
        _warn(entry, error)


def _warn(entry: Entry, error: OSError) -> None:
    # Of what is opened within a folder, the name alone.
    path = error.filename if os.path.isabs(str(error.filename or "")) else entry.path
    _warn_once(
        f"the cache directory '{entry.root}' cannot be used ({error.strerror or error}: '{path}')"
    )


def _warn_of_none() -> None:
    named = os.environ.get("STEPC_CACHE_DIR")
    what = f"of '{named}', which STEPC_CACHE_DIR is," if named else "of this user"
    _warn_once(f"there is no cache: the home directory {what} is not known")


def _warn_once(what: str) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"stepc: {what}; packages are compiled for this process only "
        "(STEPC_CACHE_DIR names another directory)",
        RuntimeWarning,
        stacklevel=2,
    )
