# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler made, kept on disk: ``STEPC_CACHE_DIR``, or the user's.

Entries are files named by a SHA-256 of all that they depend on. They are
written beside their place and renamed, so that any number of processes may
read and write at once. Of processes that lack the same entry, as the ranks of a
machine do at their start, one makes it and the others wait for it. A cache that
cannot be used costs a compilation and one warning, never an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_FORMAT = "stepc-cache-1"
_DAY = 86400.0  # seconds
_KEEP_DAYS = 30
_WAIT = 150.0  # seconds for another process, a little more than a compilation may take
_LOOK = 0.02  # seconds between looks at a lock
_warned = False


def directory() -> Path:
    """The cache's folder, whether or not it exists."""
    named = os.environ.get("STEPC_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base, "stepc")
    return Path(os.path.expanduser("~"), ".cache", "stepc")


def key(*parts: str) -> str:
    """The name of an entry that depends on all ``parts``."""
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        data = part.encode()
        digest.update(f"\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def load_or_make(
    name: str, suffix: str, make: Callable[[], bytes], load: Callable[[bytes], T]
) -> T:
    """``load`` of the entry, or of what ``make`` returns, which is then kept.

    ``load`` refuses a corrupt entry with an exception; it is then made and
    written anew. What ``make`` raises, and what ``load`` says about bytes that
    are fresh, goes to the caller.
    """
    path = directory() / name[:2] / (name + suffix)
    found = _load(path, load)
    if found is not None:
        return found[0]
    with _making(path) as locked:
        if locked and (found := _load(path, load)) is not None:
            return found[0]  # another had it before
        data = make()
        loaded = load(data)
        _write(path, data)
    return loaded


def _load(path: Path, load: Callable[[bytes], T]) -> tuple[T] | None:
    """``load`` of the entry at ``path``; None where there is none that is whole."""
    data = _read(path)
    if data is not None:
        with contextlib.suppress(Exception):  # whatever is wrong, a new one replaces it
            return (load(data),)
    return None


@contextlib.contextmanager
def _making(path: Path) -> Iterator[bool]:
    """Takes the right to make the entry at ``path``; yields whether it was got.

    The right is a lock on a file beside the entry, which ends with the process that holds
    it. It only spares work: where files cannot be locked, or another process holds it for
    longer than a compilation may take, the entry is made all the same. Where it cannot be
    made or kept, those who wait do so one after the other.
    """
    lock = path.with_name(f".{path.name}.lock")
    handle, locked = None, False
    try:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                locked = _wait_for(handle)
            except OSError:
                os.unlink(lock)  # no file can be locked here: it says nothing
        yield locked
    finally:
        with contextlib.suppress(OSError):
            if locked:
                os.unlink(lock)
                # Closing would not do where a process was forked meanwhile.
                fcntl.flock(handle, fcntl.LOCK_UN)
        if handle is not None:
            os.close(handle)


def _wait_for(handle: int) -> bool:
    """Locks the file, unless another holds it for too long."""
    end = time.monotonic() + _WAIT
    while time.monotonic() < end:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_LOOK)
    return False


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _DAY:
                os.utime(path)  # it is in use
        return data
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(path, error)
        return None


def _write(path: Path, data: bytes) -> None:
    """Puts an entry in place, whole or not at all."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _drop_old(directory())
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _warn(path, error)


def _drop_old(folder: Path) -> None:
    """Removes what was not read for long, whenever something is added: that
    took a compilation, beside which a look at each entry is nothing."""
    limit = time.time() - _KEEP_DAYS * _DAY
    for path in folder.glob("[0-9a-f][0-9a-f]/*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                path.unlink()


def _warn(path: Path, error: OSError) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"stepc: the cache directory '{directory()}' cannot be used "
        f"({error.strerror or error}: '{path}'); packages are compiled for this process only "
        "(STEPC_CACHE_DIR names another directory)",
        RuntimeWarning,
        stacklevel=2,
    )
