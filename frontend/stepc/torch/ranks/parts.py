# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this rank has of each parameter of an optimizer.

A part is made without a word to other ranks, so that states can be saved and checked;
``resolve`` asks them for what only they know, when a step is prepared. A part has

- ``param``, the user's, and ``local``, the ordinary tensor that the plan steps
- ``is_sharded``: whether it is a part of a larger tensor; ``cut_over``: the process groups
  whose ranks have other parts of it, or other tensors
- ``sums_at_step``: whether its gradient is to be summed by the step, not as it comes;
  ``sum_key`` orders sums that are not of all ranks
- ``place``, in words which part it is; None for all of it; ``lies``, how it is cut, and
  ``gradient``, how that comes, for :meth:`~stepc.torch.Optimizer.describe_layouts`;
  ``whole_shape``, None where only other ranks know
- ``describe``: what ranks must have alike, along the axes that ``alike`` names; those of
  ``speaks`` they need before the plan is made
- once resolved, ``layout``, as the plan is told, None for a tensor that is whole; and
  ``whole``, the states of the whole parameter by name
- ``refresh``: takes the gradient of a step; ``forget_gradient``: lets go of it behind one
- ``relocate``: after the parameter has been pointed elsewhere
- ``remember``: what other ranks have said of the part that was there before
- ``show`` and ``hide``: a state of the plan as the user has it, and back; None for one that
  another rank alone has
- ``planned``: the tensors that the plan steps: ``local``, or its ``blocks`` (:mod:`.blocks`)
- ``seen``: what the rule sees in place of the parameter's shape, where a group has a ``view``:
  of all of a tensor ``local`` has that shape, ``state_as_seen`` and ``state_as_own`` bring
  states into it and back; of a part the owner (:mod:`.owners`) sees the whole so
- ``saved``: the user's state as ``state_dict`` has it, or None; ``is_bare``: whether a loaded one
  is a part that does not say which; ``full``: the whole of it, made by all ranks together
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable

import torch

from ..._describe import is_scale
from ..binding.groups import rules_of
from ..binding.precision import Kept
from ..binding.rules import Coded, Rules, WholeState, whole_states
from ..tensors.cutting import Cutting
from ..tensors.dlpack import set_grad
from ..tensors.members import ObstacleError, label_of, parameter_name
from ..tensors.patterns import View, has_views, view_of
from .base_part import Part, Seen, Shape, StatesOf
from .beside import beside
from .blocks import BlocksOf
from .describe import shared_over
from .dtensor import DTensorPart, is_dtensor
from .layouts import Layout, PlainPart, find
from .sharing import Sharing
from .zero.part import ZeroPart


def is_distributed(optimizer) -> bool:
    """Whether a parameter is, or is said to be, spread over ranks."""
    return (
        optimizer._zero is not None
        or optimizer._shards is not None
        or bool(optimizer._layouts)
        or any(is_dtensor(p) for group in optimizer.param_groups for p in group["params"])
    )


def has_parts(optimizer) -> bool:
    """Whether the plan has other tensors than the optimizer's parameters."""
    return is_distributed(optimizer) or has_views(optimizer)


class WholePart(Part):
    """A parameter that every rank has as it is."""

    def __init__(
        self, param: torch.Tensor, name: str, states_of: StatesOf, seen: Seen | None = None
    ):
        self.param, self.name, self.states_of, self.seen = param, name, states_of, seen
        self.relocate()

    def relocate(self) -> None:
        self.local, self._shape = self.param, self.param.shape
        if self.seen is not None:
            own = self.memory_as_seen(self.param.detach())
            self.local = own.requires_grad_(self.param.requires_grad)

    def is_current(self) -> bool:
        if self.seen is None:
            return True
        same = self.param.data_ptr() == self.local.data_ptr() and self.param.is_contiguous()
        return same and self.param.shape == self._shape

    def refresh(self) -> None:
        if self.seen is None:
            return
        grad = self.param.grad
        if grad is not None and grad.layout is not torch.strided:
            raise ObstacleError(
                f"{self.name} has a gradient that has layout {grad.layout}, of which "
                f"{self.seen.view} cannot be",
                False,
            )
        if grad is not None and grad.requires_grad:  # of a graph that is kept
            grad = grad.detach()
        set_grad(self.local, None if grad is None else self.as_seen(grad))

    def describe(self, axes: dict) -> str:
        return f"{self.param.dtype} of shape {tuple(self.param.shape)}"


class Parts:
    """Those of all parameters, by group; ``zero`` says which parts ranks step of what they have
    alike, ``shared_over`` is the process group over which their states are, if one is."""

    def __init__(self, optimizer):
        if optimizer._zero is not None and optimizer._zero.flat is not None:
            optimizer._zero.flat.restore()
        rules = _rules_of(optimizer)
        states_of = _states_of(optimizer, rules)
        self.sharing = Sharing(optimizer)
        inner = [
            [
                _part(optimizer, group, number, place, states_of(number), self.sharing, rules)
                for place in range(len(group["params"]))
            ]
            for number, group in enumerate(optimizer.param_groups)
        ]
        every = list(itertools.chain.from_iterable(inner))
        # A rank that has none takes part in what is of all.
        self.meshes = meshes_of(every) or self.sharing.meshes
        self.zero = _shares_of(optimizer, batches(optimizer, inner), _cost_of(rules, inner))
        self.shared_over = shared_over(optimizer)
        self.groups = inner
        if self.zero is not None:
            self.groups = [[self.zero.part_of(part.param) for part in parts] for parts in inner]

    def __iter__(self):
        return itertools.chain.from_iterable(self.groups)

    def remember(self, parts: list, sharing: Sharing, zero) -> None:
        """Takes over what other ranks have said for the parts that were bound before, where
        these differ in memory alone: a rank may bind anew by itself."""
        before = {id(part.param): part for part in parts}
        for part in self:
            if (own := before.get(id(part.param))) is not None:
                part.remember(own)
        self.sharing.remember(sharing)
        if self.zero is not None and zero is not None:
            self.zero.remember(zero)


def meshes_of(parts: list) -> list:
    """The device meshes on which parts lie, each once."""
    return list(dict.fromkeys(mesh for part in parts for mesh in _meshes_of(part)))


def _meshes_of(part) -> list:
    if isinstance(part, ZeroPart):
        return _meshes_of(part.inner)
    if isinstance(part, PlainPart):
        return [part.how.mesh]
    if not isinstance(part, DTensorPart):
        return []
    return [part.param.device_mesh, *([] if part.how is None else [part.how.mesh])]


def _part(
    optimizer,
    group: dict,
    number: int,
    place: int,
    states_of: StatesOf,
    sharing: Sharing,
    rules: Callable[[], Rules],
):
    param, name = group["params"][place], parameter_name(group, number, place)
    if optimizer._kept.keeps_codes:
        label = label_of(group, number, place)
        states_of = _with_codes(states_of, optimizer._kept, param.dtype, label, rules)
    states_of = _with_master(states_of, optimizer._kept.master_state(param))
    view, seen = view_of(group, number), None
    if view is not None:
        seen = _seen(optimizer, group, name, view, states_of)
        states_of = seen.states
    if optimizer._shards is not None:
        if view is not None:
            raise ObstacleError(
                f"{name} has {view}, which is of whole parameters, and setup_distributed gives "
                "the optimizer ranges of them; use zero=Zero(1, ...) or Zero(2)",
                False,
            )
        return optimizer._shards.part(
            param,
            lambda tensor: WholePart(tensor, name, states_of),
            lambda tensor, how: PlainPart(tensor, name, how, states_of, None),
        )
    if is_dtensor(param):
        how = beside(optimizer._layouts, group, place, name)
        part = DTensorPart(param, name, states_of, optimizer._reduce_dtype, seen, how, sharing)
        part.is_shared = optimizer._zero is not None
        return part
    layout: Layout | None = None
    if optimizer._layouts:
        layout = find(optimizer._layouts, group, place, name)
    if layout is None:
        return WholePart(param, name, states_of, seen)
    return PlainPart(param, name, layout, states_of, optimizer._reduce_dtype, sharing, seen)


def _seen(optimizer, group: dict, name: str, view: View, states_of: StatesOf) -> Seen:
    """What rules see by a group's view; ObstacleError for blocks that cannot be stepped apart."""
    one_by_one = optimizer._steps_one_by_one(group)
    if not view.parts and not (one_by_one and len(view.seen) > 2):
        return Seen(name, view, states_of)
    if optimizer._scalar_states and is_distributed(optimizer):
        names = " and ".join(map(repr, sorted(optimizer._scalar_states)))
        raise ObstacleError(
            f"{name} has {view}, by which it is stepped as several tensors, and its state {names} "
            "is of all of it; ranks step such a parameter as one tensor",
            False,
        )
    if isinstance(view, Cutting) and optimizer._kept.keeps_codes:
        raise ObstacleError(
            f"{name} has {view}, whose blocks have strides, and state_dtype keeps states as codes, "
            "which have none",
            False,
        )
    blocks = BlocksOf(view, one_by_one, states_of, optimizer._scalar_states)
    return Seen(name, view, blocks.states, blocks)


def batches(optimizer, groups: list[list]) -> list[list]:
    """The parts of groups that the optimizer was made with, and of each that was added: apart,
    so that what a rank has of the first does not depend on the others."""
    starts = [0, *optimizer._added_groups, len(groups)]
    found = [groups[first:last] for first, last in itertools.pairwise(starts)]
    return [list(itertools.chain.from_iterable(own)) for own in found]


def _shares_of(optimizer, batches: list[list], cost_of: Callable[[object], float | None]):
    """What ranks step with ``zero``, or None."""
    if optimizer._zero is None:
        return None
    from .zero.shares import Shares

    kept = optimizer._kept

    def has_codes(part) -> bool:
        # Of no other definition rules are asked.
        return kept.keeps_codes and any(map(is_scale, part.whole))

    return Shares(batches, optimizer._zero, cost_of, has_codes)


def _with_master(states_of: StatesOf, master: str | None) -> StatesOf:
    """The same with what the parameter's float32 is kept in, if it is."""
    if master is None:
        return states_of
    return lambda shape: {
        **states_of(shape),
        master: WholeState(tuple(shape), tuple(range(len(shape)))),
    }


def _with_codes(
    states_of: Callable[..., dict[str, WholeState]],
    kept: Kept,
    dtype: torch.dtype,
    label: str,
    rules: Callable[[], Rules],
) -> StatesOf:
    """The same with the codes that the parameter keeps, and not those of others."""

    def states(shape: Shape) -> dict[str, WholeState]:
        coded = kept.coded(dtype, [name for name, _ in rules().coded], label)
        return states_of(shape, tuple(coded.items()))

    return states


def _rules_of(optimizer) -> Callable[[], Rules]:
    """Which rules parameters get; found when it is first asked: a constructor may not be done."""
    made: list[Rules] = []
    known = weakref.ref(optimizer)  # which has the parts that ask

    def rules() -> Rules:
        if not made:
            made.append(rules_of(known()))
        return made[0]

    return rules


def _states_of(optimizer, rules: Callable[[], Rules]) -> Callable[[int], StatesOf]:
    """For a group what gives the states beside a parameter of a shape."""
    dropped, scalar = optimizer._dropped_dims, optimizer._scalar_states

    def states(number: int, shape: Shape, coded: Coded | None = None) -> dict[str, WholeState]:
        own = whole_states(rules().find(number, shape, coded=coded), dropped)
        # Some are of a whole tensor on every rank, and not of its elements.
        return {name: s for name, s in own.items() if name not in scalar}

    return lambda number: functools.partial(states, number)


def _cost_of(rules: Callable[[], Rules], groups: list[list]) -> Callable[[object], float | None]:
    """What a step of a part costs that is all of a parameter, where its rule is one of whole
    matrices, or it is stepped as several tensors; else None."""
    numbers = {id(part): number for number, parts in enumerate(groups) for part in parts}

    def cost(part) -> float | None:
        if part.seen is not None and part.seen.blocks is not None:
            shapes = part.seen.blocks.shapes(tuple(part.param.shape))
            return sum(rules().find(numbers[id(part)], shape).cost for shape in shapes)
        found = rules().find(numbers[id(part)], tuple(part.local.shape))
        return found.cost if found.rule is not None and found.rule.needs_matrices else None

    return cost
