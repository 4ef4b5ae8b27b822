# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks tell each other of their files of states: a failure of one is one of all.

Each rank has a file of its own. One whose file fails goes on with what the others wait for in the
step, and behind that all of them ask whether any has failed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from ... import errors

_WHAT = "ranks could not tell each other of their files of states"


def failure_of(call: Callable[[], None], *, every: bool = False) -> errors.StoreError | None:
    """That with which the call has ended. ``every``: other errors, too, as such a one: what is
    raised on a rank alone the others do not hear of."""
    try:
        call()
    except errors.StoreError as error:
        return error
    except Exception as error:
        if not every:
            raise
        words = f"{type(error).__name__}: {error}"
        made = errors.StoreError(words, getattr(error, "status", "STEPC_STORE_ERROR"))
        made.__cause__ = error
        return made
    return None


def least_step(mesh, step: int) -> int:
    """That all ranks of the mesh have in their files: all of them together."""
    return mesh.least(step, _WHAT)


def refuse_failure(mesh, own: errors.StoreError | None, *, unstepped: bool = False) -> None:
    """StoreError on every rank where it is one on any: all ranks of the mesh together.
    ``unstepped``: none of them has stepped."""
    ranks = bool(mesh.shared_axes)
    words = ""
    if own is not None:
        words = f"rank {dist.get_rank()}: {own}" if ranks else str(own)
    words = mesh.failure_of_any(words, _WHAT)
    if not words:
        return
    error = own or errors.StoreError(words, "STEPC_STORE_ERROR")
    error.unstepped = unstepped
    error.torn = error.torn or not (unstepped or own)
    raise error
