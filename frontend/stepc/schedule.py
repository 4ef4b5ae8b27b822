# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the kernels of a variant read and write, from its schedule in the manifest
(docs/statistics.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Access(NamedTuple):
    """Of one kernel: indices of the variant's operands that come from memory and go there.
    Rounds cut a step into segments: round r of exchanges follows segment r."""

    kernel: str
    segment: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def accesses(variant: dict) -> Iterator[Access]:
    """Of each kernel in turn. One that trails another, some rows behind it, finds in the
    processor's cache what that has read: kernel A of param and grad, and B of grad trailing it,
    read param and grad once."""
    cached: set[int] = set()
    for entry in variant["schedule"]:
        if "kernel" not in entry:
            continue
        if not entry.get("trailing"):
            cached = set()
        reads = tuple(i for i in entry.get("reads", ()) if i not in cached)
        writes = tuple(entry.get("writes", ()))
        cached |= {*reads, *writes}
        yield Access(entry["kernel"], entry["segment"], reads, writes)


def least(variant: dict) -> tuple[set[int], set[int]]:
    """The operands that must be read, as a step begins with them, and those written, each
    once."""
    read: set[int] = set()
    written: set[int] = set()
    for access in accesses(variant):
        read |= set(access.reads) - written
        written |= set(access.writes)
    return read, written
