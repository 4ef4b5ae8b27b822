# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two ranks that are killed, one after the other, at any moment come back at one step, the one
before or the one behind.

With STEPC_BREADTH=1 at 60 moments.
"""

import os
import random
import signal
import time
import traceback

import stepc.torch as st
import torch
import torch.distributed as dist
from durable_common import SHAPES
from samples import number
from stored_common import make_params, same
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

MOMENTS = number(3, 60)
RANKS = 2


def grads(params, step):
    torch.manual_seed(500 + step)
    return [torch.randn(param.shape) for param in params]


def expected_of(steps):
    """Parameters after each step, by one process with states in memory."""
    params = make_params(SHAPES)
    optimizer, found = st.AdamW(params, lr=0.01), [[p.detach().clone() for p in params]]
    for step in range(steps):
        for param, grad in zip(params, grads(params, step), strict=True):
            param.grad = grad
        optimizer.step()
        found.append([param.detach().clone() for param in params])
    return found


def run(rank, place, meeting, told, expected):
    """Recovers, tells of the step, and steps for ever; with ``expected`` compares and ends."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    mesh, whole = init_device_mesh("cpu", (RANKS,)), make_params(SHAPES)
    params = [torch.nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for p in whole]
    optimizer = st.AdamW(params, lr=0.01, place=place)
    step = optimizer.recover()
    os.write(told, b"%d\n" % step)
    if expected is not None:
        for param, wanted in zip(params, expected[step], strict=True):
            assert same(param.detach().full_tensor(), wanted), step
        dist.barrier()
        return
    while True:
        for param, grad in zip(params, grads(whole, step), strict=True):
            param.grad = distribute_tensor(grad, mesh, [Shard(0)])
        optimizer.step()
        step += 1
        os.write(told, b"%d\n" % step)


def started(place, meeting, expected=None):
    """The processes of the ranks, and where the first tells of its steps."""
    children, (reads, told) = [], os.pipe()
    for rank in range(RANKS):
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            torch.set_num_threads(1)  # OpenMP's are not there
            try:
                run(rank, place, meeting, told if rank == 0 else os.open(os.devnull, os.O_WRONLY),
                    expected)  # fmt: skip
                os._exit(0)
            except BaseException:
                if expected is not None:
                    traceback.print_exc()
                os._exit(1)
        children.append(child)
    os.close(told)
    return children, os.fdopen(reads)


def test_ranks_that_are_killed(tmp_path):
    place = st.Place("disk", path=tmp_path, window_bytes=1 << 16, durable=True)
    chance, expected, at = random.Random(5), expected_of(40), 0
    for moment in range(MOMENTS):
        children, told = started(place, tmp_path / f"meeting-{moment}")
        assert int(told.readline()) == at
        time.sleep(chance.uniform(0, 0.08))
        for child in chance.sample(children, RANKS):
            os.kill(child, signal.SIGKILL)
            time.sleep(chance.uniform(0, 0.004))
        for child in children:
            os.waitpid(child, 0)
        said = [int(line) for line in told.read().split()]
        last = max([at, *said])
        while len(expected) <= last + 1:
            expected = expected_of(2 * len(expected))
        children, told = started(place, tmp_path / f"again-{moment}", expected)
        found = int(told.readline())
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * RANKS, moment
        assert found in (last, last + 1), (moment, last, found)
        at = found
