# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of codes are seen by the tests here."""

import pytest
from folder_faults import faults, run_with
from samples import sample

TESTS = "test_any_number_of_threads and 2"


@pytest.mark.parametrize("fault", sample(faults("codes"), "faults of codes", 3))
def test_a_fault_is_seen(fault):
    run = run_with(fault, __file__, TESTS)
    assert run.returncode == 1, run.stdout[-2000:]
    assert "assert" in run.stdout


def test_there_are_some():
    assert len(faults("codes")) >= 6
