# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What of a rank's states lies on disk with ``place=Place("disk")`` (docs/placement.md)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from .._describe import BLOCK, SCALE, Tensor, is_scale
from .._store import SMALL, WINDOW_BYTES, WINDOWS
from ..schedule import widths
from .account import coded_bytes, held_over_rounds
from .kept import AVERAGES
from .layouts import Part
from .package import Package
from .planning import Plan


@dataclass
class OnDisk:
    """Bytes: of states on disk, read and written in a step, and of the windows in memory."""

    states: int = 0
    moved: int = 0
    windows: int = 0


def of_plan(plan: Plan) -> OnDisk:
    """Of the rank that has the most, but for windows, of which any may have the most. What owners
    step stays in memory."""

    def of(rank: int) -> OnDisk:
        return of_parts(plan.package, plan.layout.parts(plan.owners.cut, rank))

    found, differ = of(plan.fullest), plan.layout.is_flat and plan.package.kept.keeps_codes
    if differ:
        found.windows = max(of(rank).windows for rank in range(plan.layout.ranks))
    return found


def of_parts(package: Package, parts: Counter[Part]) -> OnDisk:
    """Each segment of a step reads what it has to do with, and writes what it changes."""
    found, largest = OnDisk(), 0
    for part, count in parts.items():
        described, variant = package.part(part), package.variant(part)
        if described.elements <= SMALL:
            continue
        kernels, coded = widths(variant), coded_bytes(described)
        own = [
            s for s in described.states
            if (s.floats or s).is_full and s.bytes and s.name not in AVERAGES
        ]  # fmt: skip
        held, floats = held_over_rounds(kernels).intersection(coded), 4 * described.elements
        for state in own:
            name = state.name.removesuffix(SCALE)
            uses = {k.segment for k in kernels if name in (*k.reads, *k.writes)}
            writes = {k.segment for k in kernels if name in k.writes}
            times = 2 if name in held else len(uses) + len(writes)
            found.states += count * state.bytes
            found.moved += count * state.bytes * times
            if state.name in held:  # they lie there from one segment to the next
                found.states += count * floats
                found.moved += count * floats * 2 * (len(uses) - 1)
        if not _in_pieces(part, described, variant):  # a window has all of the tensor
            largest = max(largest, sum(state.bytes for state in own) + len(held) * floats)
    found.windows = WINDOWS * max(WINDOW_BYTES, largest) if found.states else 0
    return found


def _in_pieces(part: Part, described: Tensor, variant: dict) -> bool:
    """Whether a window may have a piece of the part: of a definition of elements, and of codes
    where rows are whole blocks and the part begins with one."""
    scales = [state for state in described.states if is_scale(state.name)]
    rows = {math.prod(part.shape[len(state.shape) - 1 :]) for state in scales}
    are_regular = all(row % BLOCK == 0 and part.begin % row == 0 for row in rows)
    return variant["space"] == "elements" and are_regular
