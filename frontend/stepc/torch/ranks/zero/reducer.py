# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO-2: gradients leave for the ranks that step them during the backward pass.

Rajbhandari et al., SC 2020, P_os+g. Parameters are put into buckets, the last first, as
their gradients come in that order; each bucket is a line that is cut evenly. A gradient
goes into its bucket's buffer as soon as it is whole, and ``.grad`` is freed; a full bucket
is sent, in the order of the buckets, which is the same on all ranks. What arrives is added
up in f32: first over ranks in their order, then over micro-batches.

Where tensor parallelism has cut a parameter, the ranks of the group have the same part of
it, whose gradient goes the same way. One that is still to be summed over other ranks is
left in ``.grad`` where the user says so by a layout, as these may not have it in the same
passes; the step takes it. A DTensor is redistributed as it comes.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from .... import __version__, errors
from .. import alike as _alike
from ..agreement import Item, compare, note
from ..exchanges import exchanging, within
from .lines import REDUCING, Zero, ZeroLine, buckets, check
from .part import ZeroPart
from .settings import ZeroSettings

_LEFT = 2  # of a presence: in ``.grad``, to be sent by the step


class Bucket(ZeroLine):
    """A line whose gradients are reduced when all are there, or the pass has ended.

    What it sends says what it is: which of what buckets, how often it has been sent, and whether
    the pass broke off on this rank before all was there. On a device it says nothing, as the host
    would have to wait to read it.
    """

    def __init__(self, inner: list, how: ZeroSettings):
        self.tells = inner[0].local.device.type == "cpu"
        super().__init__(inner, how, _alike.HEAD_BYTES if self.tells else 0)
        self._overlap = how.overlap
        self._places = {id(part): n for n, part in enumerate(self.parts)}
        self._sent: torch.Tensor | None = None
        self._here: set[int] = set()  # of this backward pass
        self.clear()

    def describe(self, number: int, buckets: _alike.Facts) -> None:
        """Which it is, of all ``buckets``."""
        self._facts = buckets.also(number, lambda: [f"bucket {number}"])

    def clear(self) -> None:
        """Forgets the gradients: as ``zero_grad``."""
        self._sum: torch.Tensor | None = None
        self._seen: set[int] = set()
        self._sends = 0
        self.broken: set[int] = set()  # ranks whose pass broke off

    def drop(self) -> None:
        """Forgets them, and those that are on their way."""
        self._flight = self._sent = None
        self._here = set()
        self.clear()

    def take(self, part: ZeroPart) -> None:
        """Moves a gradient into the buffer."""
        place, inner = self._places[id(part)], part.inner.local
        if self._sent is None:
            self._sent = self._zeros("sent")
        own = self._addend(inner.grad.reshape(-1))
        for first, last, at in self._pieces[place]:
            self._sent[at : at + last - first] += own[first:last]
        part.param.grad = inner.grad = None
        self._here.add(place)

    @property
    def is_full(self) -> bool:
        return len(self._here) == len(self.parts)

    def send(self, broken: bool = False) -> None:
        """Sends what is there; a gradient that is not counts as zero."""
        self.land()
        self._sends += 1
        self._told = self._facts.also(
            self._sends, lambda n=self._sends: [f"sent for the {n}. time since zero_grad()"]
        )
        sent, self._sent = self._sent, None
        if sent is None:
            sent = self._zeros("sent")
        digest = self._told.digest()
        for rank, (first, _) in enumerate(self.ranges if self.tells else ()):
            at = first + rank * self._head
            _alike.write_head(sent[at : at + self._head], digest, int(broken))
        received = self._zeros("received")
        self._flight = self._exchange(sent, received, async_op=True), sent, received
        self._seen |= self._here
        self._here = set()
        if not self._overlap:
            self.land()

    def land(self) -> None:
        """Adds up what has been sent, if anything. DisagreementError where a rank has sent
        something else."""
        if self._flight is None:
            return
        received = self._flight[2].view(self.world, -1)
        total = self._landed()
        own = self._told.digest()
        for rank, row in enumerate(received if self.tells else ()):
            digest, broken = _alike.read_head(row[: self._head])
            if digest != own:
                _alike.refuse(self._told, [self.group], self.device)
            if broken:
                self.broken.add(dist.get_global_rank(self.group, rank))
        self._sum = total if self._sum is None else self._sum.add_(total)

    def presence(self) -> list[int]:
        """2 for what came by no pass, or by one without sync, and is still in ``.grad``."""
        return [
            int(n in self._seen) if part.grad is None else _LEFT
            for n, part in enumerate(self.parts)
        ]

    def begin_reduce(self, present: list[int]) -> None:
        """Sends what any rank has left."""
        if _LEFT in present:
            for part in self.parts:
                if part.grad is not None:
                    self.take(part)
            self.send()

    def end_reduce(self, present: list[int]) -> None:
        """Gives each part the mean over ranks of what they have added up, in f32."""
        self.land()
        if any(present):
            self._give(self._mean(self._sum), present)
        else:
            self._give(torch.empty(self.length, dtype=torch.float32, device=self.device), present)


class GradientReducer:
    """The buckets of an optimizer, and the hooks that fill them.

    ``optimizer``: what is poisoned when an exchange fails in a pass, and says how long one may
    take. ``batches``: the parts of groups that were added together.
    """

    def __init__(self, optimizer, batches: list[list], how: ZeroSettings):
        self._optimizer = weakref.ref(optimizer)  # which has this
        self._how = how
        self.buckets: list[Bucket] = []
        self._in_passes: list[Bucket] = []
        self._agreed = 0  # of these, the first that ranks know to be alike
        self._of: dict[int, Bucket] = {}
        self._next = 0  # the first bucket that this pass has not sent
        self._pass: weakref.ref | None = None  # what autograd has until it ends
        self._paused = False
        self._hooks: list = []
        weakref.finalize(self, _remove, self._hooks)
        self.zero = Zero([], how)
        self.add(batches)

    def add(self, batches: list[list]) -> None:
        """Makes buckets for parts that have none, behind the others; what these have keeps its
        place. ObstacleError, with nothing done, for parts that cannot be cut."""
        inner = list(itertools.chain.from_iterable(batches))
        check(inner, self._how)
        for batch in batches:
            lines = defaultdict(list)
            for part in reversed(batch):
                lines[part.sums_at_step, part.local.dtype].append(part)
            for (late, _), parts in lines.items():
                made = [Bucket(own, self._how) for own in buckets(parts, self._how.line_bytes)]
                self.buckets += made
                self._in_passes += [] if late else made
        words = self._words()
        every = _alike.Facts((_alike.digest_of(words),), lambda: words)
        for number, bucket in enumerate(self.buckets):
            bucket.describe(number, every)
        self.zero.take_over(self.buckets)
        self._of = {id(part.param): b for b in self._in_passes for part in b.parts}
        take = _weakly(self._take)
        self._hooks += [
            part.param.register_post_accumulate_grad_hook(take)
            for part in inner
            if part.param.requires_grad and not part.sums_at_step
        ]

    def _words(self) -> list[str]:
        """What ranks are to have alike before anything crosses."""
        found = [f"stepc {__version__}", str(self._how)]
        for number, bucket in enumerate(self.buckets):
            found += [
                f"{part.name}, {bucket.dtype} of shape {tuple(part.inner.local.shape)} in bucket "
                f"{number}"
                for part in bucket.parts
            ]
        return found

    def remove(self) -> None:
        _remove(self._hooks)

    def clear(self) -> None:
        """Forgets the gradients, as ``zero_grad``: also those of a pass that broke off."""
        optimizer = self._optimizer()
        if optimizer is None or optimizer._poison is None:
            with self._exchanging():
                self._end_broken()
                for bucket in self.buckets:
                    bucket.land()
        self._forget()

    def _forget(self) -> None:
        """Also those under way, in a pass that ends so."""
        for bucket in self.buckets:
            bucket.drop()
        self._next, self._pass = 0, None

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # --- A backward pass --------------------------------------------------------

    def _take(self, param: torch.Tensor) -> None:
        if self._paused:
            return
        part = self.zero.part_of(param)
        with self._exchanging():
            if self._pass is not None and self._pass() is None:
                self._end_broken()
            if self._pass is None:

                def end() -> None:
                    self._end_pass()

                self._pass = weakref.ref(end)  # autograd drops it with a pass that breaks off
                torch.autograd.Variable._execution_engine.queue_callback(end)
            part.inner.refresh()
            self._of[id(param)].take(part)
            # The last stays until the pass has ended well, so that one that breaks off can say so.
            self._send(lambda bucket: bucket.is_full and bucket is not self._in_passes[-1])

    def _end_pass(self) -> None:
        """All ranks send all buckets, whatever gradients the pass had."""
        with self._exchanging():
            self._send(lambda bucket: True)
            for bucket in self._in_passes:
                bucket.land()
        self._next, self._pass = 0, None
        broken = sorted(set().union(*(bucket.broken for bucket in self._in_passes)))
        if broken:
            self._forget()
            ranks = ", ".join(map(str, broken))
            raise errors.CommunicationError(
                f"the backward pass of rank {ranks} broke off; gradients since the last "
                "zero_grad() are forgotten on all ranks, and nothing else has changed",
                "STEPC_COMMUNICATION_ERROR",
            )

    def _end_broken(self) -> None:
        """Where an error has ended this rank's pass, what is left of it is sent all the same, with
        a mark: other ranks wait for it, and the next pass begins at the first bucket on all."""
        if self._pass is None:
            return
        if self._in_passes[0].tells:
            self._send(lambda bucket: True, broken=True)
            for bucket in self._in_passes:
                bucket.land()
        self._forget()

    def refuse_broken(self) -> None:
        """StepcError where a pass broke off and its gradients have not been forgotten."""
        if self._pass is not None:
            self.clear()
            raise errors.StepcError(
                "the backward pass broke off; the gradients since the last zero_grad() are "
                "forgotten, and nothing else has changed"
            )

    def _send(self, is_ready, broken: bool = False) -> None:
        while self._next < len(self._in_passes) and is_ready(self._in_passes[self._next]):
            if self._next == self._agreed:
                self._agree()
            self._in_passes[self._next].send(broken)
            self._next += 1

    def _agree(self) -> None:
        """That the buckets are alike which ranks have not compared: before one crosses, as
        backends end the process where sizes differ. DisagreementError."""
        for bucket in self._in_passes[: self._agreed]:
            bucket.land()  # says so where this rank alone has more than before
        note(list(map(Item, self._words())), "zero", self._how.group)
        compare(self._how.group)
        self._agreed = len(self._in_passes)

    @contextlib.contextmanager
    def _exchanging(self) -> Iterator[None]:
        """As in a step: an exchange that fails poisons the optimizer."""
        optimizer = self._optimizer()
        timeout = None if optimizer is None else optimizer._timeout
        if optimizer is not None:
            optimizer._refuse_poisoned()
        try:
            with torch.no_grad(), within(timeout), exchanging(REDUCING, self._how.group):
                yield
        except errors.CommunicationError as error:
            if optimizer is not None and not isinstance(error, errors.DisagreementError):
                optimizer._poison = str(error)
            self._forget()
            raise


def _weakly(method) -> Callable[[torch.Tensor], None]:
    """A hook that does not keep the object whose method it calls, which has the parameter."""
    known = weakref.WeakMethod(method)

    def hook(param: torch.Tensor) -> None:
        now = known()
        if now is not None:
            now(param)

    return hook


def _remove(hooks: list) -> None:
    for hook in hooks:
        hook.remove()
