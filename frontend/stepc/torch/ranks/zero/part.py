# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a rank has of a parameter whose states the ranks of a group share."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from .... import errors
from ...._describe import count_blocks
from ...._mesh import Layout
from ...binding.rules import WholeState
from ...tensors.dlpack import set_grad
from ...tensors.members import ObstacleError
from ..base_part import Part
from ..dtensor import is_dtensor
from ..state_parts import (
    StatePart,
    assemble,
    box_part,
    boxes_of_range,
    offsets_of,
    state_sizes,
    unresolved,
)
from .settings import ZeroSettings


class ZeroPart(Part):
    """A parameter of which this rank steps a part, perhaps none (:mod:`stepc.torch.ranks.parts`).

    ``inner`` is what the ranks of the group have alike. Where that is a whole tensor, the
    part is a range of its elements, and the layout is flat; where it is itself a part of
    a larger tensor, as tensor parallelism makes them, the part is a range of its rows, so
    that dim 0 is sharded by one axis more. ``begin`` and ``end`` count elements in both;
    ``own`` is the part.
    """

    is_owned = False  # all of it is one rank's
    cuts: list  # of the tensors that the plan has of it, what this rank steps
    inner: object
    begin: int
    end: int
    by_rows: bool
    own: torch.Tensor

    @property
    def whole(self) -> dict:
        return self.inner.whole

    @property
    def rows(self) -> tuple[int, int]:
        """The rows [first, last) of ``inner``, where it is cut by them."""
        size = max(row_size(self.inner.local), 1)
        return self.begin // size, self.end // size

    @property
    def whole_shape(self) -> tuple[int, ...] | None:
        return self.inner.whole_shape

    @property
    def sum_key(self) -> str:
        return self.inner.sum_key

    @property
    def gradient(self) -> str:
        return self.inner.gradient

    @property
    def lies(self) -> list[str]:
        kind, (first, last) = "elements", (self.begin, self.end)
        if self.by_rows:
            kind, (first, last) = "rows", self.rows
        return [*self.inner.lies, f"{kind} [{first}, {last}) of that over zero"]

    @property
    def place(self) -> str:
        if not self.by_rows:
            # The parameter's shape, and not what a view sees: saved states are of either.
            return f"elements [{self.begin}, {self.end}) of {tuple(self.inner.param.shape)}"
        first, last = self.rows
        return f"rows [{first}, {last}) of {self.inner.place or 'a part'}"

    def describe(self, axes: dict) -> str:
        return self.inner.describe(axes)

    def alike(self, axes: dict, mesh) -> set[str]:
        return {mesh.zero_axis} | self.inner.alike(axes, mesh)

    def speaks(self, axes: dict) -> set[str]:
        return self.inner.speaks(axes)

    def remember(self, own: ZeroPart) -> None:
        self.inner.remember(own.inner)

    def resolve(self, axes: dict, mesh) -> None:
        """Adds what only other ranks know; see :mod:`stepc.torch.ranks.parts`."""
        self.inner.resolve(axes, mesh)
        self.axis = mesh.zero_axis
        below = self.inner.layout
        shape = tuple(self.inner.local.shape)
        if not self.by_rows:
            distinct = () if below is None else below.distinct
            self.layout = Layout(shape, flat=(self.axis,), begin=self.begin, distinct=distinct)
            return
        if below is None:
            below = Layout(shape, start=(0,) * len(shape))
        dims = dict(below.dims)
        if any(self.axis in names for names in dims.values()) or self.axis in below.distinct:
            raise ObstacleError(
                f"{self.name} is another part on each rank of the process group, over which zero "
                "shares states of equal parts",
                False,
            )
        dims[0] = (*dims.get(0, ()), self.axis)
        start = below.start
        if start is not None:
            start = (start[0] + self.rows[0], *start[1:])
        placed = tuple(sorted(dims.items()))
        self.layout = Layout(below.shape, placed, distinct=below.distinct, start=start)

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This rank's part; of a contiguous tensor, and of rows, a view."""
        if self.by_rows:
            return tensor[slice(*self.rows)]
        return tensor.reshape(-1)[self.begin : self.end]

    def is_cut(self, name: str) -> bool:
        """Whether a rank has a range of the state, as of the parameter's elements."""
        whole = self.whole.get(name)
        if whole is None or self.by_rows:
            return False
        return whole.per > 1 or whole.has_dims_of(self.inner.param)

    def range_of(self, name: str, begin: int, end: int, state=None) -> tuple[int, int]:
        """Of elements [begin, end) of the parameter, which begin and end where blocks do, those of
        a state that is cut, or of what is given for it."""
        whole = self.whole[name].of(state)
        if whole.per == 1:
            return begin, end
        row = math.prod(self.inner.local.shape[len(whole.shape) - 1 :])
        return count_blocks(begin, row, whole.per), count_blocks(end, row, whole.per)

    def _own_shape(self, name: str, state=None) -> tuple[int, ...]:
        """Of this rank's part of a state that is cut."""
        begin, end = self.range_of(name, self.begin, self.end, state)
        return (end - begin,)

    def _first(self) -> tuple[int, ...] | None:
        """Where the rows begin in the whole tensor."""
        first = self.inner.first if self.inner.is_sharded else (0,) * self.inner.local.dim()
        return None if first is None else (first[0] + self.rows[0], *first[1:])

    @property
    def box(self) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        return self._first() if self.by_rows else None, tuple(self.own.shape)

    # --- States ---------------------------------------------------------------

    def state_as_seen(self, name: str, state):
        """Of a range of elements the shape makes no difference."""
        return state

    state_as_own = state_as_seen

    def hide(self, name: str, state):
        """A whole state, as torch.optim's and ``full_state_dict`` have it, is cut."""
        whole = self.whole.get(name)
        if whole is None or not isinstance(state, torch.Tensor):
            return state
        if is_dtensor(state):  # as a constructor makes them
            state = self.inner.hide(name, state)
        whole = whole.of(state)
        if self.by_rows:
            return self._hide_rows(name, whole, state)
        own = self._own_shape(name, state) if self.is_cut(name) else None
        if own is None or state.shape == own:
            return state
        if tuple(state.shape) == whole.shape:
            begin, end = self.range_of(name, self.begin, self.end, state)
            return state.reshape(-1)[begin:end].clone()
        raise self._misshapen(name, state, own)

    def shares_blocks(self, scales: WholeState) -> bool:
        """Of rows that others than zero's ranks have cut, which these answer alike."""
        return self.by_rows and self.inner.shares_blocks(scales)

    def _hide_rows(self, name: str, whole: WholeState, state: torch.Tensor) -> torch.Tensor:
        own = state_sizes(whole, self._first(), self.own.shape)
        if tuple(state.shape) == own:
            return state
        if tuple(state.shape) == state_sizes(whole, self.inner.first, self.inner.local.shape):
            dim = whole.of_param.index(0)
            return state.narrow(dim, self.rows[0], own[dim]).clone()
        if tuple(state.shape) != whole.shape:
            raise self._misshapen(name, state, own)
        first = offsets_of(whole, self._first())
        return state[tuple(slice(f, f + s) for f, s in zip(first, own, strict=True))].clone()

    def _misshapen(self, name: str, state: torch.Tensor, own: tuple) -> errors.TensorError:
        return errors.TensorError(
            f"state '{name}' of {self.name} has shape {tuple(state.shape)}, expected "
            f"{self.whole[name].of(state).shape}, or {own} for this rank's part",
            "STEPC_SHAPE_MISMATCH",
        )

    def is_bare(self, name: str, state: torch.Tensor) -> bool:
        part = self.is_cut(name) and state.shape == self._own_shape(name, state)
        return part and tuple(state.shape) != self.whole[name].of(state).shape

    def saved(self, name: str, state):
        """The state as ``state_dict`` has it: a part that knows of what it is one."""
        if not isinstance(state, torch.Tensor) or name == "step":
            return state
        if self.by_rows and self.layout is None:
            return unresolved(
                state, self.inner.states_of(tuple(self.own.shape)).get(name), self.place
            )
        whole = self.whole.get(name)
        if whole is None:
            return state
        whole = whole.of(state)
        if self.by_rows:
            sizes, shape = self.own.shape, self.inner.whole_shape
            return box_part(state, whole, self._first(), sizes, shape, self.place)
        if not self.is_cut(name) or state.shape != self._own_shape(name, state):
            return state
        boxes = boxes_of_range(whole.shape, *self.range_of(name, self.begin, self.end, state))
        return StatePart.of(state, whole.shape, self.place, boxes)

    def full(self, name: str, state, mesh):
        """The whole of a state that is cut by rows: all ranks together. Of ranges
        :class:`~stepc.torch.ranks.zero.shares.Shares` makes the whole."""
        whole = self.whole.get(name)
        if whole is None or not self.by_rows:
            return state
        axes = [axis for _, names in self.layout.dims for axis in names]
        return assemble(state, whole.shape, offsets_of(whole, self._first()), mesh.group_of(axes))


class SharedPart(ZeroPart):
    """Of a parameter that all ranks of the group have, which ``zero`` is to cut. ``local`` is all
    of it, dense and row-major, as the plan takes it: the parameter, or a copy of one that lies
    otherwise."""

    def __init__(self, inner, how: ZeroSettings, begin: int, end: int):
        self.inner, self.param, self.name = inner, inner.param, inner.name
        self.begin, self.end, self._how = begin, end, how
        self.frozen_at_first = how.frozen.was(inner.param)
        self.by_rows = has_rows(inner)
        tensor = self.inner.local
        self._memory = tensor.data_ptr()
        self.is_copy = not tensor.is_contiguous()
        self._version = tensor._version
        self.local = tensor
        with torch.no_grad():
            if self.is_copy:
                self.local = tensor.detach().contiguous().requires_grad_(tensor.requires_grad)
            self.own = self.cut(self.local).detach()

    def resolve(self, axes: dict, mesh) -> None:
        super().resolve(axes, mesh)
        # Where the part begins says the runtime; the caller's tensor, where its own does.
        self.bound = replace(self.layout, begin=-1)
        if self.by_rows:
            below = self.inner.layout
            start = (0,) * self.local.dim() if below is None else below.start
            self.bound = replace(self.layout, start=start)
        self.entry = self._how.entry(self.local.dtype, self.axis)

    def is_current(self) -> bool:
        return self.inner.is_current() and self.inner.local.data_ptr() == self._memory

    def refresh(self) -> None:
        """Takes the gradient, and the parameter where that lies otherwise."""
        self.inner.refresh()
        grad = self.inner.local.grad
        if self.is_copy:
            self._follow_parameter()
            set_grad(self.local, None if grad is None else grad.detach().contiguous())
        elif grad is not None and not grad.is_contiguous():
            self.inner.local.grad = grad.contiguous()

    def forget_gradient(self) -> None:
        self.inner.forget_gradient()
        super().forget_gradient()

    def free_gradient(self) -> None:
        self.param.grad = self.inner.local.grad = self.local.grad = None
        if self.blocks is not None:
            self.blocks.forget_gradient()

    def _follow_parameter(self) -> None:
        """Takes over what was written to the parameter. A write to the copy says, by its
        version, that somebody has."""
        own = self.inner.local.detach().contiguous()
        if own.device.type == "cpu":
            if not torch.equal(own.view(torch.uint8), self.local.detach().view(torch.uint8)):
                with torch.no_grad():
                    self.local.copy_(own)
            return
        # To compare them would be to wait for the device.
        self.local.data.copy_(own)
        if self.inner.local._version != self._version:
            torch._C._increment_version([self.local])

    def give_back(self) -> None:
        """What a step has written to the copy."""
        if self.is_copy:
            with torch.no_grad():
                self.inner.local.copy_(self.local)
            self._version = self.inner.local._version


def has_rows(inner) -> bool:
    """Whether a part is one of a larger tensor, whose elements are not a range of it."""
    if inner.seen is not None and inner.seen.lies_apart(tuple(inner.local.shape)):
        return True  # an entry has row-major tensors: an owner steps it
    return inner.local.dim() > 0 and inner.is_sharded


def row_size(tensor: torch.Tensor) -> int:
    """The elements of one index of dim 0."""
    return math.prod(tensor.shape[1:])
