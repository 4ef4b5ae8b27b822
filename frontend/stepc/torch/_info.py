# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an installation uses, and what an optimizer does."""

from __future__ import annotations

import contextlib

import torch

from .. import __version__, _cache, _compiler, _runtime, errors
from . import _states, _walk
from ._account import Account, account


def info(optimizer=None) -> dict[str, str | None] | Account:
    """What steps are made with here, for bug reports; or what the steps of an optimizer of
    ``stepc.torch`` take on this rank, an :class:`Account` that prints as a few lines (and with
    ``print(optimizer)``). Compiles nothing and changes nothing.

    ``compiler``, ``runtime`` and ``cache`` are paths, None where there is none; ``reading``
    is how parameters are looked at: "direct" (torch's functions by address),
    "objects" (through Python objects), "python" (no extension; slow), or None
    without the runtime library.
    """
    if optimizer is not None:
        return account(optimizer)
    found: dict[str, str | None] = {
        "stepc": __version__,
        "torch": str(torch.__version__),
        "compiler": None,
        "runtime": None,
        "runtime_version": None,
        "reading": None,
        "cache": None if (cache := _cache.directory()) is None else str(cache),
        "huge_pages": str(_states.wants_huge_pages()),
    }
    with contextlib.suppress(errors.CompilerError):
        found["compiler"] = str(_compiler.find_compiler())
    try:
        library = _runtime.load_library()
    except errors.RuntimeLibraryError:
        return found
    version = library.stepcVersion()
    found["runtime"] = library._name
    found["runtime_version"] = f"{version // 1000}.{version % 1000}"
    found["reading"] = _walk.way()
    return found
