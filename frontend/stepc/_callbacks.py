# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What interrupts functions of Python that the library calls.

No exception can cross the library, so one that leaves such a function would be written to stderr
by ctypes, and forgotten. And a signal that has come while the library computed, Ctrl-C say, is
raised as soon as the interpreter runs: before a ``try`` in the function is entered. Here they are
held back until the call of the library is over, and go on from there, as they came.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator


class _Held(threading.local):
    error: BaseException | None = None


_held = _Held()


def hold(error: BaseException) -> None:
    """Has it raised where the library was called, on this thread. The first one stays."""
    _held.error = _held.error or error


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Around a call of the library: raises what was held meanwhile."""
    before = sys.unraisablehook
    thread = threading.current_thread()

    def hook(unraisable) -> None:
        error, where = unraisable.exc_value, unraisable.err_msg or ""
        ours = "ctypes callback" in where or not isinstance(error, Exception)
        if ours and error is not None and threading.current_thread() is thread:
            hold(error)
        else:
            before(unraisable)

    # Signals are raised on the main thread alone, and threads would undo each other's.
    if thread is threading.main_thread():
        sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before
        error, _held.error = _held.error, None
        if error is not None:
            raise error
