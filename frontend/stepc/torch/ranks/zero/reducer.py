# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ZeRO-2: gradients leave for the ranks that step them during the backward pass.

Rajbhandari et al., SC 2020, P_os+g. The plan brings them: a gradient goes into its bucket as soon
as it is whole, ``.grad`` is freed, and a full bucket is sent, in an order that is the same on all
ranks. What arrives is added up in f32: over ranks in their order, then over micro-batches.

Where tensor parallelism has cut a parameter, the ranks of the group have the same part of
it, whose gradient goes the same way. One that is still to be summed over other ranks is
left in ``.grad`` where the user says so by a layout, as these may not have it in the same
passes; the step takes it. A DTensor is redistributed as it comes.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist

from .... import __version__, errors
from ...binding.hypers import HyperReader
from ...tensors.hooks import GradientHooks
from .. import alike as _alike
from ..exchanges import exchanging, within
from ..in_passes import ready_binding

_ENDING = "the end of the backward pass could not be told"


class GradientReducer:
    """The backward passes of an optimizer, whose gradients its plan brings.

    ``brought``: the parameters of which passes have brought gradients since ``zero_grad``;
    ``holder``: the Binding whose plan has them.
    """

    def __init__(self, optimizer):
        self._optimizer = weakref.ref(optimizer)  # which has this
        self._interface = optimizer._get_definition().interface()
        self._reader = HyperReader(optimizer, self._interface)
        self.brought: list[torch.Tensor] = []
        self.holder = None
        self._known: set[int] = set()  # id() of these
        self._watched: set[int] = set()
        self._frozen: list[torch.Tensor] = []  # which are not watched
        self._come: set[int] = set()  # id() of those whose gradients this pass has brought
        self._words: list[str] = []  # what ranks are to have alike before anything crosses
        self._passes = 0  # since zero_grad
        self._compared = False
        self._pass: weakref.ref | None = None  # what autograd has until it ends
        self._paused = False
        self._hooks = GradientHooks(self._take, self)

    def watch(self, parts: Iterable) -> None:
        """Has gradients of these taken as they come."""
        how = self._optimizer()._zero
        words, self._frozen = [f"stepc {__version__}", str(how)], []
        for part in parts:
            param = part.param
            shape = tuple(part.inner.local.shape)
            frozen = ", frozen at first" if how.frozen.was(param) else ""
            words.append(f"{part.name}, {param.dtype} of shape {shape}{frozen}")
            if id(param) in self._watched or part.inner.sums_at_step:
                continue
            if param.requires_grad:
                self._watch(param)
            else:
                self._frozen.append(param)
        self._words = [*words, f"{len(words) - 2} parameters"]

    def _watch(self, param: torch.Tensor) -> None:
        self._watched.add(id(param))
        self._hooks.add(param)

    def _watch_thawed(self) -> None:
        """Those that have been trained since."""
        for param in self._frozen:
            if param.requires_grad:
                self._watch(param)
        self._frozen = [param for param in self._frozen if not param.requires_grad]

    def has(self, param: torch.Tensor) -> bool:
        return id(param) in self._known

    def note(self, params: Iterable[torch.Tensor]) -> None:
        """Of these passes have brought gradients."""
        new = [param for param in params if id(param) not in self._known]
        self.brought += new
        self._known |= set(map(id, new))

    def clear(self) -> None:
        """Forgets the gradients, as ``zero_grad``: also those of a pass that broke off."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        if optimizer._poison is None and self._pass is not None:
            self._end_broken(optimizer)
        self.forget()
        self._watch_thawed()

    def forget(self) -> None:
        """Forgets the gradients, and the pass that is under way."""
        self.brought, self._known, self._pass, self._passes = [], set(), None, 0
        holder, self.holder = self.holder, None
        if holder is not None and not holder.plan.is_poisoned():
            holder.plan.forget_grads()

    def take_over(self, binding) -> None:
        """Has a new Binding hold what passes have brought."""
        if self.holder is None:
            return
        if self.holder.plan.is_poisoned():
            self.forget()
            return
        binding.plan.take_grads(self.holder.plan)
        self.holder = binding

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # --- A backward pass --------------------------------------------------------

    def _take(self, param: torch.Tensor) -> None:
        optimizer = self._optimizer()
        if self._paused or optimizer is None:
            return
        with self._exchanging(optimizer):
            if self._pass is not None and self._pass() is None:
                self._end_broken(optimizer)
                self.forget()
            if self._pass is None:
                self._begin_pass(optimizer)
            # Of one that comes twice, as of a checkpoint in a pass, the step brings the rest.
            if id(param) not in self._come and optimizer._binding.bring(param):
                self._come.add(id(param))
                self.note([param])

    def _begin_pass(self, optimizer) -> None:
        self._compare(optimizer)
        ready_binding(optimizer).begin_pass()
        self._come.clear()

        def end() -> None:
            self._end_pass()

        self._pass = weakref.ref(end)  # autograd drops it with a pass that breaks off
        torch.autograd.Variable._execution_engine.queue_callback(end)

    def _compare(self, optimizer) -> None:
        """That ranks have the same parameters, and are in the same pass: before a gradient
        crosses, as backends end the process where sizes differ. DisagreementError. On devices,
        where the host would have to wait, before the first pass alone."""
        self._passes += 1
        device = next(p.device for g in optimizer.param_groups for p in g["params"])
        if device.type != "cpu" and self._compared:
            return
        number = self._passes
        facts = _alike.Facts((number,), lambda: [f"sent for the {number}. time since zero_grad()"])
        facts = facts.also(_alike.digest_of(self._words), lambda: self._words)
        groups = _alike.of_groups(optimizer, self._interface, self._reader, {})
        facts = facts.also(groups.values, groups.words)
        _alike.compare(facts, optimizer._zero.group, device)
        self._compared = True

    def _end_pass(self) -> None:
        optimizer = self._optimizer()
        with self._exchanging(optimizer):
            optimizer._binding.end_pass()
            broken = self._broken(optimizer, False)
        self._pass = None
        if broken:
            self.forget()
            ranks = ", ".join(map(str, broken))
            raise errors.CommunicationError(
                f"the backward pass of rank {ranks} broke off; gradients since the last "
                "zero_grad() are forgotten on all ranks, and nothing else has changed",
                "STEPC_COMMUNICATION_ERROR",
            )

    def _end_broken(self, optimizer) -> None:
        """Where an error has ended this rank's pass, it ends all the same, with a mark: other
        ranks wait for it, and the next pass begins at the first bucket on all."""
        try:
            with self._exchanging(optimizer):
                optimizer._binding.end_pass()
                self._broken(optimizer, True)
        finally:
            self._pass = None

    def _broken(self, optimizer, own: bool) -> list[int]:
        """The ranks whose pass broke off: all of them tell each other. On a device nothing is
        told, as the host would have to wait to read it."""
        group = optimizer._zero.group
        if optimizer._binding.is_on_device:
            return []
        marks = torch.zeros(dist.get_world_size(group), dtype=torch.uint8, device="cpu")
        marks[dist.get_rank(group)] = own
        with exchanging(_ENDING, group):
            dist.all_reduce(marks, dist.ReduceOp.MAX, group=group)
        return [dist.get_global_rank(group, int(rank)) for rank in marks.nonzero()]

    def refuse_broken(self) -> None:
        """StepcError where a pass broke off and its gradients have not been forgotten."""
        if self._pass is not None:
            self.clear()
            raise errors.StepcError(
                "the backward pass broke off; the gradients since the last zero_grad() are "
                "forgotten, and nothing else has changed"
            )

    @contextlib.contextmanager
    def _exchanging(self, optimizer) -> Iterator[None]:
        """As in a step: an exchange that fails poisons the optimizer."""
        optimizer._refuse_poisoned()
        try:
            with torch.no_grad(), within(optimizer._timeout):
                yield
        except BaseException as error:
            failed = isinstance(error, errors.CommunicationError)
            if isinstance(error, Exception) and not failed:
                raise
            if not isinstance(error, errors.DisagreementError):
                words = f"{type(error).__name__} came in a backward pass of several ranks"
                optimizer._poison = str(error) if failed else words
            self.forget()
            raise
