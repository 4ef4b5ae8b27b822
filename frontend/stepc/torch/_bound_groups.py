# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a binding reads of an optimizer and of a package, once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..interface import Interface, Options
from ._hypers import HyperReader
from ._state import StateMap


@dataclass
class BoundGroup:
    """A parameter group as it was bound."""

    group: dict
    params: list
    settings: tuple
    options: Options
    hypers: tuple[float, ...]


def owned_state(optimizer) -> StateMap:
    """The optimizer's state as a StateMap all of whose dicts are its own."""
    state = optimizer.state
    if type(state) is not StateMap:
        state = optimizer.state = StateMap(state)
    for key, value in list(state.items()):
        state.put_quietly(key, value)
    return state


def bound_groups(optimizer, interface: Interface, reader: HyperReader) -> list[BoundGroup]:
    """The optimizer's groups as they are now."""
    bound, shared = [], optimizer._feature_options(interface)
    for number, group in enumerate(optimizer.param_groups):
        options = {**optimizer._read_options(group), **shared}
        hypers = reader.read(optimizer, number, group)
        settings = optimizer._read_settings(group)
        bound.append(BoundGroup(group, group["params"], settings, options, hypers))
    return bound


def may_skip(manifest: dict) -> bool:
    """Whether a step of the package may find that it is to change nothing."""
    calls = itertools.chain.from_iterable(r["calls"] for r in manifest.get("rounds", ()))
    return any(call.get("may_skip") for call in calls)


def exchanges(manifest: dict) -> bool:
    """Whether ranks exchange anything in a step."""
    buffers = itertools.chain.from_iterable(v["workspace"] for v in manifest["variants"])
    return any("exchange" in b for b in buffers) or any(r["calls"] for r in manifest["rounds"])
