"""One rank of the distributed benchmark, started by distributed.py through torchrun.

    distributed_rank.py SHAPE ROUNDS NAMES

Rank 0 prints JSON on its last line.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import datetime
import json
import os
import random
import sys
import time

import shapes
import torch
import torch.distributed as dist
from sharded import ENTRIES, REFERENCE, World
from stepc._mesh import ALL_GATHER
from stepc._shared_memory import SharedGroup
from torch.utils._python_dispatch import TorchDispatchMode


class Sent(TorchDispatchMode):
    """Counts collectives and what this rank sends in them, in bytes: of an all-reduce what
    a ring sends, of a broadcast a rank's share, of the others each part once. Those that go
    through memory which ranks share count as they would over sockets."""

    def __init__(self, world):
        super().__init__()
        self.world, self.calls, self.bytes = world, 0, 0.0
        self._own = {name: getattr(SharedGroup, name) for name in ("reduce", "start")}

    def __enter__(self):
        sent = self

        def reduce(group, calls):
            for call in calls:
                sent._add("allreduce", 8 * call.count)
            return sent._own["reduce"](group, calls)

        def start(group, transfer):
            rank, numbers = dist.get_rank(), range(sent.world)
            if transfer.kind == ALL_GATHER:
                sent._add("allgather", transfer.receiveBytes[rank])
            else:
                sent._add("alltoall", sum(transfer.sendBytes[n] for n in numbers))
            return sent._own["start"](group, transfer)

        SharedGroup.reduce, SharedGroup.start = reduce, start
        return super().__enter__()

    def __exit__(self, *error):
        for name, function in self._own.items():
            setattr(SharedGroup, name, function)
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d" and "barrier" not in func.name():
            self._count(func.name(), args)
        return func(*args, **(kwargs or {}))

    def _count(self, name, args):
        if "allgather" in name:  # output, input
            own = args[1] if isinstance(args[1], torch.Tensor) else args[1][0]
            self._add(name, own.nbytes)
        elif "alltoall" in name:
            self._add(name, args[1].nbytes)
        elif "allreduce" in name or "broadcast" in name:
            self._add(name, sum(tensor.nbytes for tensor in args[0]))
        else:
            raise ValueError(f"'{name}' is not a collective that is counted")

    def _add(self, name, size):
        share = (self.world - 1) / self.world
        self.calls += 1
        if "allgather" in name:
            self.bytes += size * (self.world - 1)
        else:
            self.bytes += size * share * (2 if "allreduce" in name else 1)


def timed(contestant):
    """Seconds of a step of the slowest rank."""
    contestant.before()
    dist.barrier()
    begin = time.perf_counter()
    contestant.step()
    own = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    contestant.after()
    return own.item()


def make_all(world, names):
    """Contestants by name, and who cannot step, why; all ranks alike."""
    seats, absent = {}, {}
    for name in names:
        entry = ENTRIES[name]
        try:
            seats[name] = entry.make(world)
            timed(seats[name])
            timed(seats[name])  # states are there
        except (RuntimeError, ValueError) as error:
            seats.pop(name, None)
            absent[name] = f"raises {type(error).__name__}: {error}".splitlines()[0][:120]
    return seats, absent


def count(seats, world):
    """Calls and bytes of a step of each."""
    found = {}
    for name, seat in seats.items():
        seat.before()
        with Sent(world.size) as sent:
            seat.step()
        seat.after()
        found[name] = {"calls": sent.calls, "bytes": sent.bytes}
    return found


def main():
    shape, rounds, names = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    world = World(shapes.SHAPES[shape]())
    seats, absent = make_all(world, list(dict.fromkeys([REFERENCE, *names])))
    sent = count(seats, world)
    seconds = {name: [] for name in seats}
    order, shuffle = list(seats), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            timed(seats[name])
            seconds[name].append(timed(seats[name]))
    if world.rank == 0:
        result = {"shape": shape, "ranks": world.size, "rounds": rounds,
                  "elements": shapes.elements(world.shapes), "seconds": seconds,
                  "sent": sent, "absent": absent}  # fmt: skip
        print(json.dumps(result), flush=True)
    dist.barrier()
    # Gloo's threads may still free tensors of the last works, for which they need the
    # interpreter: one that is on its way out ends them inside of C++, which aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
