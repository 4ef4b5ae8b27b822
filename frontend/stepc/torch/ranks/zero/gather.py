# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How ``zero`` puts parameters together that ranks have stepped: a line at a time; where
``gather_bucket_bytes`` are fewer than those of a line, in pieces of so many, and where they are
more, several lines in a buffer in which each rank's parts are side by side, so that a rank
sends them at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist

from .... import errors
from .. import alike as _alike

Ranges = list[tuple[int, int]]


def share(line: torch.Tensor, ranges: Ranges, how) -> list:
    """Puts every rank's range of a line into that of all: all ranks together. Returns what is
    to be waited for. ``how``: ZeroSettings."""
    line = line.view(-1)
    parts = [line[first:last] for first, last in ranges]
    longest = max(map(len, parts), default=0)
    step = longest
    if how.gather_bytes < how.line_bytes:
        step = max(how.gather_bytes // (len(parts) * line.element_size()), 1)
    even = all(len(part) == longest for part in parts)
    fast = line.device.type != "cpu" or dist.get_backend(how.group) != "gloo"
    if even and step >= longest and fast:
        own = parts[dist.get_rank(how.group)].view(torch.uint8).clone()
        whole = line.view(torch.uint8)
        return [dist.all_gather_single(whole, own, group=how.group, async_op=True)]
    works = []
    for at in range(0, longest, max(step, 1)):
        # A third of the time of Gloo's all_gather, which goes round in a ring.
        works += [
            dist.broadcast(
                part[at : at + step].view(torch.uint8),
                dist.get_global_rank(how.group, rank),
                group=how.group,
                async_op=True,
            )
            for rank, part in enumerate(parts)
            if len(part) > at
        ]
        if not how.overlap:
            for work in works:
                work.wait()
            works = []
    return works


class Gather:
    """Of one line."""

    def __init__(self, line, how):
        self.lines = [line]
        self._how = how
        self._works: list = []

    def begin(self, facts: _alike.Facts | None = None) -> None:
        """Sends the new parameters of this rank, in their own dtype."""
        (line,) = self.lines
        self._works = share(line.whole(), line.ranges, self._how)

    def end(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()
        self._take()

    def _take(self) -> None:
        self.lines[0].take_whole()


class JoinedGather(Gather):
    """Of several lines of one dtype. With ``tells`` the parts of each rank are behind a digest of
    the facts with which it has made them, which is looked at before a parameter is taken."""

    def __init__(self, lines: list, how, tells: bool = False):
        super().__init__(lines[0], how)
        self.lines = lines
        self._head = _alike.HEAD_BYTES // lines[0].dtype.itemsize if tells else 0
        self._facts: _alike.Facts | None = None
        self._ranges: Ranges = []
        self._spans: list[list[tuple]] = [[] for _ in lines]  # of a line, and in the buffer
        first = at = 0
        for rank in range(dist.get_world_size(how.group)):
            at += self._head
            for line, spans in zip(lines, self._spans, strict=True):
                low, high = line.ranges[rank]
                spans.append((low, high, at))
                at += high - low
            self._ranges.append((first, at))
            first = at
        self._rank = dist.get_rank(how.group)
        self._buffer: torch.Tensor | None = None

    def begin(self, facts: _alike.Facts | None = None) -> None:
        for line, spans in zip(self.lines, self._spans, strict=True):
            for part, start in line.places():
                own = part.local.detach().reshape(-1)
                if self._buffer is None:
                    self._buffer = own.new_zeros(self._ranges[-1][1])
                low, _, at = spans[self._rank]
                at += start + part.begin - low
                self._buffer[at : at + len(own)].copy_(own)
        if self._head:
            self._facts = facts
            _alike.write_head(self._heads()[self._rank], facts.digest())
        self._works = share(self._buffer, self._ranges, self._how)

    def _take(self) -> None:
        if self._head:
            self._check()
        for line, spans in zip(self.lines, self._spans, strict=True):
            for part, start in line.places():
                if part.local.grad is not None:
                    self._take_part(part.inner.local.detach(), start, spans)

    def _heads(self) -> list[torch.Tensor]:
        return [self._buffer[first : first + self._head] for first, _ in self._ranges]

    def _check(self) -> None:
        """CommunicationError where ranks have stepped with other things: this one has written what
        it has stepped, and takes nothing of theirs."""
        digests = {_alike.read_head(head)[0] for head in self._heads()}
        if len(digests) > 1:
            device = self._buffer.device
            _alike.refuse(self._facts, [self._how.group], device, errors.CommunicationError)

    def _take_part(self, whole: torch.Tensor, start: int, spans: list[tuple]) -> None:
        own = whole.view(-1) if whole.is_contiguous() else whole.new_empty(whole.numel())
        end = start + len(own)
        for low, high, at in spans:
            first, last = max(low, start), min(high, end)
            if first < last:
                at += first - low
                own[first - start : last - start].copy_(self._buffer[at : at + last - first])
        if not whole.is_contiguous():
            whole.copy_(own.view(whole.shape))


def gathers(lines: list, how) -> list[Gather]:
    """Of all lines, in their order."""
    joined = list(_together(lines, how))
    found = [Gather(own[0], how) if len(own) == 1 else JoinedGather(own, how) for own in joined]
    # Where gradients are reduced nothing else crosses before; a device would have to be waited for.
    if joined and not how.local_gradients and lines[0].device.type == "cpu":
        found[0] = JoinedGather(joined[0], how, tells=True)
    return found


def _together(lines: list, how) -> Iterator[list]:
    """Lines that follow each other, of at most as many bytes as are gathered at a time."""
    own, size = [], 0
    for line in lines:
        fits = size + line.nbytes <= how.gather_bytes and how.gather_bytes > how.line_bytes
        if own and not (fits and own[0].dtype == line.dtype):
            yield own
            own, size = [], 0
        own.append(line)
        size += line.nbytes
    if own:
        yield own
