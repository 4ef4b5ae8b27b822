# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of what brings states into memory are seen by the tests here."""

import signal

import pytest
from folder_faults import faults, run_with
from samples import sample

TESTS = "test_any_number_of_threads and 2"
DURABLE = "test_each_step_by_another_optimizer and adamw"


@pytest.mark.parametrize("fault", faults("durable"))
def test_a_fault_of_files_that_stay_is_seen(fault):
    run = run_with(fault, __file__, DURABLE)
    assert run.returncode == 1 and "Error" in run.stdout, run.stdout[-2000:]


@pytest.mark.parametrize("fault", sample(faults("store"), "faults of stores", 3))
def test_a_fault_is_seen(fault):
    run = run_with(fault, __file__, TESTS)
    # Addresses of a store cannot be read, and what is behind a window is another's: either ends
    # the process.
    assert run.returncode in (1, -signal.SIGSEGV, -signal.SIGABRT), run.stdout[-2000:]
    assert "assert" in run.stdout or run.returncode < 0


def test_there_are_some():
    assert len(faults("store")) >= 6
    assert len(faults("durable")) == 2
