# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule, and which variant of a package, updates a parameter: what the runtime library
says, asked once for tensors that are alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch

from ... import errors
from ..._codes import FORMATS, Codes
from ..._describe import BLOCK, SCALE, Query, Tensor, is_scale
from ..._mesh import Layout
from ...interface import Interface, Options, describe_option, describe_options
from ..tensors import dlpack as _tensors
from ..tensors.members import Member
from . import features as _features
from .codes import code_shape
from .precision import Kept

Coded = tuple[tuple[str, Codes], ...]  # states by name, and how they are kept
Indices = list[Sequence[int]]  # of each dim, those that a part has
OfShape = Callable[[Sequence[int]], Options]  # integer options of a tensor, by its whole shape


class Rules:
    """What tensors of each group get, remembered.

    ``options``: the value of every option, derived ones too, of each group. ``of_shape``: for
    each group what gives those that follow from a tensor's shape, or None. ``coded``: the states
    that are kept as codes beside some parameter.
    """

    def __init__(
        self,
        interface: Interface,
        options: list[Options],
        of_shape: Sequence[OfShape | None] = (),
        coded: Coded = (),
    ):
        self._interface, self._options, self.coded = interface, options, coded
        self._of_shape = of_shape or [None] * len(options)
        self._values = [interface.in_order(of_group) for of_group in options]
        self._found: dict[tuple, Tensor] = {}

    def options_of(self, group: int) -> Options:
        """The value of every option in the group."""
        return self._options[group]

    def _values_of(self, group: int, shape: Sequence[int]) -> tuple[int, ...]:
        """The value of every option for a tensor of this whole shape."""
        of_shape = self._of_shape[group]
        if of_shape is None:
            return self._values[group]
        return self._interface.in_order({**self._options[group], **of_shape(shape)})

    def find(
        self,
        group: int,
        shape: Sequence[int],
        layout: Layout | None = None,
        coded: Coded | None = None,
    ) -> Tensor:
        """Of a whole tensor, of which ranks may share dims as the layout says, with these states
        as codes, or those of some parameter."""
        sharded = layout.sharded if layout else 0
        coded = self.coded if coded is None else coded
        key = (group, tuple(shape), sharded, coded)
        if key not in self._found:
            values = self._values_of(group, key[1])
            self._ask({key: Query(values, key[1], sharded=sharded, coded=coded)})
        return self._found[key]

    def require(self, members: Sequence[Member]) -> None:
        """TensorError where no rule takes one of them."""
        alike = {(member.group, _whole_shape(member)): member for member in members}
        queries = [Query(self._values_of(group, shape), shape) for group, shape in alike]
        rules = self._interface.rules_of(queries)
        for member, rule in zip(alike.values(), rules, strict=True):
            if rule is None:
                raise self.no_rule(member)

    def no_rule(self, member: Member) -> errors.TensorError:
        """What to raise where none takes a member."""
        names = ", ".join(f"'{rule}'" for rule in self._interface.rules)
        options = describe_options(self._options[member.group])
        return errors.TensorError(
            f"no rule of optimizer '{self._interface.name}' takes {member.name} of shape "
            f"{member.whole_shape}; rules: {names}" + (f"; {options}" if options else ""),
            "STEPC_SHAPE_MISMATCH",
        )

    def _ask(self, queries: dict[tuple, Query]) -> None:
        """By one call."""
        if queries:
            answers = self._interface.describe(list(queries.values()))
            self._found.update(zip(queries, answers, strict=True))


def _whole_shape(member: Member) -> tuple[int, ...]:
    """As it is there: thousands of tuples are thousands of objects to collect."""
    return member.param.shape if member.layout is None else member.layout.shape


class Variants(Rules):
    """Those of a package; ``kept`` says which are meant."""

    def __init__(
        self,
        interface: Interface,
        options: list[Options],
        kept: Kept,
        of_shape: Sequence[OfShape | None] = (),
        dropped: Collection[str] = (),
    ):
        super().__init__(interface, options, of_shape)
        self._kept, self._dropped = kept, dropped

    def of(self, members: Sequence[Member]) -> list[Tensor]:
        """What members get, each with the states of its variant, if it has one."""
        found, keys = self._found, [self._key(member) for member in members]
        new = {k: m for k, m in zip(keys, members, strict=True) if k not in found}
        self._ask({key: self._query(key, member) for key, member in new.items()})
        return [found[key] for key in keys]

    def _key(self, member: Member) -> tuple:
        """What it depends on."""
        layout = member.layout
        dtypes = (member.param.dtype, member.landed_dtype, self._coded_beside(member))
        if layout is None:
            return member.group, member.param.shape, None, (0, 0), None, *dtypes
        elements = None
        if layout.flat:
            # Where a range of elements lies makes a difference to blocks of codes alone.
            begin = layout.begin if member.entry is None else member.elements[0]
            begin = begin if self._kept.keeps_codes else 0
            elements = (begin, begin + member.own.numel())
        sharded = layout.sharded
        part = tuple(member.own.shape) if sharded else None
        first = 0
        if sharded and layout.start is not None and self._kept.keeps_codes:
            for at, extent in zip(layout.start, layout.shape, strict=True):
                first = first * extent + at
        return member.group, layout.shape, part, (sharded, first), elements, *dtypes

    def _query(self, key: tuple, member: Member) -> Query:
        group, shape, part, (sharded, first), elements, dtype, landed, coded = key
        return Query(
            self._values_of(group, shape),
            tuple(shape),
            part,
            sharded,
            elements,
            _tensors.STORAGE[dtype],
            _tensors.STORAGE[landed],
            self._kept.master_state(member.param),
            self._kept.rounds(dtype),
            coded,
            first,
        )

    def _coded_beside(self, member: Member) -> Coded:
        """Those of its states that are to be codes."""
        if not self._kept.keeps_codes:
            return ()
        names = can_be_codes(self._interface, self._dropped)
        return tuple(self._kept.coded(member.param.dtype, names, member.label).items())

    def missing(self, member: Member, found: Tensor) -> errors.TensorError:
        """What to raise where a member has no variant."""
        rule, name = found.rule, self._interface.name
        if rule is None:
            return self.no_rule(member)
        if found.status not in ("STEPC_DTYPE_MISMATCH", "STEPC_LAYOUT_UNSUPPORTED"):
            words = found.refusal.partition(": ")[2]
            return errors.TensorError(f"{member.name}: {words}", found.status)
        words = describe_options(_switches(self._options[member.group]))
        of_rule = f", rule '{rule.name}'" if len(self._interface.rules) > 1 else ""
        layout = f", layout '{member.request}'" if member.request else ""
        master = self._kept.master_state(member.param)
        kept = f", its f32 kept as '{master}'" if master else ""
        return errors.TensorError(
            f"the package of optimizer '{name}' has no variant for {member.name}: "
            f"{member.param.dtype} with a gradient of {member.grad_dtype}{kept}{of_rule}{layout}"
            + (f", {words}" if words else ""),
            "STEPC_DTYPE_MISMATCH",
        )


def can_be_codes(interface: Interface, dropped: Collection[str]) -> list[str]:
    """The definition's own states, and of these those that the user does not see in another
    shape: averages are not."""
    return [n for n in interface.states if n not in dropped and n not in _features.STATES]


class WholeState(NamedTuple):
    """A state of a whole tensor: its shape, and which dim of the parameter each of its
    dims is, None for one that the definition has not from the parameter; ``per``: of how many
    elements along a row one is, more than one of scales, and of codes of which an element has
    several; ``format``: of codes theirs; ``floats``: what these stand for, where that has another
    shape; ``inner``: how many elements of a row an index of its first dim has."""

    shape: tuple[int, ...]
    of_param: tuple[int | None, ...]
    per: int = 1
    format: str = ""
    floats: WholeState | None = None
    inner: int = 1

    def coded(self, format: str, scale: WholeState) -> WholeState:
        """Of floats the codes, in the format; ``scale``: their scales."""
        per, before = FORMATS[format].words.per_word, len(scale.shape) - 1
        if per == 1:
            return self._replace(format=format)
        shape, of_param = code_shape(format, self.shape, before), scale.of_param
        return WholeState(shape, of_param, per, format, self, scale.inner)

    def of(self, state) -> WholeState:
        """The whole that a tensor is one of, or a part: floats may stand for codes."""
        is_of = self.floats is not None and isinstance(state, torch.Tensor)
        return self.floats if is_of and state.is_floating_point() else self

    def each(self, made_of: Callable[[WholeState], WholeState]) -> WholeState:
        """What is made of it, with what is made of its floats."""
        made = made_of(self)
        if self.floats is None:
            return made
        return made._replace(floats=made_of(self.floats))

    def has_dims_of(self, param: torch.Tensor) -> bool:
        """Whether it has all dims of the parameter and no others."""
        return self.is_full(param.dim())

    def is_full(self, dims: int) -> bool:
        """The same of a parameter of so many."""
        return self.per == 1 and self.of_param == tuple(range(dims))

    def blocks(self, begin: int, end: int) -> range:
        """Of scales: those that indices [begin, end) of the row's first dim have a part of."""
        if begin >= end:
            return range(0)
        return range(begin * self.inner // self.per, -(-end * self.inner // self.per))


class Slot(NamedTuple):
    """A state of the plan: its name, its dtype, and the whole of it."""

    name: str
    dtype: torch.dtype
    whole: WholeState

    def at(self, indices: Indices) -> Indices:
        """Where a rank's part of it lies, beside a part of the parameter."""
        pairs = zip(self.whole.shape, self.whole.of_param, strict=True)
        found = [range(extent) if of is None else indices[of] for extent, of in pairs]
        per = self.whole.per
        if per > 1 and (of := self.whole.of_param[-1]) is not None:
            own = indices[of]
            found[-1] = (
                self.whole.blocks(own.start, own.stop)
                if isinstance(own, range)
                else sorted({block for i in own for block in self.whole.blocks(i, i + 1)})
            )
        return found

    def cuts_blocks(self, indices: Indices, shape: Sequence[int]) -> bool:
        """Of scales, and of codes of which an element has several: whether a part with these
        indices of a parameter of the shape is no range of each row, so that nobody can tell which
        blocks it has; of such codes also whether it has parts of blocks."""
        if self.whole.per == 1:
            return False
        row = len(self.whole.shape) - 1
        cut = [d for d in range(row, len(shape)) if len(indices[d]) not in (0, shape[d])]
        if not cut:
            return False
        own = indices[row]
        if cut != [row] or self.whole.of_param[-1] != row or not isinstance(own, range):
            return True
        if self.whole.floats is None:
            return False
        begin, end = (at * self.whole.inner for at in (own.start, own.stop))
        return begin % BLOCK != 0 or (own.stop != shape[row] and end % BLOCK != 0)


def whole_states(found: Tensor, dropped: dict[str, int]) -> dict[str, WholeState]:
    """The states of a tensor, as the user has them.

    ``dropped``: the kept dim of a state, by its name, that the user does not see.
    """
    states, scales = {}, {state.name: state for state in found.states if is_scale(state.name)}
    for state in found.states:
        floats = state.floats or state
        shape, of_param = floats.shape, floats.of_param
        if (at := dropped.get(state.name)) is not None:
            at += len(shape)
            shape, of_param = (own[:at] + own[at + 1 :] for own in (shape, of_param))
        per = BLOCK if is_scale(state.name) else 1
        own = WholeState(shape, of_param, per, inner=state.inner)
        if state.format:
            own = own.coded(state.format, scales[state.name + SCALE])
        states[state.name] = own
    return states


def _switches(options: Options) -> Options:
    """Those that a variant depends on: integers choose rules only."""
    return {name: on for name, on in options.items() if isinstance(on, bool)}


def variant_specs(
    optimizer,
    interface: Interface,
    rules: Rules,
    members: list[Member],
    request_of: Callable[[torch.Tensor], str],
) -> tuple[str, ...]:
    """The variants to ask for: those needed now, those that parameters without a gradient
    will need, and one for a group with none, as of a rank that only takes part: the plan
    has all groups. The compiler makes each for all rules, or for those of its rank.

    TensorError where no rule takes a member.
    """
    wanted = set()
    rules.require(members)
    for member in members:
        wanted.add((member.group, member.param.dtype, member.grad_dtype, member.request))
    for number, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            if param.dtype in _tensors.STORAGE:
                wanted.add((number, param.dtype, param.dtype, request_of(param)))
    empty = set(range(len(optimizer.param_groups))) - {number for number, *_ in wanted}
    wanted.update((number, torch.float32, torch.float32, "") for number in empty)
    settable = set(interface.option_names)
    specs = set()
    for number, param, grad, layout in wanted:
        options = _switches(rules.options_of(number))
        parts = [f"param={_tensors.STORAGE[param]}", f"grad={_tensors.STORAGE[grad]}"]
        parts += optimizer._storage_request(param, interface)
        parts += [
            f"option.{name}={describe_option(on)}"
            for name, on in sorted(options.items())
            if name in settable
        ]
        parts += [
            f"state.{name}={_tensors.STORAGE[dtype]}"
            for name, dtype in sorted(_features.storages(optimizer._features).items())
        ]
        specs.add(",".join([*parts, layout] if layout else parts))
    return tuple(sorted(specs))
