# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that a plan steps as several tensors, its blocks: the parts of a sum in a ``view``,
the matrices of a view of more dims where rules take one, and what a long dim is cut into.

To the plan each block is a tensor of its own, with states, a gradient and a count. In the memory of
the parameter they lie one behind the other, and so do they of each state: the user has one tensor
of it. But of what is cut along its columns (:mod:`~stepc.torch.tensors.cutting`) blocks have the
strides of the parameter; so have they of states of its shape. A state is of the parameter's shape
where the state has all dims of a block. Others have the leading dims of the view before their own;
of parts of a sum, as many as there are parts; and where parts have states of several sizes they are
one line of elements.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterable

import torch

from ... import errors
from ..._describe import SCALE
from ..._mesh import Layout
from ..binding.codes import encode
from ..binding.rules import Slot, WholeState
from ..binding.state_map import StateMap
from ..tensors.cutting import Cutting
from ..tensors.dlpack import set_grad
from ..tensors.patterns import View

Shape = tuple[int, ...]
StatesOf = Callable[[Shape], dict[str, WholeState]]
COUNT = "step"


class BlocksOf:
    """What blocks a view makes of parameters, and what states these have together.

    ``states_of``: those of one block. ``one_by_one``: whether rules take one matrix. ``scalars``:
    states of one element, of which all blocks have the same and the user has the first's.
    """

    def __init__(
        self,
        view: View | Cutting,
        one_by_one: bool,
        states_of: StatesOf,
        scalars: frozenset[str] = frozenset(),
    ):
        self.scalars = scalars
        self._view, self._one_by_one, self._states_of = view, one_by_one, states_of

    def shapes(self, shape: Shape) -> list[Shape]:
        """Those of the blocks of a whole parameter, in order."""
        return self._cut(self._view.shapes(shape, part=True))

    def _cut(self, seen: list[Shape]) -> list[Shape]:
        if not self._one_by_one:
            return seen
        return [own[-2:] for own in seen for _ in range(math.prod(own[:-2]))]

    def cut(self, tensor: torch.Tensor, shape: Shape, numbers: range) -> list[torch.Tensor]:
        """Those of these numbers of a tensor that has their elements, of a parameter of the shape:
        views, of a contiguous one."""
        if isinstance(self._view, Cutting):
            return self._view.cut(tensor, shape) if numbers else []
        shapes = self.shapes(shape)
        return pieces(tensor, [shapes[number] for number in numbers])

    def lies_apart(self, shape: Shape) -> bool:
        """Whether blocks of a parameter have strides of their own."""
        return isinstance(self._view, Cutting) and self._view.lies_apart(shape)

    def of_block(self, shape: Shape) -> dict[str, WholeState]:
        return self._states_of(shape)

    def states(self, seen: Shape) -> dict[str, WholeState]:
        """Those of all blocks, by the shape that is seen of the parameter."""
        if self._view.parts:
            return self._of_parts(seen)
        leading = seen[:-2]
        made = {}
        for name, own in self._states_of(seen[-2:]).items():
            made[name] = own.each(
                lambda one: one._replace(
                    shape=(*leading, *one.shape),
                    of_param=(
                        *range(len(leading)),
                        *(None if of is None else of + len(leading) for of in one.of_param),
                    ),
                )
            )
        return made

    def _of_parts(self, seen: Shape) -> dict[str, WholeState]:
        shapes = self.shapes(seen)
        found = [self._states_of(shape) for shape in shapes]
        names = dict.fromkeys(itertools.chain.from_iterable(found))
        if isinstance(self._view, Cutting) and len(shapes) == 1:
            return {name: _alone(seen, shapes[0], own) for name, own in found[0].items()}
        return {name: _together(seen, shapes, [own.get(name) for own in found]) for name in names}


def _alone(seen: Shape, shape: Shape, state: WholeState) -> WholeState:
    """A state of what a limit does not cut: as it is, but for the parameter's shape."""
    if state.is_full(len(shape)):
        return state._replace(shape=seen, of_param=tuple(range(len(seen))))
    return state._replace(of_param=(None,) * len(state.shape))


def _together(seen: Shape, shapes: list[Shape], states: list[WholeState | None]) -> WholeState:
    """A state of several blocks, of which some may not have it."""
    full = all(
        own is not None and own.is_full(len(shape))
        for own, shape in zip(states, shapes, strict=True)
    )
    if full:
        return states[0]._replace(shape=seen, of_param=tuple(range(len(seen))))
    first = next(own for own in states if own is not None)
    there = [own.shape for own in states if own is not None]
    made = (len(there), *there[0]) if len(set(there)) == 1 else (sum(map(math.prod, there)),)
    return WholeState(made, (None,) * len(made), format=first.format)


class Blocks:
    """Those of one parameter: ``tensors`` that the plan steps, and their ``shapes``.

    ``here`` are those in the memory of ``local``: all, or of experts that ranks share as many as
    it has, behind ``before`` others, or none. In place of what is elsewhere there are tensors of
    nothing: a block has the same number on every rank, and its random numbers follow from that.
    """

    _spread: torch.Tensor | None = None  # the gradient of which each has its part

    def __init__(self, of: BlocksOf, local: torch.Tensor, shape: Shape, *, before: int = 0):
        self._of, self.local, self.shapes, self._shape = of, local, of.shapes(shape), shape
        with torch.no_grad():
            line, nothing = local.detach().reshape(-1), local.detach().new_empty(0)
            sizes = itertools.accumulate(map(math.prod, self.shapes[before:]))
            ends = [end for end, size in enumerate(sizes, before + 1) if size == line.numel()]
            self._own = range(before, ends[-1] if line.numel() else before)
            self.here = of.cut(local.detach(), shape, self._own)
        for tensor in self.here:
            tensor.requires_grad_(local.requires_grad)
        behind = len(self.shapes) - self._own.stop
        self.tensors = [*(nothing.clone() for _ in range(before)), *self.here,
                        *(nothing.clone() for _ in range(behind))]  # fmt: skip

    @property
    def _shapes_here(self) -> list[Shape]:
        return [self.shapes[number] for number in self._own]

    def layout(self, layout: Layout | None, number: int) -> Layout | None:
        """What the plan is told of a block, by what it would be of the whole."""
        if layout is None:
            return None
        shape, axes = self.shapes[number], [axis for _, names in layout.dims for axis in names]
        start = None if layout.start is None or axes else (0,) * len(shape)
        distinct = (*layout.distinct, *axes)
        return dataclasses.replace(layout, shape=shape, dims=(), distinct=distinct, start=start)

    # --- Gradients --------------------------------------------------------------

    def spread_gradient(self) -> None:
        """Gives each its part of the gradient that ``local`` has, if it has not got it."""
        grad = self.local.grad
        if grad is not None and grad is self._spread:
            return
        self._spread = grad if grad is not None and grad.is_contiguous() else None
        own = [None] * len(self.here)
        if grad is not None:
            own = self._of.cut(grad.detach(), self._shape, self._own)
        for tensor, part in zip(self.here, own, strict=True):
            set_grad(tensor, part)

    def forget_gradient(self) -> None:
        self._spread = None
        for tensor in self.here:
            tensor.grad = None

    # --- States -----------------------------------------------------------------

    def put(self, state: StateMap, items: dict, seen: Shape, words: str) -> None:
        """Puts states of all, as they are seen, beside each of them in the plan's. TensorError, of
        what ``words`` call, for one of another shape."""
        if not self.here:
            return
        parts: list[dict] = [{} for _ in self.here]
        wholes = self._of.states(seen)
        for name, value in _recoded(items, wholes, words).items():
            if name in wholes and isinstance(value, torch.Tensor):
                if tuple(value.shape) != wholes[name].shape:
                    raise errors.TensorError(
                        f"state '{name}' of {words} has shape {tuple(value.shape)}, expected "
                        f"{wholes[name].shape}",
                        "STEPC_SHAPE_MISMATCH",
                    )
                self._split(name, value, parts, wholes[name])
                continue
            parts[0][name] = value  # what nobody knows is refused for the first
            if name in (COUNT, *self._of.scalars) and isinstance(value, torch.Tensor):
                for own in parts[1:]:
                    own[name] = value.clone()
        for tensor, own in zip(self.here, parts, strict=True):
            state.put_quietly(tensor, own)

    def _is_full(self, whole: WholeState) -> bool:
        """Whether a state of what is cut along columns lies as the parameter does."""
        return self.lies_apart and whole.is_full(len(self._shape))

    @property
    def lies_apart(self) -> bool:
        """Whether they have strides of their own."""
        return self._of.lies_apart(self._shape)

    def pieces_of(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """The blocks of a tensor that has the parameter's elements; none of one with others, as a
        state that not all blocks have."""
        if whole.numel() != math.prod(self._shape):
            return []
        return self._of.cut(whole, self._shape, self._own)

    def _split(self, name: str, value: torch.Tensor, parts: list[dict], whole: WholeState) -> None:
        if self._is_full(whole):
            for own, piece in zip(parts, self.pieces_of(value.detach()), strict=True):
                own[name] = piece
            return
        of_blocks = [self._of.of_block(shape) for shape in self._shapes_here]
        having = [number for number, own in enumerate(of_blocks) if name in own]
        shapes = [of_blocks[number][name].shape for number in having]
        for number, piece in zip(having, pieces(value.detach(), shapes), strict=True):
            parts[number][name] = piece

    def joined(self, states_of: Callable[[torch.Tensor], dict], seen: Shape) -> dict:
        """The plan's states of all, as they are seen, each in its one memory."""
        wholes = self._of.states(seen)
        found = [states_of(tensor) for tensor in self.here]
        made = {}
        for name in dict.fromkeys(itertools.chain.from_iterable(found)):
            own = [items[name] for items in found if name in items]
            if name not in wholes:
                made[name] = own[0]
            elif self._is_full(wholes[name]):
                made[name] = _join(own, wholes[name].shape, self.pieces_of)
            else:
                made[name] = _join(own, wholes[name].shape)
        return made

    def slots(self, slots_of: Callable[[torch.Tensor, Layout], list[Slot]], layout: Layout):
        """The states that the plan has of all, on every rank, as :class:`Slot`."""
        wholes, found = self._of.states(layout.shape), {}
        for number, tensor in enumerate(self.tensors):
            for slot in slots_of(tensor, self.layout(layout, number)):
                found.setdefault(slot.name, slot._replace(whole=wholes[slot.name]))
        return list(found.values())

    def align_counts(self, state: StateMap) -> None:
        """Gives all the count of the first, which the user has and may have written."""
        self._align(state, (COUNT,))

    def align_scalars(self, state: StateMap) -> None:
        """The same of states of one element, which the plan does not look at."""
        self._align(state, self._of.scalars)

    def _align(self, state: StateMap, names: Iterable[str]) -> None:
        for name in names:
            own = [state.get(tensor, {}).get(name) for tensor in self.here]
            for value in own[1:]:
                if isinstance(value, torch.Tensor) and isinstance(own[0], torch.Tensor):
                    value.copy_(own[0])


def _recoded(items: dict, wholes: dict[str, WholeState], words: str) -> dict:
    """Floats as codes, where these are kept. TensorError where parts have states of several sizes,
    which lie in a line."""
    made = dict(items)
    for name, value in items.items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        if name not in wholes or name + SCALE not in wholes:
            continue
        scales = wholes[name + SCALE].shape
        rows = math.prod(scales[:-1])
        if len(value.shape) < 2 or rows != math.prod(value.shape[:-1]):
            raise errors.TensorError(
                f"state '{name}' of {words} is of the floats of several parts, which cannot become "
                "codes; load it into an optimizer that keeps floats",
                "STEPC_INVALID_ARGUMENT",
            )
        # Rows are those of a matrix, however short.
        codes, of = encode(value.reshape(rows, -1), wholes[name].format, (rows, scales[-1]))
        made[name], made[name + SCALE] = codes.view(wholes[name].shape), of.view(scales)
    return made


def pieces(tensor: torch.Tensor, shapes: list[Shape]) -> list[torch.Tensor]:
    """Tensors of these shapes that lie one behind the other: views, of a contiguous one."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = tensor.reshape(-1).split(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _join(
    parts: list[torch.Tensor],
    shape: Shape,
    cut: Callable[[torch.Tensor], list[torch.Tensor]] | None = None,
) -> torch.Tensor:
    """The tensor of which these are pieces: one behind the other, or as ``cut`` makes them."""
    at = parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage()._cdata == parts[0].untyped_storage()._cdata
        lies = cut is not None or part.storage_offset() == at
        if part.numel() and not (same and lies):
            raise errors.StepcError("the states of a parameter's blocks do not lie together")
        at += part.numel()
    if at - parts[0].storage_offset() != math.prod(shape):
        raise errors.StepcError("the states of a parameter's blocks are not all there")
    inner = (max(extent, 1) for extent in shape[:0:-1])
    strides = list(itertools.accumulate(inner, operator.mul, initial=1))[::-1] if shape else ()
    whole = parts[0].as_strided(shape, strides, parts[0].storage_offset())
    if cut is not None:
        pairs = zip(parts, cut(whole), strict=True)
        if any((a.data_ptr(), a.stride()) != (b.data_ptr(), b.stride()) for a, b in pairs):
            raise errors.StepcError("the states of a parameter's blocks do not lie as it does")
    return whole


def planned_here(parts: Iterable) -> list[torch.Tensor]:
    """The tensors of parts that the plan steps here."""
    return [tensor for part in parts for tensor in part.planned_here]


def spread_gradients(parts: Iterable) -> None:
    """Gives blocks their parts of what has come for each."""
    for part in parts:
        if part.blocks is not None:
            part.blocks.spread_gradient()


def align_scalars(parts: Iterable, state: StateMap) -> None:
    """Gives the blocks of each what the user may have written to the one that is shown."""
    with torch.no_grad():
        for part in parts:
            if part.blocks is not None:
                part.blocks.align_scalars(state)


def put_states(part, state: StateMap, items: dict) -> None:
    """Puts states, as they are seen, beside the tensors that the plan steps of a part."""
    if part.blocks is None:
        state.put_quietly(part.local, items)
    else:
        part.blocks.put(state, items, part.seen_here, part.name)


def states_of(part, state: StateMap) -> dict:
    """The same, as the plan has them."""
    if part.blocks is None:
        return state[part.local]
    return part.blocks.joined(lambda tensor: state[tensor], part.seen_here)
