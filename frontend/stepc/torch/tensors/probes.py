# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looking into torch's objects where it has no function that says what is asked.

What is looked for has no stable place. So each place is found by an object about which the
answer is known, and where there is not exactly one, nobody reads there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def word(address: int) -> int:
    """The word in memory there."""
    return ctypes.c_size_t.from_address(address).value


def apart(probe: Callable[[], Found]) -> Found:
    """``probe()``, in a thread of its own: what a caller has switched on, a default device,
    inference mode or a transform of ``torch.func``, holds for the caller's thread alone."""
    found: list = []

    def run() -> None:
        try:
            found.append((probe(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, name="stepc probe")
    thread.start()
    thread.join()
    value, error = found[0]
    if error is not None:
        raise error
    return value
