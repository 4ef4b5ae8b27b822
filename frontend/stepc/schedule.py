# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the kernels of a variant read and write, from its schedule in the manifest
(docs/statistics.md): of operands that have the parameter's dims."""

from __future__ import annotations

from typing import NamedTuple

from ._structures import DATA_TYPES

Bytes = dict[str, int]  # of one element, by the operand's name


class Widths(NamedTuple):
    """What comes from memory for one kernel, and goes there. Rounds cut a step into segments:
    round r of exchanges follows segment r."""

    kernel: str
    segment: int
    reads: Bytes
    writes: Bytes

    @property
    def read(self) -> int:
        return sum(self.reads.values())

    @property
    def written(self) -> int:
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        """Bytes that it moves for an element of the parameter."""
        return self.read + self.written


def widths(variant: dict) -> list[Widths]:
    """Of each kernel in turn. One that trails another, some rows behind it, finds in the
    processor's cache what that has read: kernel A of param and grad, and B of grad trailing it,
    read param and grad once."""
    operands, found, cached = variant["operands"], [], set()
    dims = next(operand["dims"] for operand in operands if operand["role"] == "param")

    def full(indices) -> Bytes:
        own = (operands[i] for i in indices if operands[i]["dims"] == dims)
        # Positions are in no memory.
        return {o["name"]: DATA_TYPES[o["storage"]].bits // 8 for o in own
                if o["role"] != "position"}  # fmt: skip

    for entry in variant["schedule"]:
        if "kernel" not in entry:
            continue
        if not entry.get("trailing"):
            cached = set()
        reads, writes = entry.get("reads", ()), entry.get("writes", ())
        new = full(i for i in reads if i not in cached)
        found.append(Widths(entry["kernel"], entry["segment"], new, full(writes)))
        cached |= {*reads, *writes}
    return found


def least(variant: dict) -> int:
    """Bytes for an element of the parameter where what must be read, as a step begins with it, and
    what is written are moved once."""
    read: Bytes = {}
    written: Bytes = {}
    for kernel in widths(variant):
        read |= {name: size for name, size in kernel.reads.items() if name not in written}
        written |= kernel.writes
    return sum(read.values()) + sum(written.values())
