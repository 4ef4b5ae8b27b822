# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank that is killed, or stopped, in the middle of a step: the others return an error that
names what they were doing, and none hangs.

A killed rank is noticed as its connections close, one that is stopped when the deadline is
over: one deadline, and not one for each exchange of the step, also where those who have their
error stay alive and go no further. Ranks are forked from one process. STEPC_KILL_POINTS=100
takes so many points in place of eight.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
POINTS = int(os.environ.get("STEPC_KILL_POINTS", "8"))

PROGRAM = r"""
import datetime, json, os, signal, sys, tempfile, time
sys.path[:0] = [HERE, FRONTEND]
import torch
import torch.distributed as dist
import stepc.torch as st
from stepc import errors
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.device_mesh import init_device_mesh
import torch.distributed.tensor

WORLD, VICTIM, DEADLINE = 4, 2, 4
SLACK = 3  # seconds, of a machine with other work: two deadlines are more than both
STEPS = 40
COLLECTIVES = ["all_reduce", "all_to_all_single", "all_gather_single"]


def optimizer(kind):
    params = [torch.nn.Parameter(torch.ones(9, 6)), torch.nn.Parameter(torch.ones(5))]
    if kind == "dtensor":
        mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(3, 2), mesh, [Shard(0)]))]
        return params, st.came.CAME(params, lr=1e-3)
    return params, st.deepspeed.FusedLamb(
        params, lr=1e-3, zero=1, gradients=kind, clip=st.ClipByNorm(1.0)
    )


def rank_main(rank, folder, kind, point, how):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD,
        timeout=datetime.timedelta(seconds=DEADLINE),
    )
    params, opt = optimizer(kind)
    calls = [0]

    def counted(function):
        def call(*args, **kwargs):
            at = calls[0]
            calls[0] += 1
            fate = signal.SIGSTOP if how == "stopped" else signal.SIGKILL
            dies = rank == VICTIM and at == point
            if dies and how != "after":
                os.kill(os.getpid(), fate)
            result = function(*args, **kwargs)
            if dies:
                os.kill(os.getpid(), fate)
            return result

        return call

    for name in COLLECTIVES:
        setattr(dist, name, counted(getattr(dist, name)))
    said, began = None, None
    try:
        for step in range(STEPS if how else 2):
            for param in params:
                param.grad = torch.ones_like(param)
            began = time.monotonic()
            opt.step()
    except errors.StepcError as error:
        said = f"{type(error).__name__}: {error}"
    except BaseException as error:
        said = f"not ours: {type(error).__name__}: {error}"
    with open(f"{folder}/{rank}.part", "w") as file:
        json.dump([said, time.monotonic() - began], file)
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.json")
    if how == "stopped":
        time.sleep(100)
    os._exit(0)


def one(kind, point, how):
    # Without a point to end at all come through: what is compiled is there then.
    waited = [rank for rank in range(WORLD) if rank != VICTIM or not how]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                try:
                    rank_main(rank, folder, kind, point, how)
                finally:
                    os._exit(1)
            children.append(pid)
        limit, late = time.monotonic() + 60, waited
        while late and time.monotonic() < limit:
            late = [rank for rank in late if not os.path.exists(f"{folder}/{rank}.json")]
            time.sleep(0.02)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if late:
            return f"ranks {late} hang"
        for rank in waited:
            said, seconds = json.load(open(f"{folder}/{rank}.json"))
            if not how and said is None:
                continue
            names = ("round", "gradients could not be", "parameters could not be",
                     "has not come to its step", "rank 2")
            if said is None or not any(name in said for name in names):
                return f"rank {rank} said {said}"
            if seconds > DEADLINE + SLACK:
                return f"rank {rank} took {seconds:.1f} s to say {said}"
    return ""


for argument in sys.argv[1:]:
    kind, point, how = argument.split(",")
    words = one(kind, int(point), how)
    if words:
        print(f"{argument}: {words}", flush=True)
"""


KINDS = ("local", "reduced", "dtensor")
WARM = [f"{kind},-1," for kind in KINDS]


def points():
    return [
        f"{KINDS[i % 3]},{1 + (i * 7) // 3 % 29 if i >= 3 else i},{('before', 'after')[i % 2]}"
        for i in range(POINTS)
    ]


def said_of(script, arguments):
    run = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True, text=True, timeout=60 * len(arguments), check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("killed") / "killed.py"
    frontend = str(HERE.parents[1] / "frontend")
    path.write_text(PROGRAM.replace("HERE", repr(str(HERE))).replace("FRONTEND", repr(frontend)))
    assert said_of(path, WARM) == ""
    return path


def test_survivors_of_a_killed_rank_say_what_failed(script):
    assert said_of(script, points()) == ""


def test_survivors_of_a_stopped_rank_say_what_failed_after_a_deadline(script):
    assert said_of(script, ["local,9,stopped", "dtensor,6,stopped"]) == ""
