"""One case of the benchmark in a process of its own: a shape and a storage type.

    case.py SHAPE DTYPE NAME[,NAME...] ROUNDS FOLDER

All contestants take turns within each round; a turn is a few steps, the first of
them to warm up, the median of the others is the round's value. Before and after
each turn the in-place stream has one: what a shared machine does in between moves
both. Prints JSON on the last line. The allocator's mode is set by who starts the
process.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

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

SMALL = 10_000_000  # elements; below it a turn has more steps


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
            torch.empty(size, dtype=kind).normal_(0.0, 1e-2, generator=generator)
            for size in self.shapes
        ]
        small = self.elements < SMALL
        self.warm, self.timed = (2, 5) if small else (1, 1)

    def stream_of(self, dtype):
        """A stream of the case's elements on memory of its own, tuned."""
        stream = native.Stream(
            self.native_library, native.Arena(self.native_library, dtype, self.elements), dtype
        )
        stream.tune()
        return stream


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


def make_all(case, names):
    """Contestants by name; and who is absent, with why."""
    taking_part, absent = {}, {}
    for name in names:
        reason = contestants.why_absent(name)
        if reason is None:
            try:
                taking_part[name] = contestants.make(name, case)
                turn(taking_part[name], 0, 1)
            except Exception as error:  # one that fails does not end the others
                taking_part.pop(name, None)
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if reason is not None:
            absent[name] = reason
    return taking_part, absent


def run(case, taking_part, rounds):
    """By contestant, a value a round: seconds, the stream's seconds beside it, and
    seconds above the kernel where that is known."""
    stream = contestants.Native(case.stream.fast)
    seconds = {name: [] for name in taking_part}
    beside = {name: [] for name in taking_part}
    above = {}
    order = list(taking_part)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        before, _ = turn(stream, case.warm, case.timed)
        for name in order:
            step, extra = turn(taking_part[name], case.warm, case.timed)
            seconds[name].append(step)
            if extra is not None:
                above.setdefault(name, []).append(extra)
            after, _ = turn(stream, case.warm, case.timed)
            beside[name].append((before + after) / 2)
            before = after
    return seconds, beside, above


def main():
    shape, dtype, names, rounds, folder = sys.argv[1:]
    case = Case(shape, dtype, Path(folder))
    taking_part, absent = make_all(case, names.split(","))
    seconds, beside, above = run(case, taking_part, int(rounds))
    result = {
        "shape": shape,
        "dtype": dtype,
        "tensors": len(case.shapes),
        "elements": case.elements,
        "bytes": case.stream.bytes,
        "threads": case.threads,
        "prefetch_seconds": case.stream.tried,
        "prefetch_lines": case.stream.distance,
        "steps_a_turn": [case.warm, case.timed],
        "seconds": seconds,
        "stream_beside": beside,
        "above_kernel": above,
        "absent": absent,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
