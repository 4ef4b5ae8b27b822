# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a binding reads of an optimizer and of a package, once, and what it asks the
compiler for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from ... import _runtime, errors
from ...definition import Definition
from ...interface import Interface, Options
from ..tensors import devices as _devices
from ..tensors.members import Member, ObstacleError, trainable_members
from ..tensors.patterns import KEY as VIEW
from .flags import compiler_flags
from .hypers import HyperReader
from .rules import OfShape, Rules, can_be_codes, variant_specs
from .state_map import StateMap


@dataclass
class BoundGroup:
    """A parameter group as it was bound."""

    group: dict
    params: list
    settings: tuple
    options: Options
    hypers: tuple[float, ...]
    of_shape: OfShape | None = None  # options that follow from a tensor's whole shape


def owned_state(optimizer) -> StateMap:
    """The optimizer's state as a StateMap all of whose dicts are its own."""
    state = optimizer.state
    if type(state) is not StateMap:
        state = optimizer.state = StateMap(state)
    for key, value in list(state.items()):
        state.put_quietly(key, value)
    return state


def settings_of(optimizer, group: dict) -> tuple:
    """All in the group that a binding depends on, but for the floats."""
    return *optimizer._read_settings(group), group.get(VIEW)


def bound_groups(
    optimizer, interface: Interface, reader: HyperReader, groups: list[dict] | None = None
) -> list[BoundGroup]:
    """The optimizer's groups as they are now, or others in their place."""
    bound, shared = [], optimizer._feature_options(interface)
    for number, group in enumerate(optimizer.param_groups if groups is None else groups):
        if not isinstance(group["params"], list):  # which a group may be given, as torch's
            group["params"] = list(group["params"])
        options = {**optimizer._read_options(group), **shared}
        hypers = reader.read(optimizer, number, group)
        settings = settings_of(optimizer, group)
        of_shape = optimizer._options_of_shape(group)
        bound.append(BoundGroup(group, group["params"], settings, options, hypers, of_shape))
    return bound


def rules_of(optimizer, groups: list[dict] | None = None) -> Rules:
    """What tensors of the optimizer's groups get, as these are now; with ``groups``, in their
    place, the states are not codes."""
    interface = optimizer._get_definition().interface()
    reader = HyperReader(optimizer, interface)
    bound = bound_groups(optimizer, interface, reader, groups)
    options = [interface.resolve(g.options, g.hypers) for g in bound]
    names = can_be_codes(interface, optimizer._dropped_dims)
    coded = optimizer._kept.coded(torch.float32, names) if groups is None else {}
    return Rules(interface, options, [g.of_shape for g in bound], tuple(coded.items()))


def get_package(
    optimizer,
    definition: Definition,
    resolved: list[Options],
    members: list[Member],
    targets: tuple[str, ...],
) -> _runtime.Package:
    """The package that steps the members, compiled or found.

    ``resolved``: the options of each group; ``targets``: what the compiler is told of
    where it is to run.
    """
    specs = _specs(optimizer, definition, resolved, members)
    return definition.package(specs, compiler_flags(optimizer) + targets)


def _specs(
    optimizer, definition: Definition, resolved: list[Options], members: list[Member]
) -> tuple[str, ...]:
    """The variants that step the members."""
    optimizer._check_precision()
    interface = definition.interface()
    rules = Rules(interface, resolved)
    return variant_specs(optimizer, interface, rules, members, optimizer._request_of)


def precompile(optimizer, target: str | None) -> None:
    """Has the cache know what a step of all parameters needs that are not frozen."""
    definition = optimizer._get_definition()
    interface = definition.interface()
    groups = bound_groups(optimizer, interface, HyperReader(optimizer, interface))
    resolved = [interface.resolve(bound.options, bound.hypers) for bound in groups]
    try:
        members = list(trainable_members(optimizer))
        targets = _devices.target_flags(_devices.device_of(members))
    except ObstacleError as obstacle:
        raise errors.TensorError(str(obstacle), "STEPC_INVALID_ARGUMENT") from None
    wanted = [targets]
    if target == "cpu":
        wanted = list(map(_devices.cpu_flags, _devices.CPU_TARGETS))
    elif target is not None:
        wanted = [_devices.cpu_flags(target)]
    specs = _specs(optimizer, definition, resolved, members)
    own = compiler_flags(optimizer)
    for flags in wanted:
        definition.precompile(specs, own + flags)


def may_skip(manifest: dict) -> bool:
    """Whether a step of the package may find that it is to change nothing."""
    calls = itertools.chain.from_iterable(r["calls"] for r in manifest.get("rounds", ()))
    return any(call.get("may_skip") for call in calls)


def exchanges(manifest: dict) -> bool:
    """Whether ranks exchange anything in a step."""
    entries = itertools.chain.from_iterable(v["schedule"] for v in manifest["variants"])
    return any("buffer" in e for e in entries) or any(r["calls"] for r in manifest["rounds"])
