# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a training step moves, one after the other: exchanges beside the optimizer's step,
its kernels and its rounds.

Seconds are estimated: bytes over bandwidth and messages times latency, nothing overlapped. A
forward and a backward pass take longer than what is exchanged in them, which alone is here.
"""

from __future__ import annotations

from typing import NamedTuple

from . import traffic
from .account import RankAccount
from .layouts import Layout
from .machines import Machine

STEP = "step"
MEMORY = "memory"  # the lane of kernels


class Event(NamedTuple):
    """``when``: of :data:`stepc.plan.traffic.TIMES`, or STEP. ``lane``: the axes that bytes
    cross, or MEMORY. ``bytes``: moved by kernels, or sent by the rank."""

    when: str
    what: str
    lane: str
    bytes: int
    seconds: float


def events(layout: Layout, machine: Machine, account: RankAccount,
           rows: list[traffic.Traffic]) -> list[Event]:  # fmt: skip
    """In the order of time, of a machine whose figures are known. ``rows``: beside the step."""
    beside = [(row.when, _beside(layout, machine, row)) for row in rows]
    ends = [event for when, event in beside if when == traffic.AFTER]
    begins = [e for time in traffic.TIMES[:-1] for when, e in beside if when == time]
    return [*begins, *_step(layout, machine, account), *ends]


def _beside(layout: Layout, machine: Machine, row: traffic.Traffic) -> Event:
    what = f"{row.what}, {row.operation}"
    return Event(row.when, what, _lane(row.axes), row.sent,
                 _seconds(layout, machine, row.axes, row.calls or 1, row.sent))  # fmt: skip


def _step(layout: Layout, machine: Machine, account: RankAccount) -> list[Event]:
    rounds: dict[tuple[int, tuple[str, ...]], int] = {}
    for call in account.calls:
        key = (call.round, call.axes)
        rounds[key] = rounds.get(key, 0) + call.bytes
    last = max([*account.moved, *(number for number, _ in rounds)], default=0)
    found = []
    for segment in range(last + 1):
        if moved := account.moved[segment]:
            name = f"kernels of segment {segment}"
            found.append(Event(STEP, name, MEMORY, moved, moved / machine.memory))
        for (number, axes), data in rounds.items():
            if number == segment:
                sent = traffic.ring("all_reduce", layout.size(axes), data)
                found.append(Event(STEP, f"round {number}, all_reduce", _lane(axes), sent,
                                   _seconds(layout, machine, axes, 1, sent)))  # fmt: skip
    return found


def _lane(axes: tuple[str, ...]) -> str:
    return ", ".join(axes)


def _seconds(layout: Layout, machine: Machine, axes: tuple[str, ...], calls: int, sent: int):
    return machine.seconds(layout.size(axes), layout.reach(axes), calls, sent)
