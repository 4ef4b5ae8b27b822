# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Of all tests: a process started in the background of a script ignores Ctrl-C, which tests of
interrupts send. Processes that they start have the handler that is usual, too. Threads of OpenMP
sleep where they wait. And where modules for all of them are."""

import gc
import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# There are more processes than cores: a thread that looks again and again whether the others have
# come takes the core that they need. libgomp reads it when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from order import place
from samples import leave_out


def pytest_configure(config):
    config.addinivalue_line("markers", "sample(one_of): the check takes one of so many cases")


def pytest_collection_modifyitems(config, items):
    out = leave_out(items)
    # Those that are asked for by name are run.
    if out and not any("[" in argument for argument in config.args):
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]
    items.sort(key=place)


def pytest_collection_finish():
    """What thousands of tests and their modules hold stays to the end: the garbage collector, which
    tests run again and again, need not look through it each time."""
    gc.collect()
    gc.freeze()
