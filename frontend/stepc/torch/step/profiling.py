# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of compiled steps as ranges of torch.profiler."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from ... import _trace


class _Ranges(threading.local):
    """Ranges that have begun on a thread and not ended, the innermost last."""

    def __init__(self):
        self.open: list[torch.profiler.record_function] = []


_ranges = _Ranges()


def _mark(name: str, begin: bool) -> None:
    if begin:
        entered = torch.profiler.record_function(f"stepc::{name}")
        entered.__enter__()
        _ranges.open.append(entered)
    elif _ranges.open:  # else it began before anybody asked
        _ranges.open.pop().__exit__(None, None, None)


@contextlib.contextmanager
def profile_kernels() -> Iterator[None]:
    """Within it torch.profiler shows the kernels of compiled steps, by their names in the
    package, as ranges ``stepc::NAME`` within those of the steps.

    They are those that the thread which steps runs itself; the other workers have the like of
    them at the same time. Each takes some microseconds to record, so a step of many small batches
    takes longer; without the context nothing is recorded. On a CUDA device torch.profiler sees
    kernels by itself.

    >>> with torch.profiler.profile() as profile, stepc.torch.profile_kernels():
    ...     optimizer.step()
    """
    with _trace.told(_mark):
        yield
