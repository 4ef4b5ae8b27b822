# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A parameter that ``zero`` cannot cut, as its rule needs whole matrices: one rank of the group
has its states and steps all of it (StepcEntry's ``owned``). Nothing crosses ranks for it that
would not for a parameter that is cut."""

from __future__ import annotations

import torch

from ...._mesh import Layout
from ..blocks import Blocks
from ..dtensor import is_dtensor
from ..state_parts import StatePart
from .part import SharedPart


class OwnedShare(SharedPart):
    """All of the parameter, or nothing of it; see :mod:`stepc.torch.ranks.parts`. A rank that has
    nothing has no states, either."""

    is_owned = True

    @property
    def owns(self) -> bool:
        """Whether this rank steps it. One without elements nobody does."""
        return self.end > self.begin

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.owns else tensor.reshape(-1)[:0]

    @property
    def blocks(self) -> Blocks | None:
        """See :class:`~stepc.torch.ranks.base_part.Part`: a rank has the memory of all of them."""
        if self.inner.blocks is None:
            return None
        if self._blocks is None or self._blocks.local is not self.local:
            whole = tuple(self.inner.param.shape)
            self._blocks = Blocks(self.inner.seen.blocks, self.local, whole)
        return self._blocks

    @property
    def seen_here(self) -> tuple[int, ...]:
        return self.inner.seen_here

    @property
    def lies(self) -> list[str]:
        has = "all" if self.owns else "nothing"
        why = "its rule needs whole matrices"
        if self.blocks is not None:
            why = "it is stepped as several tensors"
        return [*self.inner.lies, f"{has} of that over zero, as {why}"]

    @property
    def place(self) -> str:
        return f"{'all' if self.owns else 'nothing'} of {tuple(self.inner.param.shape)}"

    def resolve(self, axes: dict, mesh) -> None:
        self.inner.resolve(axes, mesh)
        self.axis = mesh.zero_axis
        below = self.inner.layout
        shape = tuple(self.inner.local.shape)
        self.layout = Layout(shape, distinct=() if below is None else below.distinct)
        self.bound = self.layout
        self.entry = self._how.entry(self.local.dtype, self.axis, self._how.owners.of(self.param))

    # --- States ---------------------------------------------------------------

    def state_as_seen(self, name: str, state):
        return self.inner.state_as_seen(name, state)

    def state_as_own(self, name: str, state):
        return self.inner.state_as_own(name, state)

    def is_cut(self, name: str) -> bool:
        return name in self.whole

    def hide(self, name: str, state):
        """None where another rank has it."""
        if not isinstance(state, torch.Tensor) or not self.is_cut(name):
            return state
        if not self.owns:
            return None
        if is_dtensor(state):  # as a constructor makes them
            state = self.inner.hide(name, state)
        whole = self.whole[name].of(state)
        if tuple(state.shape) != whole.shape:
            raise self._misshapen(name, state, whole.shape)
        return state

    def is_bare(self, name: str, state: torch.Tensor) -> bool:
        return False

    def saved(self, name: str, state):
        """None where another rank has it, as before the first step behind a load."""
        if not isinstance(state, torch.Tensor) or not self.is_cut(name):
            return state
        if not self.owns:
            return None
        shape = self.whole[name].of(state).shape
        box = (tuple(0 for _ in shape), shape)
        return StatePart.of(state, shape, self.place, (box,))
