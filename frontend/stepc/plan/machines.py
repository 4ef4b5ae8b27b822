# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machines, as far as an estimate of times needs them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path

from .failure import PlanError


@dataclass(frozen=True)
class Machine:
    """Nodes of ranks. Bandwidths are bytes a second that one rank sends, latencies seconds
    of one message, inside a node and between nodes; ``memory`` is bytes a second that a
    device reads and writes together. 0: not known, and no time is estimated."""

    ranks: int
    ranks_per_node: int = 8
    inside: float = 0.0
    between: float = 0.0
    latency_inside: float = 0.0
    latency_between: float = 0.0
    memory: float = 0.0

    def __post_init__(self):
        for name in ("ranks", "ranks_per_node"):
            if type(getattr(self, name)) is not int:
                raise PlanError(f"{name} of the machine is {getattr(self, name)!r}, no integer")
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise PlanError(f"{field.name} of the machine is {value!r}, expected 0 or more")
        if self.ranks < 1 or self.ranks_per_node < 1:
            raise PlanError(
                f"the machine has {self.ranks} ranks, {self.ranks_per_node} of a node; the least "
                "is 1"
            )

    @property
    def is_timed(self) -> bool:
        return min(self.inside, self.between, self.memory) > 0

    def link(self, first_to_last: int) -> tuple[float, float]:
        """Bandwidth and latency of a group whose ranks lie so far apart. Axes are laid out
        with the last innermost, so a group within ``ranks_per_node`` is in one node."""
        if first_to_last < self.ranks_per_node:
            return self.inside, self.latency_inside
        return self.between, self.latency_between

    def seconds(self, size: int, first_to_last: int, calls: int, sent: int) -> float:
        """An estimate: messages of a tree for each call, and the bytes that a rank sends."""
        if size == 1:
            return 0.0
        bandwidth, latency = self.link(first_to_last)
        return calls * latency * math.ceil(math.log2(size)) + sent / bandwidth


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}  # fmt: skip


def amount(text: str) -> float:
    """Bytes: "80e9", "80GB", "24GiB"; PlanError for what is none, or not above 0."""
    match = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?) ?([kmgt]i?|)b?", text.strip().lower())
    try:
        found = float(match[1]) * _UNITS[match[2]] if match else 0.0
    except ValueError:
        found = 0.0
    if not 0.0 < found < math.inf:
        raise PlanError(f"'{text}' is no number of bytes, as 80e9, 80GB or 64GiB")
    return found


def load(path: str, ranks: int | None) -> Machine:
    """Reads a JSON object of :class:`Machine`'s fields."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        known = {field.name for field in fields(Machine)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise PlanError(f"{path}: unknown '{unknown[0]}', known: {', '.join(sorted(known))}")
        return Machine(**(data | ({"ranks": ranks} if ranks else {})))
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"{path}: not a description of machines: {error}") from None
