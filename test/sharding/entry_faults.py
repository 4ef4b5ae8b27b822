# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank that fails, or stops, in some call of a step with exchanges around it."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
from entries import Run, bits
from stepc import errors
from stepc._mesh import FINISH, REDUCE, START, CommunicatorStruct, SimulatedWorld

DEADLINE = 0.4  # seconds
AS_BEFORE = "nothing was written, parameters and states are as before"


class Failing:
    """The communicator of a rank whose call number ``at`` fails, or comes ``late`` by more than
    the others wait for."""

    def __init__(self, real, at, late):
        self.calls, self.at, self.late, self.real = 0, at, late, real
        self.made = CommunicatorStruct(ctypes.sizeof(CommunicatorStruct), real.context)
        for name, kind in (("reduce", REDUCE), ("start", START), ("finish", FINISH)):
            setattr(self.made, name, kind(self.wrap(getattr(real, name))))

    def wrap(self, function):
        def call(*arguments):
            self.calls += 1
            if self.calls == self.at and not self.late:
                words = b"the cable is gone\0"
                ctypes.memmove(arguments[-2], words, len(words))
                return 1
            if self.calls == self.at:
                time.sleep(3 * DEADLINE)
            return function(*arguments)

        return call


def snapshot(run):
    return [bits(param.view) for param in run.params], [
        {name: bits(state) for name, state in own.items()} for own in run.states()
    ]


def fail_at(model, package, rank, at, late):
    """What is wrong with what ranks say and leave where the call of a rank fails; None where it
    makes fewer calls, else "" for nothing."""
    world = SimulatedWorld(model.mesh, int(1000 * DEADLINE))
    failing = Failing(world.communicator(rank), at, late)
    said, runs, before = {}, {}, {}

    def work(own):
        communicator = failing.made if own == rank else world.communicator(own)
        try:
            run = runs[own] = Run(model, package, communicator, own)
            for step in range(len(model.orders)):
                before[own] = snapshot(run)
                run.step(step)
        except errors.CommunicationError as error:
            said[own] = str(error)
        except errors.StepcError as error:
            said[own] = f"{type(error).__name__}: {error}"

    threads = [
        threading.Thread(target=work, args=(own,), daemon=True) for own in range(model.world)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    if any(thread.is_alive() for thread in threads):
        return "a rank hangs"
    if failing.calls < at:
        return None if not said else f"ranks failed without a cause: {said}"
    if time.monotonic() - begin > 15 * DEADLINE + 5:
        return "it took too long"
    return judge(model, rank, late, said, runs, before)


def judge(model, rank, late, said, runs, before):
    if rank not in said:
        return "the rank that failed says nothing"
    if not late and "the cable is gone" not in said[rank]:
        return f"the rank that failed says: {said[rank]}"
    for own, words in said.items():
        if AS_BEFORE in words:
            if snapshot(runs[own]) != before[own]:
                return f"rank {own} says '{words}', and something was written"
            continue
        try:
            runs[own].plan.step()
        except errors.StatusError as error:
            if error.status == "STEPC_POISONED":
                continue
        return f"rank {own} says '{words}', and goes on"
    return ""


def random_fault(model, seed):
    """A rank, a call of its, and whether it comes late in place of failing."""
    rng = np.random.default_rng([seed, 7])
    return int(rng.integers(model.world)), int(rng.integers(1, 25)), bool(rng.random() < 0.3)
