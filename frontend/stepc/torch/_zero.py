# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO over plain parameters: each rank keeps the states of a range of the elements,
steps it, and the ranks put the parameters together again.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, P_os. The parameters of one dtype are lines of elements, in order, of at
most ``bucket_bytes`` or one parameter, each of which is cut evenly: rank r has [r * c,
(r + 1) * c) of it, c the length over the number of ranks, rounded up. So a rank may have
several tensors, a part of one, or none.

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

from .. import errors
from ._members import ObstacleError
from ._process_groups import host_group, named
from ._tensors import divided, set_grad, why_not_stepped_there
from ._zero_part import ZeroPart, has_rows, row_size
from ._zero_settings import ZeroSettings

_UNIT = 16  # elements: cuts fall on whole vectors of a kernel


def check_dense(named: list[tuple[torch.Tensor, str]]) -> None:
    """ObstacleError for a parameter that cannot be cut."""
    for param, name in named:
        words = why_not_stepped_there(param)
        if param.layout is not torch.strided:
            words = f"has layout {param.layout}; zero takes dense parameters"
        elif not words and param.device != named[0][0].device:
            words = f"is on device '{param.device}', {named[0][1]} on '{named[0][0].device}'; a "
            words += "step is of one device"
        if words:
            raise ObstacleError(f"{name} {words}", False)


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

    def __init__(self, inner: list, how: ZeroSettings):
        self.group = how.group
        self.world, self.rank = dist.get_world_size(how.group), dist.get_rank(how.group)
        sizes = [part.local.numel() for part in inner]
        units = [row_size(part.local) if has_rows(part) else 1 for part in inner]
        self._starts = list(itertools.accumulate(sizes, initial=0))
        self._cuts = cuts(sizes, units, self.world)
        self._low, high = self._cuts[self.rank], self._cuts[self.rank + 1]
        self.length = high - self._low
        self.parts: list[ZeroPart] = []
        for part, start, size in zip(inner, self._starts, sizes, strict=False):
            begin = min(max(self._low - start, 0), size)
            end = min(max(high - start, begin), size)
            self.parts.append(ZeroPart(part, begin, end))
        self._dtype, self._device = inner[0].local.dtype, inner[0].local.device
        self._sent_dtype = how.reduce_dtype or self._dtype
        self._wide = torch.promote_types(self._dtype, torch.float32)
        # Where it is said in what gradients cross, the mean stays as it was added up.
        self._mean_dtype = self._dtype if how.reduce_dtype is None else self._wide
        self._buffers: dict[str, torch.Tensor] = {}
        self._flight: tuple | None = None  # gradients on their way
        self._gathering: list = []

    def _buffer(self, name: str) -> torch.Tensor:
        """Memory that is kept from step to step, zeros at first: of the whole line, or for
        what is received of this rank's part of every rank's."""
        if name not in self._buffers:
            self._buffers[name] = self._zeros(name)
        return self._buffers[name]

    def _zeros(self, name: str) -> torch.Tensor:
        size = self.world * self.length if name == "received" else self._cuts[-1]
        dtype = self._dtype if name == "whole" else self._sent_dtype
        return torch.zeros(size, dtype=dtype, device=self._device)

    def _cut(self, line: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a line, of each rank."""
        return [line[a:b] for a, b in itertools.pairwise(self._cuts)]

    def _exchange(self, sent: torch.Tensor, received: torch.Tensor, async_op: bool = False):
        """Gives each rank its part of the lines of all, as bytes: not every backend knows
        all dtypes."""
        size = sent.element_size()
        return dist.all_to_all_single(
            received.view(torch.uint8),
            sent.view(torch.uint8),
            [size * self.length] * self.world,
            [size * (b - a) for a, b in itertools.pairwise(self._cuts)],
            group=self.group,
            async_op=async_op,
        )

    @property
    def device(self) -> torch.device:
        return self._device

    # --- Gradients ------------------------------------------------------------

    def presence(self) -> list[int]:
        """For each part whether this rank has a gradient of it; positive if so."""
        return [int(part.grad is not None) for part in self.parts]

    def begin_reduce(self, present: list[int]) -> None:
        """Sends this rank's own gradients. ``present``: the highest of all ranks' presence;
        what only some have counts as zero on the others."""
        sent, received = self._buffer("sent"), self._buffer("received")
        for part, start in zip(self.parts, self._starts, strict=False):
            place = sent[start : start + part.inner.local.numel()]
            if part.grad is None:
                place.zero_()
            else:
                place.copy_(part.grad.reshape(-1))
        self._flight = self._exchange(sent, received, async_op=True), sent, received

    def end_reduce(self, present: list[int]) -> None:
        """Gives each part the mean over ranks of their gradients, of its elements.

        Summed in f32 in the order of the ranks, so that every run gives the same bits.
        """
        self._give(divided(self._landed(), self.world).to(self._mean_dtype), present)

    def _landed(self) -> torch.Tensor:
        """The sum of what the ranks have sent."""
        work, _, received = self._flight
        self._flight = None
        work.wait()
        total = torch.zeros(self.length, dtype=self._wide, device=self._device)
        for row in received.view(self.world, self.length):
            total += row
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
        sums = torch.stack([_checksum(part.grad, self._device) for part in self.parts])
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
            whole = torch.zeros(self._cuts[-1], dtype=dtype, device=self._device)
            for part in holders:
                at = starts[id(part)] + part.begin
                whole[at : at + part.local.numel()] = states[id(part.param)][name].reshape(-1)
            for work in self._share(whole):
                work.wait()
            for part in holders:
                at, shape = starts[id(part)], part.inner.local.shape
                states[id(part.param)][name] = whole[at : at + shape.numel()].view(shape).clone()

    # --- Parameters -----------------------------------------------------------

    def begin_gather(self) -> None:
        """Sends the new parameters of this rank's part, in their own dtype."""
        line = self._buffer("whole")
        for part, start in zip(self.parts, self._starts, strict=False):
            at = start + part.begin
            line[at : at + part.local.numel()].copy_(part.local.detach().reshape(-1))
        self._gathering = self._share(line)

    def end_gather(self) -> None:
        """Gives every parameter that has been stepped the elements of all ranks."""
        works, self._gathering = self._gathering, []
        for work in works:
            work.wait()
        line = self._buffer("whole")
        for part, start in zip(self.parts, self._starts, strict=False):
            if part.local.grad is not None:
                whole = part.inner.local.detach()
                whole.copy_(line[start : start + whole.numel()].view(whole.shape))

    def _share(self, line: torch.Tensor) -> list:
        """Puts every rank's part of a line into that of all: all ranks together. Returns
        what is to be waited for."""
        parts = self._cut(line.view(-1))
        even = all(part.numel() == self.length for part in parts)
        if even and (line.device.type != "cpu" or dist.get_backend(self.group) != "gloo"):
            own = parts[self.rank].view(torch.uint8).clone()
            whole = line.view(torch.uint8)
            return [dist.all_gather_single(whole, own, group=self.group, async_op=True)]
        # A third of the time of Gloo's all_gather, which goes round in a ring.
        return [
            dist.broadcast(
                part.view(torch.uint8),
                dist.get_global_rank(self.group, rank),
                group=self.group,
                async_op=True,
            )
            for rank, part in enumerate(parts)
            if part.numel()
        ]


def _checksum(grad: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Of the bits in their places; another one for no gradient."""
    if grad is None:
        return torch.full((), -1, dtype=torch.int64, device=device)
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = grad.detach().contiguous().view(-1).view(kinds[grad.element_size()]).to(torch.int64)
    odd = 2 * torch.arange(bits.numel(), dtype=torch.int64, device=device) + 1
    # Kept below 2^62, so that its negative is there too.
    return ((bits * odd).sum() & (2**62 - 1)).reshape(())


class Zero:
    """The lines of an optimizer."""

    def __init__(self, lines: list[ZeroLine], how: ZeroSettings):
        self._how = how
        self.lines = lines
        self._parts = {id(part.param): part for line in lines for part in line.parts}
        self._checked = False
        self._present: list[list[int]] = []

    @classmethod
    def of(cls, inner: list, how: ZeroSettings) -> Zero:
        """Lines for each dtype, of the parts that the ranks of the group have alike."""
        check_dense([(part.local, part.name) for part in inner])
        dtypes = defaultdict(list)
        for part in inner:
            dtypes[part.local.dtype].append(part)
        lines = [
            ZeroLine(bucket, how)
            for parts in dtypes.values()
            for bucket in buckets(parts, how.bucket_bytes)
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

    def begin_reduce(self, always_check: bool) -> None:
        """Before a step: all ranks together. Where gradients are local, their exchange is
        begun, behind the small one that says which there are."""
        if not self._how.local_gradients:
            if not self._checked or always_check:
                with named("the gradients could not be compared"):
                    for line in self.lines:
                        line.check_equal()
            self._checked = True
            return
        with torch.no_grad(), named("the gradients could not be reduced"):
            own = [line.presence() for line in self.lines]
            every = torch.tensor(list(itertools.chain.from_iterable(own)), dtype=torch.int32)
            # What the host is to read does not wait for the device.
            group = host_group(self._how.group, self.lines[0].device)
            dist.all_reduce(every, dist.ReduceOp.MAX, group=group)
            self._present = [piece.tolist() for piece in every.split(list(map(len, own)))]
            if self._how.overlap:
                for line, present in zip(self.lines, self._present, strict=True):
                    line.begin_reduce(present)

    def end_reduce(self, number: int) -> None:
        """Gives the parts of a line their gradients; lines in their order."""
        if self._how.local_gradients:
            line, present = self.lines[number], self._present[number]
            with torch.no_grad(), named("the gradients could not be reduced"):
                if not self._how.overlap:
                    line.begin_reduce(present)
                line.end_reduce(present)

    # --- Parameters -----------------------------------------------------------

    def begin_gather(self, number: int) -> None:
        """Sends what of a line this rank has stepped."""
        with torch.no_grad(), named("the parameters could not be gathered"):
            self.lines[number].begin_gather()
            if not self._how.overlap:
                self.lines[number].end_gather()

    def end_gather(self) -> None:
        """Puts the parameters of all lines together."""
        if self._how.overlap:
            with torch.no_grad(), named("the parameters could not be gathered"):
                for line in self.lines:
                    line.end_gather()

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
