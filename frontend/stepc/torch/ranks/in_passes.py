# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward passes whose gradients the plan brings ahead of the step."""

from __future__ import annotations

import torch

from .blocks import planned_here, spread_gradients


def ready_binding(optimizer):
    """A binding of the optimizer as it is now, which can bring gradients."""
    before = optimizer._binding
    if before is not None and before.is_ready(optimizer):
        return before
    binding = optimizer._bind(before)
    binding.make_ready()
    optimizer._binding = binding
    return binding


class InPasses:
    """Mix-in of :class:`~stepc.torch.ranks.distributed.DistributedBinding`."""

    def is_ready(self, optimizer) -> bool:
        """Whether it is of the optimizer as that is now, and gradients can be brought."""
        if self._inner is None or not self._is_current(optimizer):
            return False
        self._local.follow()
        trained = [p for p in self._zero if p.frozen_at_first and p.param.requires_grad]
        return all(map(self._inner.has, planned_here(trained))) and self._inner.is_current(
            self._local
        )

    def make_ready(self) -> None:
        """Makes the plan."""
        self._bind()

    @property
    def is_on_device(self) -> bool:
        return self._on_device

    def has_brought(self, part) -> bool:
        """Whether passes have brought a gradient of the part."""
        return self._passes is not None and self._passes.has(part.param)

    def begin_pass(self) -> None:
        self._inner.begin_pass()

    def bring(self, param: torch.Tensor) -> bool:
        """Brings the gradient of a parameter, and frees it. False for what an owner steps, whose
        gradient stays until then."""
        part = self._part_of[id(param)]
        owned = () if self._owners is None else self._owners.parts
        if any(own.inner is part for own in owned):
            return False
        part.refresh()
        self._bring([part])
        return True

    def _bring(self, parts: list) -> None:
        """Of parts that are refreshed; one that has no gradient counts as zero."""
        if self._passes is not None:
            self._passes.holder = self._inner
        spread_gradients(parts)
        self._inner.bring(planned_here(parts))
        for part in parts:
            part.free_gradient()

    def brought(self, param: torch.Tensor) -> torch.Tensor:
        """What passes have brought of a parameter: this rank's part, until the next."""
        found = [self._inner.brought(t) for t in self._part_of[id(param)].planned_here]
        return found[0] if len(found) == 1 else torch.cat(found)

    def bring_late(self, parts: list) -> None:
        """What came by no pass, or one without sync, and what other ranks alone have had: a pass
        of all ranks, in the step, for which the parts are refreshed."""
        self.begin_pass()
        self._bring([p for p in parts if p.local.grad is not None or not self.has_brought(p)])
        self.end_pass()
        self._passes.note([part.param for part in parts])

    def end_pass(self) -> None:
        self._inner.end_pass()
