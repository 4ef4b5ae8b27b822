# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``Optimizer.state`` that notices when somebody replaces an entry.

A bound plan writes into the state tensors it was given. Whether one of ten
thousand dicts has since got another tensor must not take a look at each of
them: every mutator moves a counter that all of an optimizer's dicts share.
Copies, also by ``copy``, ``deepcopy`` and ``pickle``, are plain dicts.
"""

from __future__ import annotations

from collections import defaultdict


class Epoch:
    """A counter that all state dicts of one optimizer share."""

    __slots__ = ("value",)

    def __init__(self):
        self.value = 0


def _moving(name: str, base: type):
    method = getattr(base, name)

    def mutate(self, *args, **kwargs):
        self._epoch.value += 1
        return method(self, *args, **kwargs)

    mutate.__name__ = name
    mutate.__doc__ = method.__doc__
    return mutate


_MUTATORS = (
    "__setitem__",
    "__delitem__",
    "__ior__",
    "clear",
    "pop",
    "popitem",
    "setdefault",
    "update",
)


class ParamState(dict):
    """The state of one parameter, by name."""

    __slots__ = ("_epoch",)

    def __init__(self, epoch: Epoch, items=()):
        self._epoch = epoch
        super().__init__(items)

    def put_quietly(self, items: dict) -> None:
        """Updates without moving the epoch: what the binding itself does."""
        dict.update(self, items)

    def drop_quietly(self, name: str) -> None:
        dict.__delitem__(self, name)

    def __copy__(self):
        return dict(self)

    def __reduce_ex__(self, protocol):
        return dict, (dict(self),)


class StateMap(defaultdict):
    """``Optimizer.state``: parameter to :class:`ParamState`."""

    def __init__(self, items=()):
        self._epoch = Epoch()
        super().__init__(dict)
        for key, value in dict(items).items():
            self.put_quietly(key, value)

    @property
    def epoch(self) -> int:
        return self._epoch.value

    def put_quietly(self, key, value) -> None:
        """Sets an entry, as a ParamState of this map, without moving the epoch."""
        if isinstance(value, dict) and not (
            type(value) is ParamState and value._epoch is self._epoch
        ):
            value = ParamState(self._epoch, value)
        dict.__setitem__(self, key, value)

    def __missing__(self, key):
        self._epoch.value += 1
        self.put_quietly(key, {})
        return dict.__getitem__(self, key)

    def __setitem__(self, key, value):
        self._epoch.value += 1
        self.put_quietly(key, value)

    def plain(self) -> defaultdict:
        """A copy of plain dicts; the tensors are shared."""
        return defaultdict(
            dict, {k: dict(v) if isinstance(v, dict) else v for k, v in self.items()}
        )

    copy = __copy__ = plain

    def __reduce_ex__(self, protocol):
        return defaultdict, (dict, dict(self.plain()))


for _name in _MUTATORS:
    setattr(ParamState, _name, _moving(_name, dict))
for _name in ("__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(StateMap, _name, _moving(_name, defaultdict))
