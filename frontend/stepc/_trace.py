# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who is told of the kernels that steps run. Steps of plans that nobody traces do nothing
for it: the runtime is told when tracing begins and ends, and asked nothing in between."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator

from . import errors

# StepcTrace of stepc.h.
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32)

_lock = threading.RLock()
_plans: weakref.WeakSet = weakref.WeakSet()
_tellers: list[Callable[[str, bool], None]] = []


@_PROTOTYPE
def _tell(user, name, begin) -> None:
    for teller in tuple(_tellers):
        teller(name.decode(), bool(begin))


def watch(plan) -> None:
    """Of every plan that is made."""
    with _lock:
        _plans.add(plan)
        if _tellers:
            plan.set_trace(_tell)


@contextlib.contextmanager
def told(teller: Callable[[str, bool], None]) -> Iterator[None]:
    """Within it ``teller(name, begin)`` is called, on the thread that steps, before and after
    each kernel that this thread runs, in steps of all plans. What it raises, the step raises
    when it was made."""
    try:
        with _lock:
            _tellers.append(teller)
            for plan in list(_plans):
                _set(plan, _tell)
        yield
    finally:
        with _lock:
            _tellers.remove(teller)
            for plan in list(_plans) if not _tellers else ():
                _set(plan, None)


def _set(plan, function) -> None:
    """A plan that another thread steps with just then stays as it is: without a teller
    it tells nobody. Nor does one whose step failed midway, which steps no more."""
    try:
        plan.set_trace(function)
    except errors.BusyError:
        pass
    except errors.StatusError as error:
        if error.status != "STEPC_POISONED":
            raise
