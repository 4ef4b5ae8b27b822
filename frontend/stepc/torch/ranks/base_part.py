# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a part (:mod:`.parts`) is where nothing else is said."""

from __future__ import annotations

import functools

import torch

from ..binding.rules import WholeState


class Part:
    """A parameter of which the rank has all, as every other has."""

    layout = entry = place = None
    is_sharded = sums_at_step = False
    first: tuple[int, ...] | None = None
    lies: tuple[str, ...] | list[str] = ()
    gradient = "reduced"
    sum_key = ""
    param: torch.Tensor
    local: torch.Tensor

    @property
    def whole_shape(self) -> tuple[int, ...] | None:
        return tuple(self.param.shape)

    @functools.cached_property
    def whole(self) -> dict[str, WholeState]:
        return self.states_of(tuple(self.param.shape))

    def cut_over(self) -> list:
        return []

    def alike(self, axes: dict, mesh) -> set[str]:
        return set()

    def speaks(self, axes: dict) -> set[str]:
        return set()

    def remember(self, own) -> None:
        pass

    def resolve(self, axes: dict, mesh) -> None:
        pass

    def is_current(self) -> bool:
        return True

    def relocate(self) -> None:
        pass

    def refresh(self) -> None:
        pass

    def show(self, name: str, state: torch.Tensor) -> torch.Tensor:
        return state

    def hide(self, name: str, state):
        return state

    def is_bare(self, name: str, state: torch.Tensor) -> bool:
        return False

    def saved(self, name: str, state):
        return state

    def full(self, name: str, state, mesh):
        return state
