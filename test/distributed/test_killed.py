# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank that is killed, or stopped, in the middle of a step: the others return an error that
names what they were doing, and none hangs.

A killed rank is noticed as its connections close, or as its process ends where ranks share
memory; one that is stopped when the deadline is over: one deadline, and not one for each exchange
of the step, also where those who have their error stay alive and go no further. Ranks are forked
from one process. STEPC_KILL_POINTS=100 takes so many points in place of four; of these every
other one goes over Gloo's sockets.
"""

import os

import pytest
from killing import said_of, warm_up
from samples import number

POINTS = int(os.environ.get("STEPC_KILL_POINTS", number(4, 8)))
KINDS = ("local", "reduced", "dtensor")


def points():
    return [
        f"{KINDS[i % 3]},{1 + (i * 7) // 3 % 29 if i >= 3 else i},{('before', 'after')[i % 2]}"
        for i in range(POINTS)
    ]


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up(KINDS)


@pytest.mark.parametrize("shared", [True, False])
def test_survivors_of_a_killed_rank_say_what_failed(shared):
    assert said_of(points()[int(shared) :: 2], shared) == ""


def test_survivors_of_a_stopped_rank_say_what_failed_after_a_deadline():
    assert said_of(["local,9,stopped"], shared=False) == ""
    assert said_of(["dtensor,6,stopped"]) == ""
