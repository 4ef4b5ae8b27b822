# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an installation uses, and what an optimizer does."""

from __future__ import annotations

import torch

from .._installed import installed
from .binding import memory as _states
from .step.account import Account, account
from .tensors import walk as _walk


def info(optimizer=None) -> dict[str, str | None] | Account:
    """What steps are made with here, for bug reports; or what the steps of an optimizer of
    ``stepc.torch`` take on this rank, an :class:`Account` that prints as a few lines (and with
    ``print(optimizer)``). Compiles nothing and changes nothing.

    ``compiler``, ``runtime`` and ``cache`` are paths, None where there is none; ``processor``:
    the one that code is made for; ``reading``
    is how parameters are looked at: "direct" (torch's functions by address),
    "objects" (through Python objects), "python" (no extension; slow), or None
    without the runtime library.
    """
    if optimizer is not None:
        return account(optimizer)
    found = {
        **installed(),
        "torch": str(torch.__version__),
        "reading": None,
        "huge_pages": str(_states.wants_huge_pages()),
    }
    if found["runtime"] is not None:
        found["reading"] = _walk.way()
    return found
