# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hyper-parameters: where in a parameter group each is, and reading them all.

A class has a table from the definition's names to *sources*: the key of a group,
a :class:`Part` of a tuple in it, or a function of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ... import errors
from ...interface import Interface


class Part(NamedTuple):
    """One number of a tuple of ``size`` in a group, ``betas`` or ``eps``."""

    key: str
    index: int
    size: int = 2


Source = str | Part | Callable[[dict], float]

BETAS: dict[str, Source] = {"beta1": Part("betas", 0), "beta2": Part("betas", 1)}


def named(*keys: str, **others: Source) -> dict[str, Source]:
    """A table of what groups have under the definition's own names, and of others."""
    return {**dict(zip(keys, keys, strict=True)), **others}


_COUNTS = {2: "two", 3: "three"}
_ONE = "a number or a tensor of one element"
_UNREADABLE = (TypeError, ValueError, RuntimeError, KeyError, OverflowError)


def readers_of(table: dict[str, Source]) -> tuple[Callable[[dict], float], ...]:
    """A function of the group for each entry, in order."""
    return tuple(map(_reader_of, table.values()))


def _reader_of(source: Source) -> Callable[[dict], float]:
    if isinstance(source, Part):
        key, index, size = source

        def read_part(group: dict) -> float:
            values = group[key]
            if len(values) != size:
                raise ValueError(f"{len(values)} values")
            return float(values[index])

        return read_part
    if isinstance(source, str):
        return lambda group: float(group[source])
    return lambda group: float(source(group))


class HyperReader:
    """Reads the groups of an optimizer in the order of an interface.

    What belongs to no group, the numbers of clipping and loss scaling, has the
    same value in all. StepcError where the optimizer and the interface do not
    have the same hyper-parameters.
    """

    def __init__(self, optimizer, interface: Interface):
        features = optimizer._feature_names(interface)
        own = tuple(optimizer._hypers)
        names = (*own, *features)
        if set(names) != set(interface.hyper_names):
            raise errors.StepcError(
                f"optimizer '{interface.name}' has hyper-parameters "
                f"{', '.join(interface.hyper_names)}; expected {', '.join(names)}"
            )
        # The optimizer itself is not kept: it has what has the reader.
        places = {name: place for place, name in enumerate(names)}
        order = tuple(places[name] for name in interface.hyper_names)
        self._order = None if order == tuple(range(len(order))) else order

    def read(self, optimizer, number: int, group: dict) -> tuple[float, ...]:
        """The values of the group of this number; HyperparameterError."""
        try:
            values = optimizer._read_hypers(group)
        except _UNREADABLE as error:
            raise hyper_error(optimizer._hypers, number, group) or error from None
        if optimizer._features:
            values += optimizer._feature_values()
        return values if self._order is None else tuple([values[i] for i in self._order])


def hyper_error(
    table: dict[str, Source], number: int, group: dict
) -> errors.HyperparameterError | None:
    """The exception that names the first entry whose value cannot be read."""
    for name, source in table.items():
        key = source.key if isinstance(source, Part) else source
        if isinstance(key, str) and key not in group:
            return errors.HyperparameterError(f"group {number} has no hyper-parameter '{key}'")
        try:
            _reader_of(source)(group)
        except KeyError as error:
            return errors.HyperparameterError(f"group {number} has no hyper-parameter {error}")
        except (*_UNREADABLE, IndexError) as error:
            words = f"hyper-parameter '{name}' of group {number} cannot be read: {error}"
            if isinstance(source, Part):
                count = _COUNTS.get(source.size, source.size)
                words = (
                    f"hyper-parameter '{key}' of group {number} is {group[key]!r}, "
                    f"expected {count} of them, each {_ONE}"
                )
            elif isinstance(source, str):
                words = (
                    f"hyper-parameter '{key}' of group {number} is {group[key]!r}, expected {_ONE}"
                )
            return errors.HyperparameterError(words)
    return None
