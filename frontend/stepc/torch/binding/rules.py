# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule, and which variant of a package, updates a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ... import errors
from ...interface import Interface, Options, Rule, describe_option, describe_options
from ..tensors import views as _tensors
from ..tensors.members import Member
from . import features as _features
from .precision import Kept

Indices = list[Sequence[int]]  # of each dim, those that a part has


class Rules:
    """The rule of each shape in each group, remembered.

    ``options``: the value of every option, derived ones too, of each group.
    """

    def __init__(self, interface: Interface, options: list[Options]):
        self._interface = interface
        self._options = options
        self._only = interface.rules[0] if _is_plain(interface) else None
        self._found: dict[tuple, Rule | None] = {}

    def find(self, group: int, shape: torch.Size) -> Rule | None:
        """The rule for a parameter of this shape in this group, or None."""
        if self._only is not None:
            return self._only
        key = (group, shape)
        if key not in self._found:
            self._found[key] = self._interface.rule_of(tuple(shape), self._options[group])
        return self._found[key]

    def options_of(self, group: int) -> Options:
        """The value of every option in the group."""
        return self._options[group]

    def rule_of(self, member: Member) -> Rule:
        """The rule of a parameter; TensorError where none takes it."""
        rule = self.find(member.group, torch.Size(member.whole_shape))
        if rule is None:
            names = ", ".join(f"'{rule.name}'" for rule in self._interface.rules)
            options = describe_options(self._options[member.group])
            raise errors.TensorError(
                f"no rule of optimizer '{self._interface.name}' takes {member.name} of shape "
                f"{member.whole_shape}; rules: {names}" + (f"; {options}" if options else ""),
                "STEPC_SHAPE_MISMATCH",
            )
        return rule


class WholeState(NamedTuple):
    """A state of a whole tensor: its shape, and which dim of the parameter each of its
    dims is, None for one that the definition has not from the parameter."""

    shape: tuple[int, ...]
    of_param: tuple[int | None, ...]

    def has_dims_of(self, param: torch.Tensor) -> bool:
        """Whether it has all dims of the parameter and no others."""
        return self.of_param == tuple(range(param.dim()))


class Slot(NamedTuple):
    """A state of the plan: its name, its dtype, and the whole of it."""

    name: str
    dtype: torch.dtype
    whole: WholeState

    def at(self, indices: Indices) -> Indices:
        """Where a rank's part of it lies, beside a part of the parameter."""
        pairs = zip(self.whole.shape, self.whole.of_param, strict=True)
        return [range(extent) if of is None else indices[of] for extent, of in pairs]


def whole_states(
    rule: Rule, shape: tuple[int, ...], dropped: dict[str, int], options: Options
) -> dict[str, WholeState]:
    """Every state of a rule beside a parameter of ``shape``, as the user has it, under the
    options of its group.

    ``dropped``: the kept dim of a state, by its name, that the user does not see.
    """
    found = {}
    for state in rule.states:
        own = rule.state_shape(state.dims, shape, options)
        rank = len(own)
        of_param: list[int | None] = list(range(rank)) if rank == len(shape) else [None] * rank
        # Dims count from the end: leading ones may be any number.
        for back in range(1, min(len(state.dims), rank) + 1):
            # One of the parameter's, in its place: also an extent of 1 that both have.
            if state.dims[-back] != rule.dims[-back]:
                of_param[-back] = None
        at = dropped.get(state.name)
        if at is not None:
            own = (*own[:at], *own[rank + at + 1 :])
            del of_param[at]
        found[state.name] = WholeState(own, tuple(of_param))
    return found


def _is_plain(interface: Interface) -> bool:
    return len(interface.rules) == 1 and interface.rules[0].takes_all


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
    for member in members:
        rules.rule_of(member)
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


class Variants:
    """The variants of a package, by rule, options and storage. ``options``: of each
    group, as for :class:`Rules`."""

    def __init__(self, manifest: dict, options: list[Options], kept: Kept):
        self._kept = kept
        self._optimizer = manifest["optimizer"]
        self._switches = [frozenset(_switches(of_group).items()) for of_group in options]
        self._found: dict[tuple, dict] = {}
        declared = {rule["name"]: {s["name"] for s in rule["states"]} for rule in manifest["rules"]}
        for variant in manifest["variants"]:
            operands = variant["operands"]
            storage = {o["role"]: o["storage"] for o in operands if o["role"] != "state"}
            options = frozenset(variant["options"].items())
            # A rule that does not read the gradient may not list it.
            states = {o["name"] for o in operands if o["role"] == "state"}
            # What the compiler has added.
            master = next(iter(states - declared[variant["rule"]]), None)
            rounds = "position" in storage
            key = (variant["rule"], options, storage["param"], storage.get("grad"), master, rounds)
            self._found.setdefault((*key, frozenset(variant["layout"])), variant)

    def find(self, member: Member, rule: Rule) -> dict | None:
        """The variant for a parameter, or None."""
        found = None
        if self._kept.rounds(member.param.dtype):
            found = self._find(member, rule, True)
        # Where all that is bfloat16 has fewer dims than the parameter, nothing is rounded so.
        return self._find(member, rule, False) if found is None else found

    def _find(self, member: Member, rule: Rule, rounds: bool) -> dict | None:
        storage = _tensors.STORAGE
        param, grad = storage[member.param.dtype], storage[member.landed_dtype]
        master = self._kept.master_state(member.param)
        key = (rule.name, self._switches[member.group], param, grad, master, rounds)
        sharded = member.layout.sharded_dims(rule.dims) if member.layout else frozenset()
        found = self._found.get((*key, sharded))
        if found is None and sharded:
            # One of elements serves every layout.
            found = self._found.get((*key, frozenset()))
            found = found if found and found["space"] == "elements" else None
        return found

    def missing(self, member: Member, rule: Rule) -> errors.TensorError:
        """What to raise where ``find`` gives None."""
        if member.layout is not None and member.layout.flat and rule.needs_matrices:
            return errors.TensorError(
                f"{member.name}: rule '{rule.name}' of optimizer '{self._optimizer}' needs whole "
                "matrices, and this rank has a range of its elements, as with zero= or a flat "
                "layout; where it is a DTensor, as under FSDP2, one rank steps the whole",
                "STEPC_LAYOUT_UNSUPPORTED",
            )
        words = describe_options(dict(self._switches[member.group]))
        of_rule = f", rule '{rule.name}'" if len({key[0] for key in self._found}) > 1 else ""
        layout = f", layout '{member.request}'" if member.request else ""
        master = self._kept.master_state(member.param)
        kept = f", its f32 kept as '{master}'" if master else ""
        return errors.TensorError(
            f"the package of optimizer '{self._optimizer}' has no variant for {member.name}: "
            f"{member.param.dtype} with a gradient of {member.grad_dtype}{kept}{of_rule}{layout}"
            + (f", {words}" if words else ""),
            "STEPC_DTYPE_MISMATCH",
        )
