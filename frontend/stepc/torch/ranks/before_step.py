# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks tell each other before a step in which they exchange.

One call for each set of axes over which tensors lie: which of them have a gradient, and a
check of what else must be alike in each step. A gradient that any rank has counts as zero
on those that have other parts of the tensor, as DistributedDataParallel has it with unused
parameters; ranks that have the same part take it over. A tensor that no rank has one for is
left alone on all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ... import errors
from ..tensors.dlpack import set_grad
from . import alike as _alike
from .exchanges import exchanging, gathered

LEFT = 2  # of a presence: in ``.grad``, to be brought by the step
_COMPARING = "the gradients could not be compared before the step"


class BeforeStep:
    """Of the parts of an optimizer that lie on a mesh.

    ``counts``: the steps that a part has taken, by ``id()`` of its local tensor; None where
    the definition keeps no counts. ``along``: the axes along which ranks have a part alike,
    by its ``id()``, cut or whole: what a rank steps, all of them are to step. ``passes``: the
    binding of an optimizer whose gradients passes bring ahead of the step.
    """

    def __init__(
        self,
        mesh,
        parts: list,
        counts: dict[int, int] | None,
        along: dict[int, set[str]],
        passes=None,
    ):
        self._mesh = mesh
        self._passes = passes
        self._along = along
        self._lent: list = []  # tensors of the user's that have got zeros for this step
        self._sets: dict[tuple[str, ...], list] = {}
        for part in parts:
            axes = along[id(part)]
            if axes:
                self._sets.setdefault(tuple(sorted(axes)), []).append(part)
        self._counts = counts
        self._sums = {axes: self._count(own) for axes, own in self._sets.items()}

    def _count(self, parts: list) -> int:
        return sum(self._counts[id(part.local)] for part in parts) if self._counts else 0

    @property
    def axes(self) -> set[str]:
        return {axis for axes in self._sets for axis in axes}

    def run(self, facts: _alike.Facts, counted: bool) -> None:
        """Gives every part its gradient or zeros: all ranks together. ``counted``: whether the
        host knows of all steps, also those of graphs, on all of them.

        DisagreementError where ranks have other ``facts``, or have taken another number of
        steps, which names the ranks and the first that differs.
        """
        calls = []
        for axes in sorted(self._sets):
            own = self._sets[axes]
            present = [self._presence(part) for part in own]
            alike = self._facts(facts, axes, counted)
            both = [*present, *(-one for one in present)]
            group = self._mesh.host(self._mesh.group_of(axes))
            both, same = _alike.maxima(both, alike, group, _COMPARING)
            calls.append((axes, own, group, alike, both, same))
        for _, _, group, alike, _, same in calls:
            if not same:
                _alike.refuse(alike, [group], self._mesh.device)
        late: list[tuple] = []
        for axes, own, _, _, both, _ in calls:
            for part, most, least in zip(own, both[: len(own)], both[len(own) :], strict=True):
                if self._passes is not None and part.entry is not None:
                    late.append((part, most, -least))
                elif most != -least:
                    self._complete(part)
                if most and self._counts:
                    self._sums[axes] += 1
        if any(most == LEFT or most != least for _, most, least in late):
            self._passes.bring_late([part for part, most, _ in late if most])

    def _presence(self, part) -> int:
        if self._passes is None or part.entry is None:
            return int(_has_gradient(part))
        if _has_gradient(part):
            return LEFT
        return int(self._passes.has_brought(part))

    def _facts(self, facts: _alike.Facts, axes: tuple[str, ...], counted: bool) -> _alike.Facts:
        """With those of the parts that lie along the axes."""
        own, counts = self._sets[axes], self._counts or {}
        return _alike.frozen(facts, own).also(
            self._sums[axes] if counted else 0,
            lambda: [
                f"{part.name} after {counts[id(part.local)]} steps when it was bound"
                for part in (own if counts else ())
            ],
        )

    def _complete(self, part) -> None:
        # Gradients that were said to be reduced are on all ranks.
        reduced = part.entry is not None and not part.entry.partial
        if reduced or (part.entry is None and part.layout is not None and part.layout.flat):
            raise errors.DisagreementError(
                f"{part.name} has a gradient on some ranks and none on others",
                "STEPC_COMMUNICATION_ERROR",
            )
        same = self._along[id(part)] - sharded_axes(part)
        if same:
            self._take_over(part, self._mesh.group_of(same))
        if part.local.grad is None:
            self._lend(part, torch.zeros_like(part.local))

    def _take_over(self, part, group) -> None:
        """From the first rank of those that have the same part and a gradient for it."""
        own = part.local.grad
        dtype = None if own is None else own.dtype
        every = gathered(dtype, _COMPARING, group, self._mesh.device)
        have = [place for place, dtype in enumerate(every) if dtype is not None]
        if not have or len(have) == len(every):
            return
        sent = torch.empty(part.local.shape, dtype=every[have[0]], device=part.local.device)
        if own is not None:
            sent = own.detach().clone(memory_format=torch.contiguous_format)
        with exchanging(f"the gradient of {part.name} could not be taken over", group):
            dist.broadcast(sent, dist.get_process_group_ranks(group)[have[0]], group=group)
        if own is None:
            self._lend(part, sent)

    def _lend(self, part, grad: torch.Tensor) -> None:
        if part.local is part.param:
            part.local.grad = grad
            self._lent.append(part.local)
        else:
            set_grad(part.local, grad)

    def end(self) -> None:
        """The step is over: the user's gradients are what they were."""
        for tensor in self._lent:
            tensor.grad = None
        self._lent.clear()

    def remember(self, before: BeforeStep) -> None:
        """Takes over the steps of what this one has been made for in a step that the other began,
        whose counts are of before it."""
        for axes, own in before._sums.items():
            if axes in self._sums:
                self._sums[axes] = own

    def was_skipped(self) -> None:
        """The step counted for nothing."""
        for axes, own in self._sets.items() if self._counts else ():
            self._sums[axes] -= sum(bool(self._presence(part)) for part in own)


def _has_gradient(part) -> bool:
    return part.local.grad is not None and part.local.requires_grad


def sharded_axes(part) -> set[str]:
    """Those over which ranks have other parts."""
    if part.layout is None:
        return set()
    return {axis for _, names in part.layout.dims for axis in names} | set(part.layout.flat)
