"""One case of the benchmark in a process of its own: a shape and a storage type.

    case.py SHAPE DTYPE NAME[,NAME...] ROUNDS BUDGET FOLDER

All contestants take turns within each round; a turn is a few steps, the first of
them to warm up, the median of the others is the round's value. Before and after
each turn the in-place stream has one: what a shared machine does in between moves
both. A contestant that would need more than BUDGET seconds takes part in fewer
rounds, spread evenly over all, and one whose step is slow has one step a turn.
Prints JSON on the last line. The allocator's mode is set by who starts the process.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import gc
import json
import random
import statistics
import sys
import time
from pathlib import Path

import contestants
import native
import shapes
import torch
from filling import fill

SMALL = 10_000_000  # elements; below it a turn has more steps
LARGE = 200_000_000  # above it only one contestant has its tensors at a time
SLOW = 0.25  # seconds a step
LEAST_ROUNDS = 3


class Case:
    """What the contestants of one case share."""

    def __init__(self, shape, dtype, folder):
        self.shapes = shapes.SHAPES[shape]()
        self.dtype, self.folder = dtype, folder
        self.elements = shapes.elements(self.shapes)
        self.threads = torch.get_num_threads()
        self.native_library = native.load(self.threads)
        self.stream = self.stream_of(dtype)
        self.arena = self.stream.arena
        generator = torch.Generator().manual_seed(0)
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.gradients = [
            fill(torch.empty(size, dtype=kind), lambda t: t.normal_(0.0, 1e-2, generator=generator))
            for size in self.shapes
        ]
        self.steps = (2, 5) if self.elements < SMALL else (1, 1)  # untimed, timed

    def stream_of(self, dtype):
        """A stream of the case's elements on memory of its own, tuned."""
        stream = native.Stream(
            self.native_library, native.Arena(self.native_library, dtype, self.elements), dtype
        )
        stream.tune()
        return stream

    def stream_of_one_state(self):
        """A stream over the case's memory of an optimizer with one state, tuned."""
        stream = native.Stream(self.native_library, self.arena, self.dtype, states=1)
        stream.tune()
        return stream.fast

    def read_of_gradient(self):
        """A read of as many bytes as the gradient has, tuned."""
        read = native.Read(self.native_library, self.arena)
        read.tune()
        return read.fast


def clocked(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def turn(contestant, warm, timed):
    """Seconds of a step, the median of the timed ones; and how much of it is above
    the kernel, None where that cannot be told.

    The kernel's own time is that of the same step once more on the same tensors,
    called below Python. It finds the caches warmer, if anything: what is called
    above the kernel is at least that.
    """
    steps, kernels = [], []
    for number in range(warm + timed):
        contestant.before()
        step = clocked(contestant.step)
        kernel = clocked(contestant.alone) if contestant.alone else None
        contestant.after()
        if number >= warm:
            steps.append(step)
            kernels.append(kernel)
    step = statistics.median(steps)
    return step, None if None in kernels else step - statistics.median(kernels)


class Seat:
    """A contestant's place: keeps it, or makes it anew for each turn where the
    tensors of all together could be too much for the machine."""

    def __init__(self, name, case):
        self.name, self.case = name, case
        self.steps = case.steps
        large = case.elements > LARGE and name not in contestants.WITHOUT_TENSORS
        self.kept = None if large else contestants.make(name, case)

    def turn(self):
        if self.kept is not None:
            return turn(self.kept, *self.steps)
        made = contestants.make(self.name, self.case)
        try:
            return turn(made, max(1, self.steps[0]), 1)  # the first makes states
        finally:
            del made
            gc.collect()

    def settle(self, rounds, budget):
        """Tries it out; returns the rounds that it is to take part in."""
        if self.kept is None:
            return spread(rounds, int(budget / clocked(self.turn)))
        turn(self.kept, 0, 1)  # makes states; ours compiles
        begin = time.perf_counter()
        step, _ = turn(self.kept, 0, 1)
        seconds = time.perf_counter() - begin
        if step > SLOW:
            self.steps = (0, 1)
        return spread(rounds, int(budget / (seconds * sum(self.steps))))


def spread(rounds, share):
    """`share` of the rounds, at least LEAST_ROUNDS of them if there are so many,
    evenly spread from the first to the last."""
    share = min(rounds, max(share, LEAST_ROUNDS))
    return {round(i * (rounds - 1) / max(1, share - 1)) for i in range(share)}


def make_all(case, names, rounds, budget):
    """By name: seats, the rounds that they take part in, and who is absent, why."""
    seats, plans, absent = {}, {}, {}
    for name in names:
        reason = contestants.why_absent(name)
        if reason is None:
            try:
                seats[name] = Seat(name, case)
                plans[name] = seats[name].settle(rounds, budget)
            except Exception as error:  # one that fails does not end the others
                seats.pop(name, None)
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if reason is not None:
            absent[name] = reason
    return seats, plans, absent


def run(case, seats, plans, rounds):
    """By contestant, a value for each of its rounds: the round, seconds, the stream's
    seconds beside it, and seconds above the kernel where that is known."""
    stream = contestants.Native(case.stream.fast)
    values = {what: {name: [] for name in seats} for what in ("rounds", "seconds", "stream_beside")}
    above = values["above_kernel"] = {}
    order = list(seats)
    shuffle = random.Random(0).shuffle
    for number in range(rounds):
        shuffle(order)
        before, _ = turn(stream, *case.steps)
        for name in order:
            if number not in plans[name]:
                continue
            step, extra = seats[name].turn()
            after, _ = turn(stream, *case.steps)
            values["rounds"][name].append(number)
            values["seconds"][name].append(step)
            values["stream_beside"][name].append((before + after) / 2)
            if extra is not None:
                above.setdefault(name, []).append(extra)
            before = after
    return values


def main():
    shape, dtype, names, rounds, budget, folder = sys.argv[1:]
    case = Case(shape, dtype, Path(folder))
    rounds = int(rounds)
    seats, plans, absent = make_all(case, names.split(","), rounds, float(budget))
    result = {
        "shape": shape,
        "dtype": dtype,
        "tensors": len(case.shapes),
        "elements": case.elements,
        "bytes": case.stream.bytes,
        "threads": case.threads,
        "prefetch_seconds": case.stream.tried,
        "prefetch_lines": case.stream.distance,
        "steps_a_turn": {name: seat.steps for name, seat in seats.items()},
        **run(case, seats, plans, rounds),
        "absent": absent,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
