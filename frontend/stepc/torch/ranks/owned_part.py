# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A parameter that an owner steps whole, and where the parts of ranks lie in it."""

from __future__ import annotations

import math

import torch

from ... import errors
from ..._describe import BLOCK, SCALE
from ..._mesh import Layout
from ..binding.codes import encode, format_of, in_whole_codes
from ..binding.rules import Indices, Slot
from ..tensors.members import ObstacleError
from .blocks import Blocks
from .dtensor import DTensorPart
from .floats_of_codes import in_kept_floats
from .zero.part import SharedPart, ZeroPart


def indices_of(part) -> Indices:
    """Where a resolved part lies in the whole tensor."""
    if isinstance(part, ZeroPart):
        first, last = part.rows
        rows, *others = indices_of(part.inner)
        return [rows[first:last], *others]
    if part.layout is None:
        return [range(extent) for extent in part.local.shape]
    start = part.layout.start
    if start is None and isinstance(part, DTensorPart):
        return part.alternating()
    return [range(f, f + n) for f, n in zip(start, part.local.shape, strict=True)]


def seen_of(part):
    """What the rule sees of a resolved part's whole, None where that is as it lies."""
    return part.inner.seen if isinstance(part, ZeroPart) else part.seen


def numel(indices: Indices) -> int:
    return math.prod(map(len, indices))


def _places(indices: Indices) -> tuple:
    """What indexes a tensor: slices where every dim is a run."""
    if all(isinstance(own, range) for own in indices):
        return tuple(slice(own.start, own.stop) for own in indices)
    rank = len(indices)
    return tuple(
        torch.tensor(list(own), dtype=torch.int64, device="cpu").view(
            [-1 if d == k else 1 for k in range(rank)]
        )
        for d, own in enumerate(indices)
    )


def take(whole: torch.Tensor, indices: Indices) -> torch.Tensor:
    return whole[_places(indices)]


def put(whole: torch.Tensor, indices: Indices, part: torch.Tensor) -> None:
    """Writes a part, one element after the other, where it lies."""
    whole[_places(indices)] = part.view([len(own) for own in indices])


class OwnedPart:
    """What this rank has of a parameter that an owner steps (see :mod:`.parts`): all of
    it in memory of its own, or nothing.

    ``inner`` is the part that the user has; ``axes`` those over which it is cut; ``at`` has
    for each rank along them where its part lies; ``reason`` says why, in words, ``cost`` what a
    step of the whole costs. ``local`` and
    ``layout`` are the plan's: a whole tensor that ranks along ``axes`` do not have, in the shape
    that its rule sees.
    """

    entry = None
    cost = 0.0
    sends_states = True
    _blocks: Blocks | None = None

    def __init__(self, inner, group: int, axes: tuple[str, ...], reason: str):
        self.inner, self.param, self.name = inner, inner.param, inner.name
        self.group, self.axes, self.reason = group, axes, reason
        self.own = indices_of(inner)
        self.at: list[Indices] = []
        self.owner = 0  # its place along the axes
        self.parts: dict[str, torch.Tensor] = {}  # of the states, as the user has them
        self.slots: list[Slot] = []
        self.reduced: torch.Tensor | None = None  # see OwnedRows
        self.stepped, self.count = False, 0
        self.made: dict = {}  # states that the user is to have since the last step
        below = inner.layout
        self.shape, self.seen = below.shape, seen_of(inner)
        shape = self.shape if self.seen is None else self.seen.shape(self.shape)
        self.layout = Layout(shape, distinct=(*below.distinct, *axes))

    @property
    def is_shared(self) -> bool:
        """Whether the rank has more than its part: zero has cut what others have, too."""
        return isinstance(self.inner, SharedPart)

    @property
    def held(self) -> torch.Tensor:
        """This rank's part, in the user's memory."""
        return self.inner.own if self.is_shared else self.inner.local

    @property
    def gradient(self) -> torch.Tensor | None:
        """Of this rank's part, over all ranks."""
        return self.reduced if self.is_shared else self.inner.local.grad

    @property
    def whole(self) -> torch.Tensor:
        """All of it, in its own shape, where this rank owns it."""
        return self.local.detach().view(self.shape)

    @property
    def wide(self) -> torch.dtype:
        """In which gradients cross: it holds those of any dtype."""
        return torch.promote_types(self.param.dtype, torch.float32)

    def assign(self, owner: int, rank: int, at: list[Indices], before: OwnedPart | None) -> None:
        """Settles who steps it; ``before`` has the memory of an earlier binding."""
        self.owner, self.at, self.owns = owner, at, owner == rank
        if before is not None:
            self.local = before.local
            return
        self.local = torch.zeros(
            self.layout.shape if self.owns else (0,), dtype=self.param.dtype, device="cpu"
        )
        self.local.requires_grad_(self.owns and self.param.requires_grad)

    # --- As the plan has it -----------------------------------------------------

    @property
    def blocks(self) -> Blocks | None:
        """See :class:`~stepc.torch.ranks.base_part.Part`; on every rank as many."""
        if self.seen is None or self.seen.blocks is None:
            return None
        if self._blocks is None or self._blocks.local is not self.local:
            self._blocks = Blocks(self.seen.blocks, self.local, self.shape)
        return self._blocks

    @property
    def planned(self) -> list[torch.Tensor]:
        return [self.local] if self.blocks is None else self.blocks.tensors

    @property
    def planned_here(self) -> list[torch.Tensor]:
        return [self.local] if self.blocks is None else self.blocks.here

    @property
    def seen_here(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def block_shapes(self) -> list[tuple[int, ...]]:
        """Those of the tensors that the plan steps."""
        if self.seen is None or self.seen.blocks is None:
            return [self.layout.shape]
        return self.seen.blocks.shapes(self.shape)

    def slots_of(self, binding) -> list[Slot]:
        """The states that a binding has beside it, on every rank, whether it owns it or not."""

        def of_one(tensor, layout):
            return binding.slots_of(self, tensor, layout)

        if self.blocks is None:
            return of_one(self.local, self.layout)
        return self.blocks.slots(of_one, self.layout)

    def states_in(self, binding) -> dict:
        """Those of a binding, by name, as they are seen."""
        if self.blocks is None:
            return binding.shown_states(self.local)
        return self.blocks.joined(binding.shown_states, self.layout.shape)

    def pieces(self, rank: int) -> list[tuple[torch.dtype, int]]:
        """The states of a rank's part, as dtype and number of elements."""
        return [(slot.dtype, numel(slot.at(self.at[rank]))) for slot in self.slots]

    def bytes_moved(self) -> tuple[int, int]:
        """To the owner and back, of all ranks."""
        there = back = 0
        for rank in range(len(self.at)):
            if rank != self.owner:
                size = numel(self.at[rank])
                states = sum(dtype.itemsize * n for dtype, n in self.pieces(rank))
                there += size * (self.param.dtype.itemsize + self.wide.itemsize) + states
                back += size * self.param.dtype.itemsize + states
        return there, back

    # --- States as the user has them --------------------------------------------

    def begin_state(self, items: dict) -> dict:
        """What the plan's state begins with on the owner, beside these of the user's: memory
        for the whole of each, which the first step fills."""
        if not self.owns:
            return {}
        made = {}
        for name, value in items.items():
            whole = self.inner.whole.get(name)
            if name == "step" and isinstance(value, torch.Tensor):
                made[name] = value.clone()
            elif isinstance(value, torch.Tensor):
                shape = tuple(value.shape) if whole is None else whole.of(value).shape
                if whole is not None and self.seen is not None:
                    shape = self.seen.states_of(self.layout.shape)[name].of(value).shape
                made[name] = torch.zeros(shape, dtype=value.dtype, device="cpu")
        return made

    def take_slots(self, slots: list[Slot]) -> None:
        """Those of the plan, as parts of them lie beside this rank's of the parameter."""
        if self.seen is not None:
            as_own = self.seen.as_own
            slots = [slot._replace(whole=as_own(slot.whole, self.shape)) for slot in slots]
        for slot in slots:
            if any(slot.cuts_blocks(at, self.shape) for at in self.at):
                raise ObstacleError(
                    f"{self.name} is cut along a dim inside of its rows, or inside of a block of "
                    f"{BLOCK} elements, and one of '{slot.name}' has several of them; ranks have "
                    "to have ranges of rows, and with 4 bits whole blocks, or the state has to "
                    "stay float32 (state_dtype)",
                    False,
                )
        self.slots = slots

    def adopt(self, items: dict) -> dict:
        """Takes the user's states as parts; returns those that the user is to have instead."""
        changed = {}
        items = in_whole_codes(self.inner, in_kept_floats(self.inner, items))
        for slot in self.slots:
            value = items.get(slot.name)
            if value is None or slot.name in self.parts:
                continue
            own = self.inner.hide(slot.name, value).detach()
            if slot.whole.format and own.is_floating_point():
                changed |= self._encoded(slot, own)
                continue
            if own.dtype != slot.dtype and (format := format_of(own)):
                raise errors.TensorError(
                    f"state '{slot.name}' of {self.name} is of codes, and this optimizer keeps "
                    f"{slot.whole.format or 'floats'}, not {format}; load_state_dict makes them",
                    "STEPC_DTYPE_MISMATCH",
                )
            if own.dtype != slot.dtype:
                own = own.to(slot.dtype)
            self.parts[slot.name] = own
            changed[slot.name] = self.inner.show(slot.name, own)
        return changed

    def _encoded(self, kept: Slot, values: torch.Tensor) -> dict:
        """Takes floats where codes are kept, and returns these and their scales."""
        name, scale = kept.name, kept.name + SCALE
        shape = next(
            tuple(len(own) for own in slot.at(self.own))
            for slot in self.slots
            if slot.name == scale
        )
        self.parts[name], self.parts[scale] = encode(values, kept.whole.format, shape)
        return {one: self.inner.show(one, self.parts[one]) for one in (name, scale)}

    def make_missing(self) -> dict:
        """The same for states that the user does not have yet."""
        made = {}
        for slot in self.slots:
            if slot.name not in self.parts:
                shape = [len(own) for own in slot.at(self.own)]
                self.parts[slot.name] = torch.zeros(shape, dtype=slot.dtype, device="cpu")
                made[slot.name] = self.inner.show(slot.name, self.parts[slot.name])
        return made
