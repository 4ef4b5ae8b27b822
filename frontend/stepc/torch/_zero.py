# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO over plain parameters: each rank keeps the states of a range of the elements,
steps it, and the ranks put the parameters together again.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, P_os. The parameters of one dtype are one line of elements, in order,
which is cut evenly: rank r has [r * c, (r + 1) * c) of it, c the length over the number
of ranks, rounded up. So a rank may have several tensors, a part of one, or none.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import errors
from ._members import ObstacleError
from ._zero_part import ZeroPart, has_rows, row_size

_BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel's
_UNIT = 16  # elements: cuts fall on whole vectors of a kernel


@dataclass(frozen=True)
class ZeroSettings:
    """What an optimizer's arguments ``zero``, ``process_group`` and ``gradients`` say."""

    group: dist.ProcessGroup
    local_gradients: bool
    stage: int
    bucket_bytes: int

    def __str__(self) -> str:
        mode = "local" if self.local_gradients else "reduced"
        bucket = f", bucket_bytes={self.bucket_bytes}" if self.stage == 2 else ""
        return f"zero={self.stage}, gradients='{mode}'{bucket}"

    def __reduce__(self):
        raise errors.StepcError(
            "an optimizer with zero cannot be copied or pickled: its process group cannot; "
            "save its state_dict"
        )


def settings(
    zero: int, group, gradients: str | None, bucket_bytes: int | None
) -> ZeroSettings | None:
    """Checks the arguments; None where states are not sharded."""
    given = {"process_group": group, "gradients": gradients, "bucket_bytes": bucket_bytes}
    if zero not in (0, 1, 2):
        raise ValueError(f"zero is {zero!r}, expected 0, 1 or 2")
    for name, value in given.items():
        stages = "zero=2" if name == "bucket_bytes" else "zero=1 or 2"
        if value is not None and zero < (2 if name == "bucket_bytes" else 1):
            raise ValueError(f"{name} is of no use without {stages}")
    if zero == 0:
        return None
    if gradients not in ("reduced", "local"):
        raise ValueError(
            f"gradients is {gradients!r}, expected 'reduced' (all ranks have the same, as after "
            "DistributedDataParallel) or 'local' (each has its own; their mean is taken)"
        )
    if zero == 2 and gradients == "reduced":
        raise ValueError(
            "zero=2 reduces gradients itself, during the backward pass, and needs "
            "gradients='local'; over DistributedDataParallel, which has reduced them, zero=1 "
            "keeps as little"
        )
    if bucket_bytes is not None and bucket_bytes < 1:
        raise ValueError(f"bucket_bytes is {bucket_bytes}, expected a positive number")
    if not dist.is_initialized():
        raise ValueError(f"zero={zero} needs torch.distributed.init_process_group before it")
    return ZeroSettings(
        group if group is not None else dist.group.WORLD,
        gradients == "local",
        zero,
        bucket_bytes or _BUCKET_BYTES,
    )


def check_dense(named: list[tuple[torch.Tensor, str]]) -> None:
    """ObstacleError for a parameter that cannot be cut."""
    for param, name in named:
        if param.device.type != "cpu" or param.layout is not torch.strided:
            raise ObstacleError(
                f"{name} is on device '{param.device}' with layout {param.layout}; zero takes "
                "dense parameters on 'cpu'",
                False,
            )


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
    """All parameters of one dtype as one line of elements, cut over a group. ``parts`` of
    the line are what its ranks have alike."""

    def __init__(self, inner: list, group: dist.ProcessGroup):
        self.group = group
        self.world, self.rank = dist.get_world_size(group), dist.get_rank(group)
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
        self._dtype = inner[0].local.dtype
        self._buffers: dict[str, torch.Tensor] = {}

    def _buffer(self, name: str) -> torch.Tensor:
        """Memory that is kept from step to step, zeros at first: of the whole line, or for
        what is received of this rank's part of every rank's."""
        if name not in self._buffers:
            self._buffers[name] = self._zeros(name)
        return self._buffers[name]

    def _zeros(self, name: str) -> torch.Tensor:
        size = self.world * self.length if name == "received" else self._cuts[-1]
        return torch.zeros(size, dtype=self._dtype)

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

    # --- Gradients ------------------------------------------------------------

    def reduce(self) -> None:
        """The mean over ranks of their own gradients, of this rank's elements.

        Summed in f32 in the order of the ranks, so that every run gives the same bits; a
        gradient that only some ranks have counts as zero on the others.
        """
        present = torch.tensor([p.grad is not None for p in self.parts], dtype=torch.int32)
        dist.all_reduce(present, dist.ReduceOp.MAX, group=self.group)
        dtype, sent, received = self._dtype, self._buffer("sent"), self._buffer("received")
        for part, start in zip(self.parts, self._starts, strict=False):
            place = sent[start : start + part.inner.local.numel()]
            if part.grad is None:
                place.zero_()
            else:
                place.copy_(part.grad.reshape(-1))
        self._exchange(sent, received)
        wide = torch.promote_types(dtype, torch.float32)
        rows = received.view(self.world, self.length)
        total = torch.zeros(self.length, dtype=wide)
        for row in rows:
            total += row
        mean = (total / self.world).to(dtype)
        for part, start, any_rank in zip(self.parts, self._starts, present.tolist(), strict=False):
            part.local.grad = None
            if any_rank:
                at = start + part.begin - self._low
                part.local.grad = mean[at : at + part.local.numel()].view(part.local.shape)

    def check_equal(self) -> None:
        """TensorError where ranks have other gradients, which are said to be reduced.

        Compares a checksum of the bits, and that all ranks have one.
        """
        sums = torch.stack([_checksum(part.grad) for part in self.parts])
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
            whole = torch.zeros(self._cuts[-1], dtype=states[id(holders[0].param)][name].dtype)
            for part in holders:
                at = starts[id(part)] + part.begin
                whole[at : at + part.local.numel()] = states[id(part.param)][name].reshape(-1)
            self._share(whole)
            for part in holders:
                at, shape = starts[id(part)], part.inner.local.shape
                states[id(part.param)][name] = whole[at : at + shape.numel()].view(shape).clone()

    # --- Parameters -----------------------------------------------------------

    def gather(self) -> None:
        """Gives every rank the new parameters of all ranks, in their own dtype."""
        line = self._buffer("whole")
        for part, start in zip(self.parts, self._starts, strict=False):
            at = start + part.begin
            line[at : at + part.local.numel()].copy_(part.local.detach().reshape(-1))
        self._share(line)
        for part, start in zip(self.parts, self._starts, strict=False):
            if part.local.grad is not None:
                whole = part.inner.local.detach()
                whole.copy_(line[start : start + whole.numel()].view(whole.shape))

    def _share(self, line: torch.Tensor) -> None:
        """Puts every rank's part of a line into that of all: all ranks together."""
        parts = self._cut(line.view(-1))
        even = all(part.numel() == self.length for part in parts)
        if even and dist.get_backend(self.group) != "gloo":
            dist.all_gather_single(
                line.view(torch.uint8), parts[self.rank].view(torch.uint8).clone(), group=self.group
            )
            return
        # A third of the time of Gloo's all_gather, which goes round in a ring.
        works = [
            dist.broadcast(
                part.view(torch.uint8),
                dist.get_global_rank(self.group, rank),
                group=self.group,
                async_op=True,
            )
            for rank, part in enumerate(parts)
            if part.numel()
        ]
        for work in works:
            work.wait()


def _checksum(grad: torch.Tensor | None) -> torch.Tensor:
    """Of the bits in their places; another one for no gradient."""
    if grad is None:
        return torch.tensor(-1, dtype=torch.int64)
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = grad.detach().contiguous().view(-1).view(kinds[grad.element_size()]).to(torch.int64)
    odd = 2 * torch.arange(bits.numel(), dtype=torch.int64) + 1
    # Kept below 2^62, so that its negative is there too.
    return ((bits * odd).sum() & (2**62 - 1)).reshape(())


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Says which collective it was that failed, for whatever reason the backend has."""
    try:
        yield
    except errors.StepcError:
        raise
    except (RuntimeError, ValueError) as error:
        raise errors.CommunicationError(f"{what}: {error}", "STEPC_COMMUNICATION_ERROR") from error


class Zero:
    """The lines of an optimizer."""

    def __init__(self, lines: list[ZeroLine], how: ZeroSettings):
        self._how = how
        self.lines = lines
        self._parts = {id(part.param): part for line in lines for part in line.parts}
        self._checked = False

    @classmethod
    def of(cls, inner: list, how: ZeroSettings) -> Zero:
        """One line for each dtype, of the parts that the ranks of the group have alike."""
        check_dense([(part.local, part.name) for part in inner])
        lines = defaultdict(list)
        for part in inner:
            lines[part.local.dtype].append(part)
        return cls([ZeroLine(parts, how.group) for parts in lines.values()], how)

    def part_of(self, param: torch.Tensor) -> ZeroPart:
        return self._parts[id(param)]

    def refresh(self, always_check: bool) -> None:
        """Gives every part its gradient: all ranks together."""
        for line in self.lines:
            if self._how.local_gradients:
                with _named("the gradients could not be reduced"):
                    line.reduce()
            elif not self._checked or always_check:
                with _named("the gradients could not be compared"):
                    line.check_equal()
        self._checked = True

    def gather(self) -> None:
        with torch.no_grad(), _named("the parameters could not be gathered"):
            for line in self.lines:
                line.gather()

    def full(self, states: dict[int, dict]) -> None:
        with torch.no_grad():
            for line in self.lines:
                line.full(states)
