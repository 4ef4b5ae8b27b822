# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a part (:mod:`.parts`) is where nothing else is said."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..binding.rules import WholeState
from ..tensors.members import ObstacleError
from ..tensors.patterns import View, check_memory, shape_seen
from .blocks import Blocks, BlocksOf

Shape = tuple[int, ...]
StatesOf = Callable[[Shape], dict[str, WholeState]]
_refused = functools.partial(ObstacleError, eager=False)


@dataclass(frozen=True)
class Seen:
    """What the rule of a parameter sees in place of its shape, and the states that it has then."""

    name: str
    view: View
    states_of: StatesOf
    blocks: BlocksOf | None = None  # where the plan steps it as several tensors

    def shape(self, shape: Shape) -> Shape:
        """Of a whole parameter; ObstacleError where the view does not fit it."""
        return shape_seen(self.view, shape, self.name, part=False, error=_refused)

    def lies_apart(self, shape: Shape) -> bool:
        """Whether the plan steps a parameter as blocks that have strides of their own."""
        return self.blocks is not None and self.blocks.lies_apart(shape)

    def states(self, shape: Shape) -> dict[str, WholeState]:
        """Those of a parameter as the user has them: in its shape where they have all dims that are
        seen, else as they are seen."""
        states = self.states_of(self.view.shape(shape, part=True))
        return {name: self.as_own(state, shape) for name, state in states.items()}

    def as_own(self, state: WholeState, shape: Shape) -> WholeState:
        """One of them."""
        return state.each(lambda own: self._as_own(own, shape))

    def _as_own(self, state: WholeState, shape: Shape) -> WholeState:
        if self.is_full(state, shape):
            return state._replace(shape=shape, of_param=tuple(range(len(shape))))
        dims = tuple(None if of is None else self.view.own_dim(of) for of in state.of_param)
        if state.inner > 1:  # rows of several dims that are seen
            dims = (*dims[:-1], None)
        made = state._replace(of_param=dims)
        if made.is_full(len(shape)):  # it would be taken for one of all elements
            made = made._replace(of_param=(None,) * len(dims))
        return made

    def is_full(self, state: WholeState, shape: Shape) -> bool:
        """Whether it has all dims that are seen of a parameter of the shape."""
        return state.is_full(self.view.count_of_dims(shape))


class Part:
    """A parameter of which the rank has all, as every other has."""

    layout = entry = place = None
    seen: Seen | None = None
    is_sharded = sums_at_step = False
    sends_states = False  # to ranks that have parts of them
    first: tuple[int, ...] | None = None
    lies: tuple[str, ...] | list[str] = ()
    gradient = "reduced"
    sum_key = ""
    param: torch.Tensor
    local: torch.Tensor
    name: str  # in messages
    _blocks: Blocks | None = None

    @property
    def blocks(self) -> Blocks | None:
        """The tensors that the plan steps in place of ``local``, if it does."""
        if self.seen is None or self.seen.blocks is None:
            return None
        before = self.blocks_before if self.is_sharded else 0
        if before is None:
            return None
        if self._blocks is None or self._blocks.local is not self.local:
            whole = tuple(self.param.shape)
            self._blocks = Blocks(self.seen.blocks, self.local, whole, before=before)
        return self._blocks

    @property
    def blocks_before(self) -> int | None:
        """Of what is cut between blocks, so that each rank steps its own, how many are before
        those of this rank; None where it is cut otherwise."""
        return None

    @property
    def planned(self) -> list[torch.Tensor]:
        """The tensors that the plan steps, here or on other ranks."""
        return [self.local] if self.blocks is None else self.blocks.tensors

    @property
    def planned_here(self) -> list[torch.Tensor]:
        """Those that it steps here."""
        return [self.local] if self.blocks is None else self.blocks.here

    @property
    def seen_here(self) -> Shape:
        """What is seen of this rank's part, where the plan steps that."""
        return self.seen.shape(self.whole_shape)

    @property
    def whole_shape(self) -> tuple[int, ...] | None:
        return tuple(self.param.shape)

    @functools.cached_property
    def whole(self) -> dict[str, WholeState]:
        return self.states_of(tuple(self.param.shape))

    # --- As the rule sees it ----------------------------------------------------

    @property
    def is_seen(self) -> bool:
        """Whether the plan has it in another shape. Of what is cut the owner has the whole."""
        return self.seen is not None and not self.is_sharded

    def as_seen(self, tensor: torch.Tensor) -> torch.Tensor:
        """A gradient of the parameter's shape as the plan has it."""
        shape = self.local.shape
        return tensor.reshape(shape) if self.is_seen and tensor.shape != shape else tensor

    def memory_as_seen(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same of the parameter: ObstacleError where its memory cannot be seen so."""
        if not self.is_seen:
            return tensor
        check_memory(self.seen.view, tensor, self.name, error=_refused)
        return tensor.view(self.seen.shape(tuple(tensor.shape)))

    def seen_layout(self, shape: Shape) -> tuple[Shape, Shape]:
        """Of a whole tensor what the plan is told of its shape, and where that begins."""
        seen = self.seen.shape(shape)
        return seen, tuple(0 for _ in seen)

    def state_as_seen(self, name: str, state):
        """A whole state of the user's, as the plan has it."""
        return self._reshaped(name, state, lambda own, seen: (own, seen))

    def state_as_own(self, name: str, state):
        """A whole state of the plan's, as the user has it."""
        return self._reshaped(name, state, lambda own, seen: (seen, own))

    def _reshaped(self, name: str, state, order: Callable):
        if not (self.is_seen or self.blocks is not None) or not isinstance(state, torch.Tensor):
            return state
        shape = tuple(self.local.shape) if self.is_sharded else self.whole_shape
        found = self.seen.states_of(self.seen_here).get(name)
        if found is None or not self.seen.is_full(found := found.of(state), shape):
            return state
        before, after = order(shape, found.shape)
        return state.reshape(after) if tuple(state.shape) == before else state

    # ----------------------------------------------------------------------------

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

    def forget_gradient(self) -> None:
        """After a step: the user's alone stays, which ``zero_grad`` frees."""
        if self.local is not self.param:
            self.local.grad = None
        if self._blocks is not None:
            self._blocks.forget_gradient()

    def show(self, name: str, state: torch.Tensor) -> torch.Tensor:
        return state

    def hide(self, name: str, state):
        return state

    def shares_blocks(self, scales: WholeState) -> bool:
        """Whether the part has blocks of codes, of these scales, of which others have parts."""
        return False

    @property
    def box(self) -> tuple[Shape | None, Shape]:
        """Where this rank's part begins in the whole tensor, None where it has all, and its
        sizes."""
        return self.first, tuple(self.param.shape)

    def is_bare(self, name: str, state: torch.Tensor) -> bool:
        return False

    def saved(self, name: str, state):
        return state

    def full(self, name: str, state, mesh):
        return state
