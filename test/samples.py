# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the check takes of cases that are many and alike: every third say, by the name of the
test, so another third in another one. With STEPC_BREADTH=1 it takes all (docs/testing.md)."""

import os
from zlib import crc32

BREADTH = os.environ.get("STEPC_BREADTH") == "1"


def sample(cases, test, one_of):
    """A list of one of so many of the cases, by the name of the test, in their order."""
    cases = list(cases)
    return cases if BREADTH else cases[crc32(test.encode()) % one_of :: one_of]


def number(least, whole):
    """How many random cases: the least that the check is content with, or all."""
    return whole if BREADTH else least


def leave_out(items):
    """Of pytest's items those that the check leaves out: of a test function that is marked
    ``@pytest.mark.sample(one_of=3)`` two thirds of its parameters."""
    of_function = {}
    for item in items:
        if item.get_closest_marker("sample"):
            key = item.nodeid.partition("[")[0]
            of_function.setdefault(key, []).append(item)
    out = set()
    for key, own in of_function.items():
        one_of = own[0].get_closest_marker("sample").kwargs["one_of"]
        out.update(set(own).difference(sample(own, key, one_of)))
    return out
