# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That of processes that lack the same entry of the cache one makes it.

The right to make it is a lock on a file beside the entry, which ends with the process that holds
it. Who holds it says so again and again, by the file's time. A process that was stopped says
nothing, and whoever locks the file for a purpose of his own does not either: the others do not
wait for them. The lock only spares work: where it cannot be had, the entry is made all the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator

from ._cache_files import Entry

_LOOK = 0.02  # seconds between looks at a lock
_BEAT = 0.2  # seconds between words of who holds it
_SILENCE = 2.0  # seconds without a word, after which nobody is waited for
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


@contextlib.contextmanager
def making(entry: Entry) -> Iterator[bool]:
    """Takes the right to make the entry; yields whether it was got, which may take as long as
    another makes it. Where it cannot be made or kept, those who wait do so one after the other."""
    with contextlib.ExitStack() as opened:
        locked = False
        with contextlib.suppress(OSError):
            folder = opened.enter_context(entry.folder())
            name = f".{entry.name}.lock"
            # Nobody else may even read it: who could, could lock it.
            handle = os.open(name, _FLAGS, 0o600, dir_fd=folder)
            opened.callback(os.close, handle)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                locked = _wait_for(handle, name, folder)
            if locked:
                opened.enter_context(_held(handle, name, folder))
        yield locked


def _wait_for(handle: int, name: str, folder: int) -> bool:
    """Locks the file, unless who holds it says nothing for too long. OSError: no file can be
    locked here."""
    said, end = None, 0.0
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            # Its change counts, not its age: other machines have other clocks.
            now, word = time.monotonic(), os.fstat(handle).st_mtime_ns
            if word != said:
                said, end = word, now + _SILENCE
            if now > end:
                return False
            time.sleep(_LOOK)
        except OSError:
            os.unlink(name, dir_fd=folder)  # it would say nothing
            raise


@contextlib.contextmanager
def _held(handle: int, name: str, folder: int) -> Iterator[None]:
    """Says that the lock is held until it is given back, and the file removed."""
    done = threading.Event()

    def say() -> None:
        with contextlib.suppress(OSError):
            while not done.wait(_BEAT):
                os.utime(handle)

    saying = threading.Thread(target=say, name="stepc cache", daemon=True)
    saying.start()
    try:
        yield
    finally:
        done.set()
        saying.join()
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
            # Closing would not do where a process was forked meanwhile.
            fcntl.flock(handle, fcntl.LOCK_UN)
