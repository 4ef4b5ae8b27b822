# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps on forked ranks of which one is killed, stopped or late, for test_killed.py and
test_timeout.py: ``killed_ranks.py KIND,POINT,HOW[,own]...`` prints what is not as it should be.

KIND is what is stepped. Rank 2 meets its fate at its POINT-th collective: killed before or after
it, stopped, or late by more than the deadline; with no HOW nothing happens. The deadline is that
of the process group, or with "own" the optimizer's, and the group's a minute.
"""

import datetime
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import stepc.torch as st
import torch
import torch.distributed as dist
from stepc import errors
from stepc._shared_memory import SharedGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

WORLD, VICTIM, DEADLINE = 4, 2, 6
SLACK = 5  # seconds, of a machine with other work: two deadlines are more than both
STEPS = 40
SQUARE = Path(__file__).parent / "definitions" / "square.mlir"
MESHES = ("of two dims", "owned of two dims", "in tensor parallelism")  # kinds on two dims
COLLECTIVES = ["all_reduce", "all_to_all_single", "all_gather_single", "broadcast"]
WORDS = ("round", "gradients could not be", "parameters could not be", "could not be summed",
         "could not cross ranks", "parts could not be", "has not come to its step",
         "rank 2")  # fmt: skip


def optimizer(kind, **more):
    params = [torch.nn.Parameter(torch.ones(9, 6)), torch.nn.Parameter(torch.ones(5))]
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("dp",))
    if kind in ("dtensor", "norm"):
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(3, 2), mesh, [Shard(0)]))]
        return params, st.came.CAME(params, lr=1e-3, **more)
    if kind == "redistributed":
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(3, 2), mesh, [Replicate()]))]
        return params, st.AdamW(params, **more)
    if kind in MESHES:
        # Groups along a dim of such a mesh have 30 minutes from torch.
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if kind == "of two dims":
        both = [Shard(0), Shard(1)]
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(3, 2), mesh, both))]
        return params, st.came.CAME(params, lr=1e-3, **more)
    if kind == "owned of two dims":
        both = [Shard(0), Shard(1)]
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(4, 4), mesh, both))]
        return params, st.Optimizer(params, SQUARE, lr=1e-3, **more)
    if kind == "in tensor parallelism":
        how = st.Layout(mesh, [Replicate(), Shard(0)])
        named = [(f"w{i}", param) for i, param in enumerate(params)]
        return params, st.AdamW(
            named, layouts=[(".*", how)], clip=st.ClipByNorm(1.0), zero=1, gradients="local",
            process_group=mesh["dp"].get_group(), **more,
        )  # fmt: skip
    if kind == "owned":
        params = [torch.nn.Parameter(DTensor.from_local(torch.ones(2, 8), mesh, [Shard(0)]))]
        return params, st.Optimizer(params, SQUARE, lr=1e-3, **more)
    if kind == "partial":
        how = st.Layout(mesh, [Replicate()], grad="partial", grad_divisor=WORLD)
        named = [(f"w{i}", param) for i, param in enumerate(params)]
        return params, st.AdamW(named, layouts=[(".*", how)], **more)
    if kind == "zero2":
        return params, st.AdamW(params, zero=2, gradients="local", bucket_bytes=100, **more)
    return params, st.deepspeed.FusedLamb(
        params, lr=1e-3, zero=1, gradients=kind, clip=st.ClipByNorm(1.0), **more
    )


def train(kind, params, opt):
    """One step."""
    if kind == "zero2":
        opt.zero_grad()
        sum(param.sum() for param in params).backward()
    else:
        for param in params:
            param.grad = torch.ones_like(param)
    if kind == "redistributed":
        (param,) = params
        param.grad = DTensor.from_local(torch.ones(3, 2), param.device_mesh, [Partial()])
    if kind == "norm":
        st.clip_grad_norm_([opt], 1.0)
    else:
        opt.step()


def meet(fate):
    if fate == "late":
        time.sleep(DEADLINE + 2)
    else:
        os.kill(os.getpid(), signal.SIGSTOP if fate == "stopped" else signal.SIGKILL)


def count_calls(rank, point, how):
    """Has the victim meet its fate at one of its collectives."""
    calls = [0]

    def counted(function):
        def call(*args, **kwargs):
            at = calls[0]
            calls[0] += 1
            ends = rank == VICTIM and at == point
            if ends and how != "after":
                meet(how)
            result = function(*args, **kwargs)
            if ends and how == "after":
                meet(how)
            return result

        return call

    for name in COLLECTIVES:
        setattr(dist, name, counted(getattr(dist, name)))
    for name in ("reduce", "start"):
        setattr(SharedGroup, name, counted(getattr(SharedGroup, name)))
    DTensor.redistribute = counted(DTensor.redistribute)


def failure(function):
    """What a function raises, in words; None where it comes to its end."""
    try:
        function()
    except errors.StepcError as error:
        return f"{getattr(error, 'status', type(error).__name__)}: {error}"
    except BaseException as error:
        return f"not ours: {type(error).__name__}: {error}"
    return None


def afterwards(kind, params, opt, saved):
    """What is wrong with an optimizer one of whose exchanges has run out of its own time. A norm
    is none of its step."""
    if kind == "norm":
        (grad,) = [param.grad.to_local() for param in params]
        return _timeouts() if bool((grad == 1).all()) else f"the gradient is {grad}"
    again = failure(lambda: train(kind, params, opt)) or ""
    if not again.startswith("STEPC_POISONED: an earlier step failed midway"):
        return f"another step said {again}"
    opt.load_state_dict(saved)
    again = failure(lambda: train(kind, params, opt)) or ""
    if not again.startswith("STEPC_COMMUNICATION_ERROR"):
        return f"after loading a step said {again}"
    return _timeouts()


def _timeouts():
    """The default group's, or torch's own of a mesh."""
    timeouts = {group._get_backend(torch.device("cpu")).options._timeout
                for group in dist.distributed_c10d._world.pg_map}  # fmt: skip
    timeouts -= {dist.constants.default_pg_timeout}
    return "" if timeouts == {datetime.timedelta(minutes=1)} else f"timeouts are {timeouts}"


def rank_main(rank, folder, kind, point, how, own):
    torch.set_num_threads(1)
    deadline = datetime.timedelta(seconds=DEADLINE)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD,
        timeout=datetime.timedelta(minutes=1) if own else deadline,
    )  # fmt: skip
    params, opt = optimizer(kind, **({"timeout": deadline} if own else {}))
    count_calls(rank, point, how)
    saved, said = opt.state_dict(), None
    for _ in range(STEPS if how else 2):
        began = time.monotonic()
        said = failure(lambda: train(kind, params, opt))
        if said:
            break
    took = time.monotonic() - began
    wrong = afterwards(kind, params, opt, saved) if own and how and said else ""
    with open(f"{folder}/{rank}.part", "w") as file:
        json.dump([said, took, wrong], file)
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.json")
    if how == "stopped":
        time.sleep(100)
    os._exit(0)


def judge(rank, how, names, said, seconds, wrong):
    """What is wrong with what a rank said. ``names``: whether it is to know which one it was."""
    if not how and said is None:
        return ""
    if said is None or "not ours" in said or not any(words in said for words in WORDS):
        return f"rank {rank} said {said}"
    if names and rank != VICTIM and not re.search(rf"rank (\d, )*{VICTIM}\b", said):
        return f"rank {rank} does not name the other: {said}"
    if seconds > DEADLINE + SLACK + (2 if rank == VICTIM else 0):
        return f"rank {rank} took {seconds:.1f} s to say {said}"
    return wrong


def one(kind, point, how, own):
    # Without a point to end at all come through: what is compiled is there then.
    waited = [rank for rank in range(WORLD) if rank != VICTIM or how in ("", "late")]
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                try:
                    rank_main(rank, folder, kind, point, how, own)
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
            # A rank that has no group with it waits for one that has.
            names = own and kind not in MESHES
            with open(f"{folder}/{rank}.json") as file:
                words = judge(rank, how, names, *json.load(file))
            if words:
                return words
    return ""


if __name__ == "__main__":
    gc.freeze()  # what was imported stays: no rank need look through it again and again
    for argument in sys.argv[1:]:
        kind, point, how, *own = argument.split(",")
        words = one(kind, int(point), how, bool(own))
        if words:
            print(f"{argument}: {words}", flush=True)
