# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO over plain parameters: each rank keeps the states of a range of the elements,
steps it, and the ranks put the parameters together again.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, P_os. The parameters of one dtype are lines of elements, in order, of at
most ``reduce_bucket_bytes`` or one parameter, each of which is cut evenly: rank r has [r * c,
(r + 1) * c) of it, c the length over the number of ranks, rounded up. So a rank may have
several tensors, a part of one, or none. Groups that are added begin new lines: what a rank
has of the others stays.

Lines are exchanged in their order, which is the same on all ranks. With ``overlap`` all
are under way together, and one whose gradients have come is stepped while the next come
and the one before is gathered, where the definition steps each tensor by itself.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator

import torch
import torch.distributed as dist

from .... import errors
from ...tensors.members import ObstacleError
from ...tensors.views import divided, set_grad, why_not_stepped_there
from .. import alike as _alike
from ..exchanges import exchanging, host_group
from . import flat as _flat
from .gather import gathers, share
from .part import ZeroPart, has_rows, row_size
from .settings import ZeroSettings

_UNIT = 16  # elements: cuts fall on whole vectors of a kernel
REDUCING = "the gradients could not be reduced"
_GATHERING = "the parameters could not be gathered"


def check(parts: list, how: ZeroSettings) -> None:
    """ObstacleError for a parameter that cannot be cut, or not be where the settings want it, or
    of which the ranks of the group have other parts: before anything crosses, for their sizes may
    differ."""
    ranks_of = dist.get_process_group_ranks
    own = set(ranks_of(how.group))
    for part in parts:
        if any(len(own.intersection(ranks_of(over))) > 1 for over in part.cut_over()):
            raise ObstacleError(
                f"{part.name} is another part on each rank of the process group, over which zero "
                "shares states of equal parts",
                False,
            )
        param, first = part.local, parts[0]
        words = why_not_stepped_there(param)
        if param.layout is not torch.strided:
            words = f"has layout {param.layout}; zero takes dense parameters"
        elif not words and param.device != first.local.device:
            words = f"is on device '{param.device}', {first.name} on '{first.local.device}'; a "
            words += "step is of one device"
        if words:
            raise ObstacleError(f"{part.name} {words}", False)
    if how.flat is not None:
        _flat.check(parts)


def cuts(sizes: list[int], units: list[int], world: int) -> list[int]:
    """Where the parts of a line of tensors begin, and where the last ends.

    ``units``: what of a tensor cannot be cut, in elements. Parts are even but for that, and
    fall on whole vectors of a kernel where they may.
    """
    starts = list(itertools.accumulate(sizes, initial=0))
    length = -(-starts[-1] // (world * _UNIT)) * _UNIT
    found = [rank * length for rank in range(world + 1)]
    for rank in range(1, world):
        place = bisect.bisect_right(starts, found[rank]) - 1
        if place < len(units) and units[place] > 1:
            inside = found[rank] - starts[place]
            rows = round(inside / units[place])
            found[rank] = max(starts[place] + rows * units[place], found[rank - 1])
    return found


class ZeroLine:
    """Parameters of one dtype as one line of elements, cut over a group. ``parts`` of
    the line are what its ranks have alike."""

    def __init__(self, inner: list, how: ZeroSettings, head_bytes: int = 0):
        self.group = how.group
        self.world, self.rank = dist.get_world_size(how.group), dist.get_rank(how.group)
        sizes = [part.local.numel() for part in inner]
        units = [row_size(part.local) if has_rows(part) else 1 for part in inner]
        places = sizes if how.flat is None else [_flat.room(part.local) for part in inner]
        self._starts = list(itertools.accumulate(places, initial=0))
        self._cuts = cuts(places, units, self.world)
        self._how = how
        self._buffers: dict[str, torch.Tensor] = {}
        if how.flat is not None:
            self._buffers["whole"] = how.flat.place(inner, self._starts, self._cuts[-1])
        self._low, high = self._cuts[self.rank], self._cuts[self.rank + 1]
        self.length = high - self._low
        self.parts: list[ZeroPart] = []
        for part, start, size in zip(inner, self._starts, sizes, strict=False):
            begin = min(max(self._low - start, 0), size)
            end = min(max(high - start, begin), size)
            self.parts.append(ZeroPart(part, begin, end))
        self.dtype, self.device = inner[0].local.dtype, inner[0].local.device
        self.nbytes = sum(sizes) * self.dtype.itemsize
        self._sent_dtype = how.reduce_dtype or self.dtype
        # Before what goes to each rank of the gradients.
        self._head = head_bytes // self._sent_dtype.itemsize
        self._pieces = [
            list(self._pieces_of(*own)) for own in zip(self._starts, sizes, strict=False)
        ]
        self._wide = torch.promote_types(self.dtype, torch.float32)
        # Where it is said in what gradients cross, the mean stays as it was added up.
        self._mean_dtype = self.dtype if how.reduce_dtype is None else self._wide
        self._flight: tuple | None = None  # gradients on their way

    def _buffer(self, name: str) -> torch.Tensor:
        """Memory that is kept from step to step, zeros at first: of the whole line, or for
        what is received of this rank's part of every rank's."""
        if name not in self._buffers:
            self._buffers[name] = self._zeros(name)
        return self._buffers[name]

    def _zeros(self, name: str) -> torch.Tensor:
        heads = 0 if name == "whole" else self.world * self._head
        size = self.world * self.length if name == "received" else self._cuts[-1]
        dtype = self.dtype if name == "whole" else self._sent_dtype
        return torch.zeros(size + heads, dtype=dtype, device=self.device)

    def _pieces_of(self, start: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Of a tensor that begins at ``start`` the elements [first, last), and where they are in
        what is sent: each rank's behind its head."""
        for rank, (low, high) in enumerate(self.ranges):
            first, last = max(low, start), min(high, start + size)
            if first < last:
                yield first - start, last - start, first + (rank + 1) * self._head

    def _exchange(self, sent: torch.Tensor, received: torch.Tensor, async_op: bool = False):
        """Gives each rank its part of the lines of all, as bytes: not every backend knows
        all dtypes."""
        size = sent.element_size()
        return dist.all_to_all_single(
            received.view(torch.uint8),
            sent.view(torch.uint8),
            [size * (self._head + self.length)] * self.world,
            [size * (self._head + b - a) for a, b in self.ranges],
            group=self.group,
            async_op=async_op,
        )

    # --- Gradients ------------------------------------------------------------

    def presence(self) -> list[int]:
        """For each part whether this rank has a gradient of it; positive if so."""
        return [int(part.grad is not None) for part in self.parts]

    def begin_reduce(self, present: list[int]) -> None:
        """Sends this rank's own gradients. ``present``: the highest of all ranks' presence;
        what only some have counts as zero on the others."""
        sent, received = self._buffer("sent"), self._buffer("received")
        for part, pieces in zip(self.parts, self._pieces, strict=True):
            own = None if part.grad is None else self._addend(part.grad.reshape(-1))
            for first, last, at in pieces:
                place = sent[at : at + last - first]
                if own is None:
                    place.zero_()
                else:
                    place.copy_(own[first:last])
        self._flight = self._exchange(sent, received, async_op=True), sent, received

    def end_reduce(self, present: list[int]) -> None:
        """Gives each part the mean over ranks of their gradients, of its elements.

        Summed in f32 in the order of the ranks, so that every run gives the same bits.
        """
        self._give(self._mean(self._landed()).to(self._mean_dtype), present)

    def _addend(self, grad: torch.Tensor) -> torch.Tensor:
        """What this rank adds to the sum, before it is rounded to the type that crosses."""
        return divided(grad.to(self._wide), self.world) if self._how.predivide else grad

    def _mean(self, total: torch.Tensor) -> torch.Tensor:
        return total if self._how.predivide else divided(total, self.world)

    def _landed(self) -> torch.Tensor:
        """The sum of what the ranks have sent."""
        work, _, received = self._flight
        self._flight = None
        work.wait()
        total = torch.zeros(self.length, dtype=self._wide, device=self.device)
        for row in received.view(self.world, -1):
            total += row[self._head :]
        return total

    def _give(self, mean: torch.Tensor, present: list[int]) -> None:
        for part, start, any_rank in zip(self.parts, self._starts, present, strict=False):
            at = start + part.begin - self._low
            own = mean[at : at + part.local.numel()].view(part.local.shape)
            set_grad(part.local, own if any_rank else None)

    def check_equal(self) -> None:
        """TensorError where ranks have other gradients, which are said to be reduced.

        Compares a checksum of the bits, and that all ranks have one.
        """
        sums = torch.stack([_alike.checksum(part.grad, self.device) for part in self.parts])
        ends = torch.cat([sums, -sums])
        dist.all_reduce(ends, dist.ReduceOp.MAX, group=self.group)
        high, low = ends.view(2, -1)
        for part, same in zip(self.parts, (high == -low).tolist(), strict=True):
            if not same:
                raise errors.TensorError(
                    f"the gradient of {part.name} is another one on some ranks, but "
                    "gradients='reduced' says that all have the same; gradients='local' takes "
                    "the mean",
                    "STEPC_INVALID_ARGUMENT",
                )

    # --- States ---------------------------------------------------------------

    def full(self, states: dict[int, dict]) -> None:
        """Puts whole states in place of this rank's ranges: all ranks together.

        ``states``: by ``id()`` of the parameter; all ranks have the same names.
        """
        names = dict.fromkeys(
            name for part in self.parts for name in states.get(id(part.param), {})
            if part.is_cut(name)
        )  # fmt: skip
        starts = dict(zip(map(id, self.parts), self._starts, strict=False))
        for name in names:
            holders = [
                p for p in self.parts if p.is_cut(name) and name in states.get(id(p.param), {})
            ]
            dtype = states[id(holders[0].param)][name].dtype
            whole = torch.zeros(self._cuts[-1], dtype=dtype, device=self.device)
            for part in holders:
                at = starts[id(part)] + part.begin
                whole[at : at + part.local.numel()] = states[id(part.param)][name].reshape(-1)
            with exchanging("the states could not be put together", self.group):
                for work in share(whole, self.ranges, self._how):
                    work.wait()
            for part in holders:
                at, shape = starts[id(part)], part.inner.local.shape
                states[id(part.param)][name] = whole[at : at + shape.numel()].view(shape).clone()

    # --- Parameters -----------------------------------------------------------

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Of the line, of each rank."""
        return list(itertools.pairwise(self._cuts))

    def places(self) -> Iterator[tuple[ZeroPart, int]]:
        """The parts, and where their parameters begin in the line."""
        return zip(self.parts, self._starts, strict=False)

    def whole(self) -> torch.Tensor:
        """The buffer in which it is gathered, with this rank's part."""
        line = self._buffer("whole")
        if self._how.flat is None:
            for part, start in self.places():
                at = start + part.begin
                line[at : at + part.local.numel()].copy_(part.local.detach().reshape(-1))
        return line

    def take_whole(self) -> None:
        """Gives every parameter that has been stepped the elements of all ranks."""
        if self._how.flat is not None:
            return
        line = self._buffer("whole")
        for part, start in self.places():
            if part.local.grad is not None:
                whole = part.inner.local.detach()
                whole.copy_(line[start : start + whole.numel()].view(whole.shape))


class Zero:
    """The lines of an optimizer."""

    def __init__(self, lines: list[ZeroLine], how: ZeroSettings):
        self._how = how
        self._checked = False
        self._present: list[list[int]] = []
        self._facts: _alike.Facts | None = None  # of the step
        self.take_over(lines)

    def take_over(self, lines: list[ZeroLine]) -> None:
        """These in place of those that there were."""
        self.lines = lines
        self._parts = {id(part.param): part for line in lines for part in line.parts}
        self._gathers = gathers(lines, self._how)
        last = {id(gather.lines[-1]): gather for gather in self._gathers}
        # For each line what is complete with it, if anything.
        self._complete = [last.get(id(line)) for line in lines]

    @classmethod
    def of(cls, batches: list[list], how: ZeroSettings) -> Zero:
        """Lines for each dtype, of the parts that the ranks of the group have alike; of each
        batch its own."""
        check(list(itertools.chain.from_iterable(batches)), how)
        lines = []
        for inner in batches:
            dtypes = defaultdict(list)
            for part in inner:
                dtypes[part.local.dtype].append(part)
            lines += [
                ZeroLine(bucket, how)
                for parts in dtypes.values()
                for bucket in buckets(parts, how.line_bytes)
            ]
        return cls(lines, how)

    def remember(self, zero: Zero) -> None:
        """Whether the gradients of the same parameters have been compared before."""
        self._checked = zero._checked and zero._parts.keys() == self._parts.keys()

    def part_of(self, param: torch.Tensor) -> ZeroPart:
        return self._parts[id(param)]

    @property
    def local_gradients(self) -> bool:
        return self._how.local_gradients

    @property
    def overlaps(self) -> bool:
        """Whether a line may be stepped while others are under way."""
        return self._how.overlap and len(self.lines) > 1

    # --- Gradients ------------------------------------------------------------

    def begin_reduce(self, facts: _alike.Facts, check: bool) -> None:
        """Before a step: all ranks together, which are to have the same facts. Where gradients
        are local, their exchange is begun, behind the small one that says which there are."""
        device = self.lines[0].device
        parts = [part for line in self.lines for part in line.parts]
        facts = _alike.frozen(facts, parts)
        if not self._how.local_gradients:
            names = [part.name for part in parts]
            self._facts = _alike.with_gradients(facts, [part.inner.local for part in parts], names)
            if check or not self._checked:
                _alike.compare(self._facts, self._how.group, device)
                with exchanging("the gradients could not be compared", self._how.group):
                    for line in self.lines:
                        line.check_equal()
            self._checked = True
            return
        own = [line.presence() for line in self.lines]
        words = [*itertools.chain.from_iterable(own), *_alike.ends(facts)]
        # What the host is to read does not wait for the device.
        host = host_group(self._how.group, device)
        every = torch.tensor(words, dtype=torch.int64, device="cpu")
        with exchanging(REDUCING, host):
            dist.all_reduce(every, dist.ReduceOp.MAX, group=host)
        *present, high, low = every.tolist()
        if not _alike.same_ends(high, low):
            _alike.refuse(facts, [self._how.group], device)
        found = iter(present)
        self._present = [list(itertools.islice(found, len(line))) for line in own]
        if self._how.overlap:
            with torch.no_grad(), exchanging(REDUCING, self._how.group):
                for line, present in zip(self.lines, self._present, strict=True):
                    line.begin_reduce(present)

    def end_reduce(self, number: int) -> None:
        """Gives the parts of a line their gradients; lines in their order."""
        if self._how.local_gradients:
            line, present = self.lines[number], self._present[number]
            with torch.no_grad(), exchanging(REDUCING, self._how.group):
                if not self._how.overlap:
                    line.begin_reduce(present)
                line.end_reduce(present)

    # --- Parameters -----------------------------------------------------------

    def begin_gather(self, number: int) -> None:
        """Sends what of a line this rank has stepped, with that of those before it that are
        gathered together."""
        gather = self._complete[number]
        if gather is not None:
            with torch.no_grad(), exchanging(_GATHERING, self._how.group):
                gather.begin(self._facts)
                if not self._how.overlap:
                    gather.end()

    def end_gather(self) -> None:
        """Puts the parameters of all lines together."""
        if self._how.overlap:
            with torch.no_grad(), exchanging(_GATHERING, self._how.group):
                for gather in self._gathers:
                    gather.end()

    def note_versions(self) -> None:
        """What is written to the parameters from now on is not the step's."""
        for part in self._parts.values():
            part.note_version()

    # --- States ---------------------------------------------------------------

    def full(self, states: dict[int, dict]) -> None:
        with torch.no_grad():
            for line in self.lines:
                line.full(states)


def buckets(parts: list, most: int) -> Iterator[list]:
    """Some of the parts after the others, of at most so many bytes, or one of them."""
    bucket, size = [], 0
    for part in parts:
        own = part.local.numel() * part.local.element_size()
        if bucket and size + own > most:
            yield bucket
            bucket, size = [], 0
        bucket.append(part)
        size += own
    yield bucket
