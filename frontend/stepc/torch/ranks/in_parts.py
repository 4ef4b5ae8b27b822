# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of parts whose gradients come one by one, within the backward pass."""

from __future__ import annotations

import torch

from ... import errors
from .dtensor import is_dtensor


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

    def begin(self, optimizer) -> bool:
        """Begins a step whose gradients come one by one. False, with nothing done, where another
        binding is needed. TensorError for parameters that cannot be stepped so."""
        if not self._is_current(optimizer):
            return False
        self._refuse_parts_of_sums()
        self._local.follow()
        if self._inner is None:
            self._bind()
        if not self._inner.begin(self._local):
            self._bind()
            return self._inner.begin(self._local)
        return True

    def _refuse_parts_of_sums(self) -> None:
        if self._zero is not None or self._owners is not None:
            why = "ranks exchange gradients before it is stepped"
            part = next(iter(self._owners.parts if self._owners is not None else self._parts))
        else:
            why = "its gradient is still to be summed over ranks"
            part = next((p for p in self._parts if p.sums_at_step or p.sum_key), None)
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
        if optimizer._is_check_due():
            facts = self._facts(optimizer)
            self._torch_mesh.compare(lambda axis: self._facts_along(axis, facts))

    def step_some(self, params: list[torch.Tensor]) -> list[int]:
        """Steps parameters, which have gradients in their own placements, between begin and end.
        Returns the plan's ids of them."""
        parts = [self._part_of[id(param)] for param in params]
        for part in parts:
            _refuse_redistribution(part)
            part.refresh()
        try:
            ids = self._inner.step_some([part.local for part in parts])
        finally:
            for part in parts:
                if part.local is not part.param:
                    part.local.grad = None
        torch._C._increment_version([p.param for p in parts if p.local is not p.param])
        return ids

    def end(self, stepped: set[int]) -> None:
        """Ends it; ``stepped``: ids of the tensors that took part."""
        self._inner.end(stepped)
        self._show()
