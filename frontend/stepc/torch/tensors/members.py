# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters on their way into a plan: which there are, what they need, and how
the runtime is told."""

from __future__ import annotations

import bisect
import ctypes
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch

from ... import _structures
from ..._codes import FORMATS
from ..._describe import SCALE, Tensor, is_scale
from ..._mesh import Entry, Layout, Mesh
from . import dlpack as _tensors


class ObstacleError(Exception):
    """A parameter that compiled code cannot step. ``eager``: torch may be able; ``status``: of
    the error where it is not asked; ``param``: where it is no matter of several."""

    def __init__(
        self,
        words: str,
        eager: bool,
        status: str = "STEPC_INVALID_ARGUMENT",
        param: torch.Tensor | None = None,
    ):
        super().__init__(words)
        self.eager, self.status, self.param = eager, status, param


# The key of a group with other tensors than the user's: what messages call each.
WORDS = " words"


@dataclass
class Member:
    """A parameter on its way into the plan, with its gradient or before it."""

    index: int
    group: int
    name: str  # "parameter 'w'", in messages of our own
    label: str  # "w", for those of the runtime, or the same where it has no name
    param: torch.Tensor
    grad: torch.Tensor | None
    names: list[str] = field(default_factory=list)  # of the states
    states: list[torch.Tensor] = field(default_factory=list)  # as the plan has them
    shown: list[torch.Tensor] = field(default_factory=list)  # as the user has them
    items: dict = field(default_factory=dict)  # what its state gets
    count: int = 0
    fresh: bool = False  # whether it comes to its first step
    created: list[bool] = field(default_factory=list)  # which of the states it had not
    mirror: int = 0
    step: torch.Tensor | None = None  # where the plan mirrors its count
    layout: Layout | None = None  # how it lies on a mesh; None: it is whole
    entry: Entry | None = None  # how it comes to a step, where that is not as the layout says
    cut: torch.Tensor | None = None  # what of it this rank then steps
    elements: tuple[int, int] = (0, 0)  # which these are, [begin, end) in row-major order
    elsewhere: bool = False  # whether another rank steps all of it, and has the states
    gets: Tensor | None = None  # which rule, variant and states
    sends_states: bool = False  # whether other ranks are sent parts of them
    joint: int | None = None  # which members' states of a name lie one behind the other
    # Of these what cuts a line of all elements, where blocks have strides of their own.
    pieces_of: Callable[[torch.Tensor], list[torch.Tensor]] | None = None
    plan_group: int | None = None  # which of the plan, where that is not the optimizer's

    @property
    def own(self) -> torch.Tensor:
        """What this rank steps."""
        return self.param if self.cut is None else self.cut

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Of the tensor of which ``param`` may be a rank's part."""
        return tuple(self.param.shape) if self.layout is None else self.layout.shape

    @property
    def request(self) -> str:
        """What a variant is to be asked for the layout; "" where it is whole."""
        return request_of(self.layout, self.entry)

    @property
    def grad_dtype(self) -> torch.dtype:
        """Of its gradient; autograd gives a parameter one of its own dtype."""
        return (self.param if self.grad is None else self.grad).dtype

    @property
    def landed_dtype(self) -> torch.dtype:
        """In which a kernel reads the gradient."""
        if self.entry is None or not self.entry.partial:
            return self.grad_dtype
        return torch.promote_types(self.grad_dtype, torch.float32)


def request_of(layout: Layout | None, entry: Entry | None) -> str:
    """What a variant is to be asked for how a parameter lies; "" where it is whole."""
    words = [own.request() for own in (layout, entry) if own is not None]
    return ",".join(filter(None, words))


def parameter_name(group: dict, number: int, position: int) -> str:
    """As messages call it: by its name in the group, or by its place."""
    if WORDS in group:
        return group[WORDS][position]
    names = group.get("param_names")
    if names:
        return f"parameter '{names[position]}'"
    return f"parameter {position} of group {number}"


def label_of(group: dict, number: int, position: int) -> str:
    """As the runtime's messages call it: by its own name, or as ours do."""
    names = group.get("param_names")
    return names[position] if names else parameter_name(group, number, position)


def named_in(group: dict) -> list:
    """The parameters of a group that torch has taken over, with their names where they have any."""
    names, params = group.get("param_names"), group["params"]
    # The list may be another, as ColossalAI gives a group in each step.
    known = names and len(names) == len(params)
    return list(zip(names, params, strict=True)) if known else params


def named_parameters(groups: list[dict]) -> list[tuple[str, torch.Tensor]]:
    """All of them, with what messages call them."""
    return [
        (parameter_name(group, number, position), param)
        for number, group in enumerate(groups)
        for position, param in enumerate(group["params"])
    ]


def members_of(groups: list[dict]) -> Iterator[Member]:
    """The parameters that have a gradient; ObstacleError for one that cannot go."""
    return members_at(groups, range(sum(len(group["params"]) for group in groups)))


def members_at(groups: list[dict], indices: Iterable[int], known=()) -> Iterator[Member]:
    """The same of the parameters at ``indices``, in rising order. ``known``: what
    contains the ``id()`` of parameters that have gone already."""
    return _members(groups, indices, known, lambda param: param.grad is not None)


def trainable_members(optimizer) -> Iterator[Member]:
    """All that may get a gradient, whether or not they have one now."""
    groups = optimizer.param_groups
    every = range(sum(len(group["params"]) for group in groups))
    return _members(groups, every, (), optimizer._is_trained)


def _members(groups, indices, known, wanted) -> Iterator[Member]:
    seen = set()
    ends = list(itertools.accumulate(len(group["params"]) for group in groups))
    for index in indices:
        number = bisect.bisect_right(ends, index)
        group = groups[number]
        position = index - ends[number] + len(group["params"])
        param = group["params"][position]
        if not wanted(param):
            continue
        grad = param.grad
        found, alone = _tensors.obstacle(param, grad), param
        if id(param) in seen or id(param) in known:
            found, alone = ("is in its group twice", True), None
        if found:
            words, eager = f"{parameter_name(group, number, position)} {found[0]}", found[1]
            raise ObstacleError(words, eager, param=alone)
        seen.add(id(param))
        name = parameter_name(group, number, position)
        label = label_of(group, number, position)
        yield Member(index, number, name, label, param, grad)


def is_counter(step) -> bool:
    """Whether the plan can write its count there: an element of a vector."""
    return (
        isinstance(step, torch.Tensor)
        and step.dtype is torch.float32
        and step.device.type == "cpu"
        and step.dim() == 0
        and not step.is_inference()
        and step._base is not None
    )


def runtime_bindings(members: list[Member], mesh: Mesh | None = None) -> tuple[ctypes.Array, list]:
    """The array for the runtime, and what must live until it has been read."""
    params = [member.param for member in members]
    grads = [member.param if member.grad is None else member.grad for member in members]
    states = list(itertools.chain.from_iterable(member.states for member in members))
    described = _tensors.describe(params + grads + states)
    size = ctypes.sizeof(_structures.DLTensor)
    base = ctypes.addressof(described)
    first = base + 2 * len(members) * size
    pointers = (ctypes.c_void_p * max(len(states), 1))(
        *range(first, first + len(states) * size, size)
    )
    created = list(itertools.chain.from_iterable(member.created for member in members))
    created = (ctypes.c_uint8 * max(len(created), 1))(*created)
    array, layouts = (_structures.Binding * len(members))(), []
    at, flags = ctypes.addressof(pointers), ctypes.addressof(created)
    for i, (member, binding) in enumerate(zip(members, array, strict=True)):
        binding.name = member.label.encode()
        binding.group = member.group if member.plan_group is None else member.plan_group
        binding.param = base + i * size
        binding.grad = base + (len(members) + i) * size
        if member.grad is None:
            binding.grad = None
            binding.gradDtype = described[i].dtype
        binding.states = None if member.elsewhere else at
        binding.numStates = len(member.states)
        binding.count = member.count
        binding.fresh = member.fresh
        binding.freshStates = flags
        binding.countMirror = member.mirror or None
        binding.number = member.index + 1
        if member.layout is not None:
            layouts.append(member.layout.struct(mesh))
            binding.layout = ctypes.addressof(layouts[-1])
        if member.entry is not None:
            layouts.append(member.entry.struct(mesh))
            binding.entry = ctypes.addressof(layouts[-1])
        if any(is_scale(name) for name in member.names):
            begin = (at - ctypes.addressof(pointers)) // ctypes.sizeof(ctypes.c_void_p)
            own = pointers[begin : begin + len(member.states)]
            layouts.append(_coded(binding, member, own))
        at += ctypes.sizeof(ctypes.c_void_p) * len(member.states)
        flags += len(member.states)
    return array, [described, pointers, created, layouts]


def _coded(binding: _structures.Binding, member: Member, addresses: list[int]) -> list:
    """Says which states are codes, whose scales stand behind them; returns what must live."""
    own = [k for k, name in enumerate(member.names) if not is_scale(name)]
    kinds = [own_state.format for own_state in member.gets.states]
    coded = [f"{member.names[k]}{SCALE}" in member.names for k in own]
    states = (ctypes.c_void_p * len(own))(*[addresses[k] for k in own])
    scales = (ctypes.c_void_p * len(own))(
        *[addresses[k + 1] if is_coded else None for k, is_coded in zip(own, coded, strict=True)]
    )
    formats = (ctypes.c_int32 * len(own))(
        *[FORMATS[kinds[k]].number if one else 0 for k, one in zip(own, coded, strict=True)]
    )
    created = (ctypes.c_uint8 * len(own))(*[member.created[k] for k in own])
    binding.states, binding.numStates = ctypes.addressof(states), len(own)
    binding.formats, binding.scales, binding.freshStates = map(
        ctypes.addressof, (formats, scales, created)
    )
    return [states, scales, formats, created]
