# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the check leaves out of one test it takes in another; STEPC_BREADTH takes all."""

import re
import sys
from pathlib import Path

import order
import samples

DISTRIBUTED = Path(__file__).parents[1] / "distributed"


def test_a_sample_is_one_of_so_many(monkeypatch):
    monkeypatch.setattr(samples, "BREADTH", False)
    found = [samples.sample(range(10), f"test {k}", 3) for k in range(20)]
    assert {tuple(one) for one in found} == {(0, 3, 6, 9), (1, 4, 7), (2, 5, 8)}
    assert samples.number(2, 7) == 2
    monkeypatch.setattr(samples, "BREADTH", True)
    assert samples.sample(range(10), "test", 3) == list(range(10))
    assert samples.number(2, 7) == 7


def test_every_optimizer_is_in_a_sample_over_ranks(monkeypatch):
    monkeypatch.setattr(samples, "BREADTH", False)
    monkeypatch.setattr(sys, "path", [*sys.path, str(DISTRIBUTED)])
    import zoo

    files = [path.read_text() for path in DISTRIBUTED.glob("*_cases.py")]
    tests = {name for text in files for name in re.findall(r'\bsome\("(.*?)"\)', text)}
    assert len(tests) > 8
    assert {name for test in tests for name in zoo.some(test)} == set(zoo.ALL)


def test_the_longest_files_are_there():
    """One that has another name now would be run last."""
    tests = Path(__file__).resolve().parents[1]
    assert [file for file in order.LONGEST if not (tests / file).is_file()] == []
