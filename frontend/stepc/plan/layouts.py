# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts by the names of docs/sharding.md, and the part of each tensor that a rank has."""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .._mesh import Entry, Mesh
from .._mesh import Layout as WholeLayout
from .._runtime import Cut, Whole, cuts_of
from .failure import PlanError
from .models import Model, Tensor

BUCKET_BYTES = 0  # 0: the runtime's own; tests set another
UNIT = 16  # elements: stepc.torch cuts a line of parameters at multiples of it
KINDS = ("ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp", "tp")

Dims = tuple[tuple[int, tuple[str, ...]], ...]


class Part(NamedTuple):
    """What one rank has of a tensor: ``local`` extents of dims, or with ``flat`` the
    elements [begin, end) of the row-major order. ``dims``: each sharded dim with the axes
    that cut it, one after the other; ``start``: where each dim begins that is cut."""

    shape: tuple[int, ...]
    dtype: str
    dims: Dims = ()
    local: tuple[int, ...] = ()
    flat: tuple[str, ...] = ()
    begin: int = 0
    end: int = 0
    start: tuple[int, ...] = ()


def chunk(extent: int, parts: int, at: int) -> int:
    """The extent of part ``at`` as torch.chunk cuts: equal parts, the last ones smaller."""
    size = -(-extent // parts)
    return max(0, min(size, extent - at * size))


@dataclass(frozen=True)
class Line:
    """Tensors of one dtype as ``zero=`` puts them on one line of elements. ``length``: of a
    rank's part, in elements; that of the last rank ends with the line. ``coded``: which of them
    have states of codes, whose blocks are not cut: a part is then some elements shorter or
    longer."""

    tensors: tuple[Tensor, ...]
    starts: tuple[int, ...]
    length: int
    ranks: int
    coded: tuple[bool, ...]

    @property
    def dtype(self) -> str:
        return self.tensors[0].dtype

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @functools.cached_property
    def places(self) -> list[tuple[int, int, Tensor]]:
        """Of each tensor where it begins and ends."""
        pairs = zip(self.starts, self.tensors, strict=True)
        return [(start, start + tensor.elements, tensor) for start, tensor in pairs]

    def of(self, rank: int) -> Iterator[tuple[Tensor, int, int]]:
        """The elements [begin, end) that a rank has of tensors."""
        if any(self.coded):
            for tensor, cut in zip(self.tensors, self._aligned[rank], strict=True):
                if cut.begin < cut.end:
                    yield tensor, cut.begin, cut.end
            return
        low, high = rank * self.length, (rank + 1) * self.length
        first = max(0, bisect.bisect_right(self.starts, low) - 1)
        for start, end, tensor in itertools.islice(self.places, first, None):
            if start >= high:
                return
            begin, stop = max(low, start) - start, min(high, end) - start
            if begin < stop:
                yield tensor, begin, stop

    @property
    def _aligned(self) -> tuple[list[Cut], ...]:
        shapes = tuple(tensor.shape for tensor in self.tensors)
        return _aligned_cuts(shapes, self.dtype, self.coded, self.ranks)

    @functools.cached_property
    def _sizes(self) -> list[int]:
        return [sum(cut.end - cut.begin for cut in own) for own in self._aligned]

    @property
    def most(self) -> int:
        """Elements of the rank that has the most: of equal parts the first."""
        return max(self._sizes) if any(self.coded) else min(self.length, self.elements)

    @property
    def owners(self) -> int:
        """How many ranks have a part."""
        if any(self.coded):
            return sum(1 for size in self._sizes if size)
        return -(-self.elements // self.length)


@dataclass(frozen=True)
class Layout:
    """``axes``: names and sizes of the mesh, the last innermost. ``kind``: who reduces
    gradients and gathers parameters: ddp, zero1, zero2 or fsdp2; "" where nobody does."""

    name: str
    axes: dict[str, int]
    kind: str
    data_axes: tuple[str, ...]  # that shard, the replicating one of hsdp not among them
    splits: tuple[tuple[str, int | None], ...] | int | None = None  # of tp
    lines: tuple[Line, ...] = ()
    # All tensors of the lines without an element: what a rank has of nearly all.
    empty: Counter[Part] = field(default_factory=Counter)
    keeps_codes: bool = False  # whether it makes a difference where blocks are cut

    @property
    def is_flat(self) -> bool:
        return self.kind in ("zero1", "zero2")

    @property
    def ranks(self) -> int:
        product = 1
        for size in self.axes.values():
            product *= size
        return product

    def coordinates(self, rank: int) -> dict[str, int]:
        found = {}
        for name, size in reversed(self.axes.items()):
            found[name] = rank % size
            rank //= size
        return found

    def place(self, rank: int, axes: Sequence[str]) -> int:
        """Of a rank among those that differ in these axes alone."""
        at, place = self.coordinates(rank), 0
        for name in axes:
            place = place * self.axes[name] + at[name]
        return place

    def size(self, axes: Sequence[str]) -> int:
        product = 1
        for name in axes:
            product *= self.axes[name]
        return product

    def reach(self, axes: Sequence[str]) -> int:
        """How far apart in the numbers of ranks a group over the axes lies."""
        stride, reach = 1, 0
        for name, size in reversed(self.axes.items()):
            if name in axes:
                reach += stride * (size - 1)
            stride *= size
        return reach

    # --- Dims -----------------------------------------------------------------

    def split_dim(self, tensor: Tensor) -> int | None:
        """The dim that tp cuts, or None."""
        if isinstance(self.splits, int):
            rank = len(tensor.shape)
            return self.splits % rank if -rank <= self.splits < rank else None
        for pattern, dim in self.splits or ():
            if re.search(pattern, tensor.name):
                return dim % len(tensor.shape) if dim is not None and tensor.shape else None
        return None

    def dims(self, tensor: Tensor) -> Dims:
        found: dict[int, tuple[str, ...]] = {}
        if "tp" in self.axes and (dim := self.split_dim(tensor)) is not None:
            found[dim] = ("tp",)
        if self.kind == "fsdp2" and tensor.shape:
            found[0] = (*found.get(0, ()), *self.data_axes)
        return tuple(sorted(found.items()))

    def local_shape(self, tensor: Tensor, at: dict[str, int], without: Sequence[str] = ()):
        """The extents that the rank at these coordinates has; ``without`` axes are left
        out."""
        local = list(tensor.shape)
        for dim, axes in self.dims(tensor):
            for axis in axes:
                if axis not in without:
                    local[dim] = chunk(local[dim], self.axes[axis], at[axis])
        return tuple(local)

    def starts(self, tensor: Tensor, at: dict[str, int]) -> tuple[int, ...]:
        """Where that begins in the whole."""
        found = [0] * len(tensor.shape)
        for dim, axes in self.dims(tensor):
            extent = tensor.shape[dim]
            for axis in axes:
                size = -(-extent // self.axes[axis])
                found[dim] += min(at[axis] * size, extent)
                extent = chunk(extent, self.axes[axis], at[axis])
        return tuple(found)

    # --- A rank ---------------------------------------------------------------

    def parts(self, model: Model, rank: int) -> Counter[Part]:
        """The rank's parts and how many tensors have each alike."""
        if self.is_flat:
            return self._flat_parts(rank)
        at, found = self.coordinates(rank), Counter()
        for tensor in model.tensors:
            dims, local = self.dims(tensor), self.local_shape(tensor, at)
            # Parts that are alike but for their place are one, where it makes no difference.
            start = self.starts(tensor, at) if self.keeps_codes and dims else ()
            found[Part(tensor.shape, tensor.dtype, dims, local, start=start)] += 1
        return found

    def _flat_parts(self, rank: int) -> Counter[Part]:
        found, axes = self.empty.copy(), self.data_axes
        for line, number in self._kinds_of_lines:
            for tensor, begin, stop in line.of(rank):
                shape, dtype = tensor.shape, tensor.dtype
                found[Part(shape, dtype, (), (), axes)] -= number
                found[Part(shape, dtype, (), (), axes, begin, stop)] += number
        return +found

    @functools.cached_property
    def _kinds_of_lines(self) -> list[tuple[Line, int]]:
        """Blocks of a model have the same lines: one of each, and how many are like it."""
        found: dict[tuple, list[Line]] = {}
        for line in self.lines:
            shapes = tuple(tensor.shape for tensor in line.tensors)
            found.setdefault((line.dtype, shapes), []).append(line)
        return [(lines[0], len(lines)) for lines in found.values()]


def buckets(
    tensors: list[Tensor], ranks: int, owners: list[int] | None = None
) -> Iterator[list[tuple[int, int]]]:
    """Those that cross ranks together, as the runtime has them that cuts them: of each its place
    in the list, and how many of its elements the first rank steps. ``owners``: where each is one
    rank's, which rank's."""
    [cuts] = _cuts(tensors, ranks, [0], owners)
    found: dict[int, list[tuple[int, int]]] = {}
    for number, cut in enumerate(cuts):
        found.setdefault(cut.bucket, []).append((number, cut.end - cut.begin))
    yield from found.values()


def _cuts(
    tensors: Sequence[Tensor],
    ranks: int,
    of: Iterable[int],
    owners: list[int] | None = None,
    coded: Sequence[bool] = (),
) -> list[list[Cut]]:
    """What each of the ranks ``of`` steps of tensors."""
    mesh, axes = Mesh(("dp",), (ranks,)), ("dp",)
    wholes = []
    for number, tensor in enumerate(tensors):
        layout = WholeLayout(tensor.shape, flat=axes, begin=-1)
        entry = Entry(axes)
        if owners is not None:
            layout, entry = WholeLayout(tensor.shape), Entry(axes, owner=owners[number])
        has_codes = bool(coded) and coded[number]
        wholes.append(Whole(tensor.name, tensor.shape, tensor.dtype, layout, entry, has_codes))
    return cuts_of(mesh, wholes, of, BUCKET_BYTES)


@functools.lru_cache(maxsize=256)
def _aligned_cuts(
    shapes: tuple[tuple[int, ...], ...], dtype: str, coded: tuple[bool, ...], ranks: int
) -> tuple[list[Cut], ...]:
    """Of each rank, of a line. Blocks of a model have the same lines."""
    tensors = [Tensor(str(number), shape, dtype) for number, shape in enumerate(shapes)]
    return tuple(_cuts(tensors, ranks, range(ranks), coded=coded))


def make_lines(
    model: Model, ranks: int, is_reversed: bool, has_codes: Callable[[Tensor], bool] | None = None
) -> tuple[Line, ...]:
    """A line for each bucket, whose tensors come from the last on where they are reversed."""
    tensors = model.tensors[::-1] if is_reversed else model.tensors
    lines = []
    for bucket in buckets(list(tensors), ranks):
        own = [tensors[number] for number, _ in bucket]
        starts = itertools.accumulate((t.elements for t in own), initial=0)
        # With what pads it where there are not enough for one part.
        length = -(-sum(elements for _, elements in bucket) // UNIT) * UNIT
        coded = tuple(has_codes is not None and has_codes(tensor) for tensor in own)
        lines.append(Line(tuple(own), tuple(starts)[:-1], length, ranks, coded))
    return tuple(lines)


# --- By name ------------------------------------------------------------------


def _factors(text: str) -> dict[str, int | None]:
    """Each factor with the argument in brackets."""
    found: dict[str, int | None] = {}
    for word in text.split("*"):
        match = re.fullmatch(r"(\w+)(?:\((-?\d+)\))?", word.strip())
        if not match or match[1] not in KINDS:
            raise PlanError(f"unknown layout '{word.strip()}', known: {', '.join(KINDS)}")
        if match[2] is not None and match[1] != "tp":
            raise PlanError(f"layout '{match[1]}' has no argument, given: {match[2]}")
        name = {"zero3": "fsdp2"}.get(match[1], match[1])
        if name in found:
            raise PlanError(f"layout '{name}' comes twice in '{text}'")
        found[name] = int(match[2]) if match[2] is not None else None
    return found


def parse(text: str, model: Model, ranks: int, sizes: dict[str, int], ranks_per_node: int = 8,
          rules: tuple[tuple[str, int | None], ...] = (),
          has_codes: Callable[[Tensor], bool] | None = None) -> Layout:  # fmt: skip
    """A preset or a product with ``*``. ``sizes``: of axes (tp, shard) that are given; the
    data axis has the other ranks. ``tp`` alone cuts by ``rules`` (regular expressions of
    names and a dim), else as the model says; ``tp(D)`` cuts dim D of every tensor that has
    it. ``has_codes``: of which tensors ``zero=`` cuts no blocks of codes."""
    factors = _factors(text)
    data = [name for name in factors if name != "tp"]
    if len(data) > 1 or (data and "tp" in factors and data[0].startswith("zero")):
        raise PlanError(
            f"layout '{text}' is no product of tp and one of ddp, fsdp2, hsdp: stepc.torch's "
            "zero= takes plain parameters"
        )
    kind = data[0] if data else ""
    tp = sizes.get("tp", ranks if not kind else 0) if "tp" in factors else 1
    if tp < 1 or ranks % tp:
        raise PlanError(f"{ranks} ranks are not a multiple of tp = {tp} (--axis tp=N)")
    axes: dict[str, int] = {}
    if kind == "hsdp":
        shard = sizes.get("shard", max(1, min(ranks_per_node, ranks) // tp))
        if shard < 1 or ranks // tp % shard:
            raise PlanError(f"{ranks // tp} ranks are not a multiple of shard = {shard}")
        axes = {"replicate": ranks // tp // shard, "shard": shard}
    elif kind:
        axes = {"dp": ranks // tp}
    if "tp" in factors:
        axes["tp"] = tp
    splits = factors.get("tp")
    if "tp" in factors and splits is None:
        splits = rules or model.splits
        if not splits:
            raise PlanError(f"model '{model.name}' has no rules for tp: --rule 'REGEX=DIM'")
    kind = "fsdp2" if kind == "hsdp" else kind
    shards = ("shard",) if "shard" in axes else ("dp",) if kind not in ("", "ddp") else ()
    if kind not in ("zero1", "zero2"):
        keeps_codes = has_codes is not None and any(map(has_codes, model.tensors))
        return Layout(text, axes, kind, shards, splits, keeps_codes=keeps_codes)
    lines = make_lines(model, ranks, kind == "zero2", has_codes)
    empty = Counter(Part(t.shape, t.dtype, flat=shards) for t in model.tensors)
    return Layout(text, axes, kind, shards, splits, lines, empty)
