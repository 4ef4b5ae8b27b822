# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of what brings states on disk to a device are seen by the tests here."""

import pytest
from folder_faults import faults, run_with
from samples import sample

TESTS = "test_torch_cuda_stored and (skipped or test_one_of_two or (bfloat16 and not codes))"


@pytest.mark.parametrize("fault", sample(faults("placed"), "faults of placed states", 2))
def test_a_fault_is_seen(fault):
    run = run_with(fault, __file__, TESTS)
    # By other bits, or by an address that is nobody's.
    assert run.returncode == 1 and "FAILED" in run.stdout, run.stdout


def test_there_are_some():
    assert len(faults("placed")) >= 5
