# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of one rank and what crosses ranks in a step, counted as the runtime counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .._codes import FORMATS
from .._describe import BLOCK, SCALE, Tensor, is_scale, shares_cut_blocks
from ..schedule import Widths, widths
from .failure import PlanError
from .layouts import Layout, Part
from .models import BYTES
from .package import Package

ENTRY = 8  # bytes of what crosses: an f64 or an integer
_BATCH_BYTES = 256 * 1024


@dataclass
class PartAccount:
    """Of one part. Bytes; ``states`` by name, with scales of codes, ``kept`` what the runtime
    keeps for the tensor between steps, ``held`` the f32 of codes over rounds, ``workspace`` what a
    traversal of it needs, ``moved`` what the kernels of each segment of a step read and write.
    ``exchange``: entries by round, axes and operation."""

    param: int
    grad: int
    states: dict[str, int]
    kept: int = 0
    held: int = 0
    workspace: int = 0
    is_shared: bool = False
    moved: Counter[int] = field(default_factory=Counter)
    exchange: Counter = field(default_factory=Counter)


def _exchange_axes(crossing: dict, rule, part: Part) -> tuple[str, ...]:
    """The axes over which a buffer crosses: all that shard its dims."""
    if part.flat:
        return part.flat
    found: set[str] = set()
    for dim, axes in part.dims:
        index = max(len(rule.dims) + dim - len(part.shape), 0)
        if rule.dims[index] in crossing["dims"]:
            found.update(axes)
    return tuple(sorted(found))


class _Steps(NamedTuple):
    """Of a variant: its kernels, what crosses of which buffer, and which operands a segment writes
    and a later one has to do with."""

    kernels: list[Widths]
    crossings: list[dict]
    held: frozenset[str]

    @classmethod
    def of(cls, variant: dict) -> _Steps:
        crossings = [one for one in variant["schedule"] if one.get("buffer") is not None]
        kernels = widths(variant)
        return cls(kernels, crossings, held_over_rounds(kernels))


def held_over_rounds(kernels: list[Widths]) -> frozenset[str]:
    """Operands that a segment writes and a later one has to do with: of codes they are f32 from
    the first of these to the last."""
    written: dict[str, int] = {}
    for kernel in kernels:
        for name in kernel.writes:
            written.setdefault(name, kernel.segment)
    pairs = [(name, k.segment) for k in kernels for name in (*k.reads, *k.writes)]
    return frozenset(name for name, at in pairs if written.get(name, at) < at)


def coded_bytes(described: Tensor) -> dict[str, int]:
    """Of states that are codes, with their scales."""
    scales = {state.name for state in described.states if is_scale(state.name)}
    return {s.name: s.bytes for s in described.states if s.name + SCALE in scales}


def _moved(kernel: Widths, described: Tensor, coded: dict[str, int]) -> int:
    """Bytes that it reads and writes, of codes in place of the f32 that they are made."""
    pairs = [*kernel.reads.items(), *kernel.writes.items()]
    return sum(coded.get(name, width * described.elements) for name, width in pairs)


def _shared_blocks(
    described: Tensor, part: Part, sizes: dict[str, int]
) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Of states of codes of which ranks cut blocks: over which axes, the words in the exchange at
    the end of a step, and the elements that are f32 until then."""
    full = {s.name + SCALE for s in described.states if (s.floats or s).is_full}
    formats = {s.name + SCALE: s.format for s in described.states}
    for scales in described.states:
        dim = len(scales.shape) - 1
        axes = tuple(own for own in dict(part.dims).get(dim, ()) if sizes[own] > 1)
        extent = part.shape[dim] if scales.name in full else 0
        if not shares_cut_blocks(extent, (sizes[axis] for axis in axes), scales.inner):
            continue
        format = formats[scales.name]
        if FORMATS[format].words.per_word > 1:
            raise PlanError(
                f"state '{scales.name.removesuffix(SCALE)}' of shape {part.shape} is kept as "
                f"{format}, of which an element has several codes, and ranks cut dim {dim} inside "
                f"of blocks of {BLOCK} elements"
            )
        rows, ranks = math.prod(part.local[:dim]), math.prod(sizes[axis] for axis in axes)
        begin = part.start[dim] * scales.inner
        size = part.local[dim] * scales.inner
        head, end = min(-begin % BLOCK, size), begin + size
        tail = end % BLOCK if size > head and end != part.shape[dim] * scales.inner else 0
        yield axes, 2 * rows * ranks, rows * (head + tail)


def account_part(package: Package, part: Part, steps: _Steps, sizes: dict[str, int]) -> PartAccount:
    """``steps``: of the variant that updates the part; ``sizes``: of the mesh's axes."""
    described = package.part(part)
    elements, grad = described.elements, BYTES[package.grad_of(part.dtype)]
    found = PartAccount(
        elements * BYTES[part.dtype],
        elements * grad,
        {s.name: s.bytes for s in described.states if not is_scale(s.name)},
        described.kept,
        workspace=described.workspace,
        is_shared=described.is_shared,
    )
    coded = coded_bytes(described)
    found.held = elements * BYTES["f32"] * len(steps.held.intersection(coded))
    for kernel in steps.kernels:
        found.moved[kernel.segment] += _moved(kernel, described, coded)
    for axes, words, floats in _shared_blocks(described, part, sizes):
        found.exchange[len(package.manifest["rounds"]) + 1, axes, "amax"] += words
        found.held += floats * BYTES["f32"]
    for crossing in steps.crossings:
        axes = _exchange_axes(crossing, described.rule, part)
        key = (crossing["segment"], axes, crossing["op"])
        found.exchange[key] += described.entries[crossing["buffer"]]
    return found


@dataclass
class Call:
    """One call of a round over the ranks that differ in ``axes``; ``bytes`` of the rank's
    own buffer."""

    round: int
    axes: tuple[str, ...]
    operation: str
    bytes: int


@dataclass
class RankAccount:
    """Of one rank, in bytes; ``moved`` by segment, ``landing``: means of gradients of what it
    owns."""

    param: int = 0
    grad: int = 0
    states: Counter = field(default_factory=Counter)
    kept: int = 0
    held: int = 0
    workspace: int = 0
    exchange: int = 0
    landing: int = 0
    moved: Counter[int] = field(default_factory=Counter)
    calls: list[Call] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return len({call.round for call in self.calls})

    @property
    def exchanged(self) -> int:
        return sum(call.bytes for call in self.calls)


def _statistics(package: Package, groups: int) -> dict[tuple[int, str], int]:
    """Values of statistics by round and operation, with which groups take part."""
    manifest, values = package.manifest, Counter()
    last = [0] * len(manifest["statistics"])
    for variant in manifest["variants"]:
        for entry in variant["schedule"]:
            if (at := entry.get("statistic")) is not None:
                last[at] = max(last[at], entry["segment"])
    for statistic, at in zip(manifest["statistics"], last, strict=True):
        of_model = statistic["scope"] == "model"
        values[at, statistic["kind"]] += 1 if of_model else groups
    active = next((r for r, one in enumerate(manifest["rounds"]) if one["calls"]), None)
    if active is not None:
        in_maxima = values[active, "amax"] and not values[active, "sum"]
        values[active, "amax" if in_maxima else "sum"] += groups
    return values


class Accountant:
    """Counts ranks of one package on one layout; parts alike are counted once.

    ``workers``: threads of a rank. ``groups``: of parameters.
    """

    def __init__(self, package: Package, layout: Layout, workers: int = 1, groups: int = 1):
        self.package, self.layout = package, layout
        self.workers, self.groups = workers, groups
        self._parts: dict[Part, PartAccount] = {}
        self._steps = [_Steps.of(variant) for variant in package.manifest["variants"]]
        self._values = _statistics(package, groups)
        self._wide = {name for name, size in layout.axes.items() if size > 1}
        self._wide_axes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def of_part(self, part: Part) -> PartAccount:
        if part not in self._parts:
            steps = self._steps[self.package.part(part).variant]
            self._parts[part] = account_part(self.package, part, steps, self.layout.axes)
        return self._parts[part]

    def rank(self, parts: Counter[Part]) -> RankAccount:
        found, packs, wide_of = RankAccount(), Counter(), self._wide_of
        largest = total = shared = 0
        for part, count in parts.items():
            one = self.of_part(part)
            found.param += one.param * count
            found.grad += one.grad * count
            found.kept += one.kept * count
            found.held += one.held * count
            for segment, amount in one.moved.items():
                found.moved[segment] += amount * count
            for name, size in one.states.items():
                found.states[name] += size * count
            for (round_, axes, operation), entries in one.exchange.items():
                packs[round_, wide_of(axes), operation] += entries * count
            if one.is_shared:
                shared = max(shared, one.workspace)
            else:
                largest, total = max(largest, one.workspace), total + one.workspace * count
        found.workspace = max(largest, min(total, _BATCH_BYTES)) * self.workers + 2 * shared
        found.exchange = sum(max(entries, 8) * ENTRY for entries in packs.values())
        found.calls = self._calls(packs)
        return found

    def _wide_of(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes of one rank are none: what crosses over the same others is one buffer."""
        if axes not in self._wide_axes:
            self._wide_axes[axes] = tuple(sorted(self._wide.intersection(axes)))
        return self._wide_axes[axes]

    def _calls(self, packs: Counter) -> list[Call]:
        calls: Counter = Counter()
        for (round_, axes, operation), entries in packs.items():
            if axes:
                calls[round_, axes, operation, "tensors"] += entries
        for (round_, operation), values in self._values.items():
            if self._wide:
                calls[round_, tuple(sorted(self._wide)), operation, "statistics"] += values
        return [
            Call(*key[:3], entries * ENTRY) for key, entries in sorted(calls.items()) if entries
        ]
