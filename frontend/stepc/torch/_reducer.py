# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO-2: gradients leave for the ranks that step them during the backward pass.

Rajbhandari et al., SC 2020, P_os+g. Parameters are put into buckets, the last first, as
their gradients come in that order; each bucket is a line that is cut evenly. A gradient
goes into its bucket's buffer as soon as it is whole, and ``.grad`` is freed; a full bucket
is sent, in the order of the buckets, which is the same on all ranks. What arrives is added
up in f32: first over ranks in their order, then over micro-batches.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator

import torch
import torch.distributed as dist

from ._zero import Zero, ZeroLine, ZeroSettings, check_dense


class Bucket(ZeroLine):
    """A line whose gradients are reduced when all are there, or the pass has ended."""

    def __init__(self, inner: list, group: dist.ProcessGroup):
        super().__init__(inner, group)
        self._places = {id(part.param): n for n, part in enumerate(self.parts)}
        self._sent: torch.Tensor | None = None
        self._flight: tuple | None = None
        self._here: set[int] = set()  # of this backward pass
        self.clear()

    def clear(self) -> None:
        """Forgets the gradients: as ``zero_grad``."""
        self._sum: torch.Tensor | None = None
        self._seen: set[int] = set()

    def take(self, param: torch.Tensor) -> None:
        """Moves a gradient into the buffer."""
        place = self._places[id(param)]
        if self._sent is None:
            self._sent = self._zeros("sent")
        start = self._starts[place]
        self._sent[start : start + param.numel()] += param.grad.reshape(-1)
        param.grad = None
        self._here.add(place)

    @property
    def is_full(self) -> bool:
        return len(self._here) == len(self.parts)

    def send(self) -> None:
        """Sends what is there; a gradient that is not counts as zero."""
        self.land()
        sent, self._sent = self._sent, None
        if sent is None:
            sent = self._zeros("sent")
        received = self._zeros("received")
        self._flight = self._exchange(sent, received, async_op=True), sent, received
        self._seen |= self._here
        self._here = set()

    def land(self) -> None:
        """Adds up what has been sent, if anything."""
        if self._flight is None:
            return
        work, _, received = self._flight
        self._flight = None
        work.wait()
        total = torch.zeros(self.length, dtype=torch.promote_types(self._dtype, torch.float32))
        for row in received.view(self.world, self.length):
            total += row
        self._sum = total if self._sum is None else self._sum.add_(total)

    def reduce(self) -> None:
        """Gives each part the mean over ranks of what they have added up, in f32.

        What is in ``.grad`` of a rank, as it came by no pass or by one without sync, is
        sent first.
        """
        self.land()
        rest = [n for n, part in enumerate(self.parts) if part.param.grad is not None]
        present = torch.tensor(
            [2 if n in rest else int(n in self._seen) for n in range(len(self.parts))],
            dtype=torch.int32,
        )
        dist.all_reduce(present, dist.ReduceOp.MAX, group=self.group)
        if (present == 2).any():
            with torch.no_grad():
                for number in rest:
                    self.take(self.parts[number].param)
                self.send()
                self.land()
        for part, start, any_rank in zip(self.parts, self._starts, present.tolist(), strict=False):
            part.local.grad = None
            if any_rank:
                at = start + part.begin - self._low
                part.local.grad_dtype = None  # it may be wider than the parameter
                part.local.grad = self._sum[at : at + part.local.numel()] / self.world


class GradientReducer:
    """The buckets of an optimizer, and the hooks that fill them."""

    def __init__(self, inner: list, how: ZeroSettings):
        check_dense([(part.local, part.name) for part in inner])
        lines = defaultdict(list)
        for part in reversed(inner):
            lines[part.local.dtype].append(part)
        self.buckets = [
            Bucket(bucket, how.group)
            for parts in lines.values()
            for bucket in _buckets(parts, how.bucket_bytes)
        ]
        self.zero = Zero(self.buckets, how)
        self._of = {id(part.param): b for b in self.buckets for part in b.parts}
        self._next = 0  # the first bucket that this pass has not sent
        self._in_pass = False
        self._paused = False
        self._hooks = [
            part.param.register_post_accumulate_grad_hook(self._take)
            for part in inner
            if part.param.requires_grad
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def clear(self) -> None:
        for bucket in self.buckets:
            bucket.land()
            bucket.clear()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _take(self, param: torch.Tensor) -> None:
        if self._paused:
            return
        if not self._in_pass:
            self._in_pass = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_pass)
        with torch.no_grad():
            self._of[id(param)].take(param)
            self._send(lambda bucket: bucket.is_full)

    def _end_pass(self) -> None:
        """All ranks send all buckets, whatever gradients the pass had."""
        with torch.no_grad():
            self._send(lambda bucket: True)
            for bucket in self.buckets:
                bucket.land()
        self._next, self._in_pass = 0, False

    def _send(self, is_ready) -> None:
        while self._next < len(self.buckets) and is_ready(self.buckets[self._next]):
            self.buckets[self._next].send()
            self._next += 1


def _buckets(parts: list, most: int) -> Iterator[list]:
    """Buckets of at most so many bytes, or one parameter."""
    bucket, size = [], 0
    for part in parts:
        own = part.local.numel() * part.local.element_size()
        if bucket and size + own > most:
            yield bucket
            bucket, size = [], 0
        bucket.append(part)
        size += own
    yield bucket
