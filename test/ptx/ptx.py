# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An interpreter of the PTX that stepc writes, for tests: integers, correctly rounded
floats, branches, barriers, shuffles, shared memory, and global memory, which is memory of
this process. The threads of a block run in lock-step: those furthest behind go on
together until they meet others. PTX ISA 8.0 defines the instructions; one that
is not known here is an error, and so is an access that is not aligned, that is not in a region
that the test named, or that races with one of another thread.
"""

import re

import numpy as np
from instructions import make
from listing import Listing, split
from memory import Fault, Memory

_SHARED = re.compile(r"^\s*\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\];", re.M)

__all__ = ["Fault", "Kernel", "Memory"]


class Kernel:
    """One entry point of a module's text."""

    def __init__(self, text, name):
        head = rf"\.visible \.entry {re.escape(name)}\("
        match = re.search(head + r"(.*?)\)(.*?)\{(.*?)\n\}", text, re.S)
        if not match:
            raise Fault(f"no entry point {name}")
        self.parameters = re.findall(r"([\w$]+_param_\d+)", match[1])
        self.threads = int(re.search(r"\.reqntid (\d+)", match[2])[1])
        self.shared = {name: int(size) for _, name, size in _SHARED.findall(text)}
        listing = Listing(text, match[3])
        self.code = [
            (predicate, wanted, operation, make(operation, parts, operands, listing.labels))
            for predicate, wanted, operation, parts, operands in map(split, listing.lines)
        ]

    def launch(self, blocks, arguments, memory):
        """Runs all threads of a grid of `blocks` blocks."""
        given = dict(zip(self.parameters, arguments, strict=True))
        memory.begin_launch()
        with np.errstate(all="ignore"):
            for block in range(blocks):
                _Block(self, block, blocks, given, memory).run(self.code)


class _Block:
    """A block of threads. Registers hold the bits of all threads; those of predicates are
    bools. `groups`: by place in the code, the threads that are there.
    """

    def __init__(self, kernel, number, blocks, given, memory):
        self.count, self.given, self.memory = kernel.threads, given, memory
        self.all = np.arange(self.count)
        special = {"%ctaid.x": number, "%nctaid.x": blocks, "%ntid.x": self.count}
        self.registers = {
            name: np.full(self.count, value, np.uint64) for name, value in special.items()
        }
        self.registers["%tid.x"] = self.all.astype(np.uint64)
        self.arrays = {name: np.full(size, 0xFF, np.uint8) for name, size in kernel.shared.items()}
        self.shared = Memory(self.arrays.values())
        self.shared.begin_launch()
        self.number = number
        self.ended = 0

    def get(self, name, threads):
        if name not in self.registers:
            raise Fault(f"{name} is read before it is set")
        return self.registers[name][threads]

    def set(self, name, threads, values):
        if name not in self.registers:
            kind = bool if name.startswith("%p") else np.uint64
            self.registers[name] = np.zeros(self.count, kind)
        self.registers[name][threads] = values

    def run(self, code):
        groups, waiting = {0: self.all}, {}
        while groups or waiting:
            if not groups:
                groups = self.pass_barrier(waiting)
                waiting = {}
            place = min(groups)
            threads = groups.pop(place)
            self.go_on(code, place, threads, groups, waiting)

    def pass_barrier(self, waiting):
        """All threads of the block have come to one barrier."""
        if self.ended:
            raise Fault("threads have ended that others wait for at a barrier")
        if len(waiting) != 1:
            raise Fault("threads of a block wait at different barriers")
        self.memory.begin_interval()
        self.shared.begin_interval()
        return waiting

    def go_on(self, code, place, threads, groups, waiting):
        """Runs `threads` from `place` on until they meet others, wait or end."""
        others = min(groups, default=len(code))
        active = slice(None) if len(threads) == self.count else threads

        def leave(target, which):
            have = groups.get(target)
            groups[target] = which if have is None else np.union1d(have, which)

        while place < others:
            predicate, wanted, operation, execute = code[place]
            chosen, run = threads, active
            if predicate:
                taken = self.get(predicate, active) == wanted
                if not taken.all():
                    chosen = run = threads[taken]
            if operation == "bra":
                if len(chosen) == len(threads):
                    place = execute
                    if place >= others:
                        break
                    continue
                if len(chosen):
                    leave(execute, chosen)
                    rest = threads[~taken]
                    leave(place + 1, rest)
                    return
                place += 1
                continue
            if operation == "ret":
                self.ended += len(chosen)
                if len(chosen) == len(threads):
                    return
                threads = active = threads[~taken]
            elif operation == "bar":
                if len(chosen) != len(threads):
                    raise Fault("a barrier has a predicate")
                have = waiting.get(place + 1)
                waiting[place + 1] = threads if have is None else np.union1d(have, threads)
                return
            elif len(chosen):
                execute(self, run)
            place += 1
        leave(place, threads)

    def numbers(self, threads):
        """Numbers of the threads in the grid."""
        return self.all[threads] + self.number * self.count
