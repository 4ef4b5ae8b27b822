# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A process that is killed at any moment comes back at the step before or behind, never between.

With STEPC_BREADTH=1 at 300 moments.
"""

import os
import random
import signal
import time

import pytest
import stepc.torch as st
import torch
from durable_common import WAYS, image, images, is_same, make, step
from samples import number

MOMENTS = number(12, 300)


def go_on(way, place, told):
    """Steps for ever, and writes a byte behind each; in a process of its own."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
    torch.set_num_threads(1)  # OpenMP's are not there
    params, optimizer = make(way, place)
    at = optimizer.recover()
    os.write(told, b"r")
    while True:
        at += 1
        step(params, optimizer, at)
        os.write(told, b"s")


def killed(way, place, delay):
    """How many steps a process has said it made that is killed so many seconds behind its
    start."""
    reads, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            go_on(way, place, told)
        finally:
            os._exit(1)
    os.close(told)
    assert os.read(reads, 1) == b"r"
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = b""
    while more := os.read(reads, 1 << 16):
        said += more
    os.close(reads)
    assert status == -signal.SIGKILL
    return len(said)


@pytest.mark.parametrize("way", [*WAYS])
def test_a_process_that_is_killed(way, tmp_path):
    place = st.Place("disk", path=tmp_path, window_bytes=1 << 16, durable=True)
    chance, expected, at, behind = random.Random(way), images(way, 30), 0, 0
    for moment in range(-(-MOMENTS // len(WAYS))):
        said = killed(way, place, chance.uniform(0, 0.06))
        params, optimizer = make(way, place)
        found = optimizer.recover()
        assert found in (at + said, at + said + 1), (moment, at, said, found)
        behind += found != at + said
        while len(expected) <= found:
            expected = images(way, 2 * len(expected))
        assert is_same(image(params, optimizer), expected[found]) or not found, (moment, found)
        at = found
        del optimizer, params
        if at > 60:
            os.unlink(tmp_path / place.name)
            at = 0
    # As if nothing had been.
    params, optimizer = make(way, place)
    assert optimizer.recover() == at
    step(params, optimizer, at + 1)
    assert is_same(image(params, optimizer), images(way, at + 1)[at + 1])
