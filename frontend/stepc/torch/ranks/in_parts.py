# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of parts whose gradients come one by one, within the backward pass.

With ``zero`` each gradient goes into its bucket, in the plan's memory. A bucket that is complete
leaves for the ranks that step it; where they need nothing of other tensors they step their parts
as the sums arrive, and the parameters are gathered: of a bucket all gradients are there then, so
that nothing of the pass reads its parameters any more. Else the sums stay until the step ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from ... import errors
from . import alike as _alike
from .blocks import align_scalars, planned_here, spread_gradients
from .dtensor import is_dtensor
from .files import failure_of, refuse_failure

T = TypeVar("T")


def _refuse_redistribution(part) -> None:
    """TensorError for a gradient that ranks would bring into the parameter's placements: in a
    backward pass they may not come to it together."""
    grad = part.param.grad
    if is_dtensor(grad) and grad.placements != part.param.placements:
        raise errors.TensorError(
            f"{part.name} cannot be stepped in the backward pass: its gradient is a DTensor of "
            f"{tuple(grad.placements)}, and is redistributed to {tuple(part.param.placements)} by "
            "a step behind it",
            "STEPC_LAYOUT_UNSUPPORTED",
        )


class InParts:
    """Mix-in of :class:`~stepc.torch.ranks.distributed.DistributedBinding`."""

    _is_due = False  # whether this step compares what it steps with
    _differs = False  # whether ranks have stepped with other gradients, or may have
    _file_failure: errors.StoreError | None = None  # of this rank in the step under way
    _has_begun = False  # whether that is one of the plan, too

    @property
    def crosses(self) -> bool:
        """Whether ranks exchange gradients and parameters in the step: all of them begin and end
        it, whatever gradients they have."""
        return self._zero is not None

    def begin(self, optimizer) -> bool:
        """Begins a step whose gradients come one by one. False, with nothing done, where another
        binding is needed. TensorError for parameters that cannot be stepped so."""
        if not self._is_current(optimizer):
            return False
        self._refuse_parts_of_sums()
        self._local.follow()
        self._file_failure, self._has_begun = None, False
        if self._inner is None:
            self._until_the_end(self._bind)
            if self._file_failure is not None:
                return True
        if self.crosses:
            self._zero.forget_noted()
            self._differs = False
            self._agree_on_step(optimizer)
        if self._has_scalars:
            align_scalars(self._planned, self._local.state)
        if not self._inner.begin(self._local, crossing=self.crosses):
            self._until_the_end(self._bind)
            if self._file_failure is not None:
                return True
            if not self._inner.begin(self._local, crossing=self.crosses):
                return False
        self._has_begun = True
        if self.crosses:
            frozen = planned_here(part for part in self._zero if not part.param.requires_grad)
            self._inner.say_absent([local for local in frozen if self._inner.has(local)])
        return True

    def _until_the_end(self, call: Callable[[], T]) -> T | None:
        """What the call returns. A failure of this rank's file is kept until the step ends where
        other ranks are in the pass, and wait for what this one reduces in it; nothing of it is
        stepped from then on."""
        try:
            return call()
        except errors.StoreError as error:
            if not self._have_files or self.crosses or not self._torch_mesh.shared_axes:
                raise
            self._file_failure = error
            return None

    def _agree_on_step(self, optimizer) -> None:
        """That ranks are about to step with the same: before a gradient crosses, as backends end
        the process where sizes differ. DisagreementError."""
        self._is_due = optimizer._is_check_due()
        axis = self._torch_mesh.zero_axis
        self._torch_mesh.agree({axis} if self._before is None else self._before.axes)
        facts = self._facts(optimizer)
        if self._is_due:
            self._torch_mesh.compare(lambda axis: self._facts_along(axis, facts))
        else:
            own = self._facts_along(axis, facts)
            _alike.compare(own, self._zero.how.group, self._device)
        for part in self._zero:
            # Other ranks alone may have a gradient of it.
            if part.is_copy and not part.inner.sums_at_step:
                part.refresh()

    def _refuse_parts_of_sums(self) -> None:
        part, why = None, ""
        if self._owners is not None:
            part = next(iter(self._owners.parts))
            why = "one rank steps the whole of it, to which its parts go before the step"
            if part.seen is not None and part.seen.lies_apart(part.shape):
                why = f"by {part.seen.view} its blocks have strides, so that {why}"
        elif self.crosses and self._on_device:
            part = self._parts[0]
            why = (
                f"it is on device '{self._device}', where the host would have to wait for what "
                "ranks tell each other; Zero(2) without fused_backward frees gradients as they come"
            )
        elif not self.crosses:
            part = next((p for p in self._parts if p.sums_at_step or p.sum_key), None)
            why = "its gradient is still to be summed over ranks"
        if part is not None:
            raise errors.TensorError(
                f"{part.name} cannot be stepped in the backward pass: {why}",
                "STEPC_LAYOUT_UNSUPPORTED",
            )

    def has(self, param: torch.Tensor) -> bool:
        """Whether the parameter is bound."""
        return id(param) in self._part_of

    def compare(self, optimizer) -> None:
        """Compares with other ranks what is stepped with, where that is due."""
        if optimizer._is_check_due() and not self.crosses:  # else it has been done by begin
            facts = self._facts(optimizer)
            self._torch_mesh.compare(lambda axis: self._facts_along(axis, facts))

    def step_some(self, params: list[torch.Tensor]) -> list[int]:
        """Steps parameters, which have gradients in their own placements, between begin and end,
        or has their gradients cross. Returns the plan's ids of them."""
        parts = [self._part_of[id(param)] for param in params]
        if self._file_failure is not None:
            return []
        for part in parts:
            if not self.crosses:
                _refuse_redistribution(part)
            part.refresh()
        spread_gradients(parts)
        try:
            if self.crosses:
                return self._send(parts)
            ids = self._until_the_end(lambda: self._inner.step_some(planned_here(parts))) or []
        finally:
            for part in parts:
                if part.local is not part.param and not self.keeps_gradients:
                    part.local.grad = None
                if part.blocks is not None:
                    part.blocks.forget_gradient()
        torch._C._increment_version([p.param for p in parts if p.local is not p.param])
        return ids

    @property
    def keeps_gradients(self) -> bool:
        """Whether gradients, which cross no rank, are read where they are when the step ends."""
        reduced = self.crosses and not self._zero.how.local_gradients
        return reduced and not self._inner.as_they_land

    def _send(self, parts: list) -> list[int]:
        for part in parts:
            self._zero.note_reduced(part, self._is_due)
        if self._inner.as_they_land:
            # Before it is written: autograd then refuses what in this pass would read it later.
            torch._C._increment_version([part.param for part in parts])
        ids = self._inner.bring(planned_here(parts), keeps=self.keeps_gradients)
        for part in () if self.keeps_gradients else parts:
            part.free_gradient()
        return ids

    def end(self, stepped: set[int], *, abandons: bool = False) -> None:
        """Ends it; ``stepped``: ids of the tensors that took part. ``abandons``: the gradients
        that have not come will not, as the pass has ended with an error."""
        if not self.crosses:
            self._end_apart(stepped, tells=self._have_files and not abandons)
            return self._show()
        self._send_late(abandons)
        took = stepped if self.keeps_gradients else set()
        try:
            failure = failure_of(lambda: self._inner.end(took, abandons=abandons))
        finally:
            self._end_crossing()
        if failure is not None:
            failure.torn = True  # other ranks have gone on
        if self._have_files and not abandons:
            refuse_failure(self._torch_mesh, failure)
        elif failure is not None:
            raise failure
        if not self._zero.how.local_gradients and not abandons:
            self._compare_reduced()

    def _end_apart(self, stepped: set[int], *, tells: bool) -> None:
        """Of a step in which no gradient crosses. Ranks that cut blocks of codes wait for each
        other in the end of their plans: who has none to end says so before."""
        failure, self._file_failure = self._file_failure, None
        if tells:
            own = None if self._has_begun else failure
            if own is not None:
                own.torn = True  # other ranks have gone on
            refuse_failure(self._torch_mesh, own)
        if failure is None:
            failure = failure_of(lambda: self._inner.end(stepped))
        if failure is not None:
            failure.torn = True
        if tells:
            refuse_failure(self._torch_mesh, failure)
        elif failure is not None:
            raise failure

    def _compare_reduced(self) -> None:
        """Behind the step, as ranks are not before it together."""
        self._differs = True
        self._zero.compare_reduced(self._is_due)
        self._differs = False

    def is_poisoned(self) -> bool:
        """Whether a step has failed midway, or was made with what ranks have not alike."""
        return self._differs or (self._inner is not None and self._inner.plan.is_poisoned())

    def _send_late(self, abandons: bool) -> None:
        """What is summed over other ranks first, which may not come to it in the same passes: all
        of them together."""
        late = [part for part in self._in_order if part.inner.sums_at_step]
        for part in late:
            part.refresh()
        spread_gradients(late)
        if not abandons:
            self._send([part for part in late if part.local.grad is not None])

    def _end_crossing(self) -> None:
        for part in self._zero:
            if self.keeps_gradients:
                part.free_gradient()
            elif part.local is not part.param:
                part.inner.local.grad = part.local.grad = None
                if part.blocks is not None:
                    part.blocks.forget_gradient()
        if self._inner.plan.is_poisoned():
            return
        torch._C._increment_version([part.param for part in self._zero])
        self._inner.note_versions()
        self._zero.give_back()
        self._show()
