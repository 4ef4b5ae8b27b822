# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Stepc says of its work, to ``logging.getLogger("stepc")``.

DEBUG: what was found in the cache, and each parameter with its rule. INFO: what is compiled and how
long it took, remarks of the compiler, how many parameters take which rule, why a step is torch's
own. WARNING: a compilation that takes long, and a process that was forked, once each. Where the
application has no handlers warnings go to stderr, as ``logging`` does it.

``STEPC_LOG=debug`` (info, warning, error) writes what is of that level and above to stderr.
"""

from __future__ import annotations

import logging
import os
import warnings

log = logging.getLogger("stepc")
LEVELS = ("debug", "info", "warning", "error")


def configure(level: str | None) -> None:
    """Has the logger write to stderr what is of the level, which STEPC_LOG says, and above."""
    if not level:
        return
    if level.lower() not in LEVELS:
        warnings.warn(
            f"stepc: STEPC_LOG is '{level}', it is one of {', '.join(LEVELS)}; nothing is logged",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("stepc %(levelname)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(level.upper())
    log.propagate = False  # or an application with handlers would have it twice


def parameters(number: int) -> str:
    return "1 parameter" if number == 1 else f"{number} parameters"


# --- Forked processes -----------------------------------------------------------

forked = False  # whether the process is one, of one that had loaded the library


def watch_forks() -> None:
    """From now on: the library is being loaded."""
    os.register_at_fork(after_in_child=_note_fork)


def _note_fork() -> None:
    global forked
    forked = True


def tell_of_fork(threads: int) -> None:
    """Once, where steps would have had so many threads."""
    global forked
    forked = False
    if threads > 1:
        log.warning(
            "this process was forked by one that had loaded stepc: its steps run on one thread and "
            "not on %d, as threads do not outlive a fork (a process that is spawned has its own)",
            threads,
        )


configure(os.environ.get("STEPC_LOG"))
