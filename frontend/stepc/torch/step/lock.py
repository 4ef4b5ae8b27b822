# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That one thread at a time is inside an optimizer."""

from __future__ import annotations

import threading

from ... import errors


class Lock:
    """A lock that is not waited for."""

    def __init__(self, lock: threading.Lock):
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise errors.BusyError("another thread is stepping this optimizer", "STEPC_BUSY")

    def __exit__(self, *exception) -> None:
        self._lock.release()
