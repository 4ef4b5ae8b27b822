# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A ``ds_config.json`` as a dict, and what it says, checked against the table of keys."""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Iterator

from .keys import ALIASES, BLOCKS, KEYS, REFUSED, Key

AUTO = "auto"


def _without_twins(pairs: list[tuple[str, object]]) -> dict:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Duplicate keys in DeepSpeed config: {twice}")
    return dict(pairs)


def read(config: dict | str | os.PathLike) -> dict:
    """A copy of the configuration, with the names of today. FileNotFoundError, ValueError for a
    file that is no JSON, TypeError."""
    if isinstance(config, dict):
        made = copy.deepcopy(config)
    elif isinstance(config, str | os.PathLike):
        with open(config, encoding="utf-8") as file:
            try:
                made = json.load(file, object_pairs_hook=_without_twins)
            except ValueError as error:
                raise ValueError(f"{os.fspath(config)}: {error}") from None
    else:
        raise TypeError(f"config is {config!r}, expected a dict or the path of a JSON file")
    if not isinstance(made, dict):
        raise ValueError(f"{os.fspath(config)}: the file has {made!r}, expected a JSON object")
    _rename(made)
    return made


def _rename(config: dict) -> None:
    """In place; ValueError for what is given by two names."""
    zero = config.get("zero_optimization")
    if isinstance(zero, bool):  # of the first releases
        config["zero_optimization"] = zero = {"stage": int(zero)}
    for old, new in ALIASES.items():
        block, _, name = old.rpartition(".")
        owner = config.get(block) if block else config
        block, _, own = new.rpartition(".")
        target = config[block] if isinstance(owner, dict) and block else config
        if isinstance(owner, dict) and name in owner:
            if target.get(own) is not None:
                raise ValueError(f"'{old}' and '{new}' are both given")
            target[own] = owner.pop(name)
    for old, new in (("cpu_offload", "offload_optimizer"), ("cpu_offload_param", "offload_param")):
        if isinstance(zero, dict) and zero.get(old) is True:
            if zero.get(new) is not None:
                raise ValueError(f"'zero_optimization.{old}' and '{new}' are both given")
            zero[new] = {"device": "cpu"}


def _nearest(path: str) -> str:
    """The words that name the key which was meant, if one is like it."""
    block, _, name = path.rpartition(".")
    beside = [k for k in (*KEYS, *BLOCKS) if k.rpartition(".")[0] == block]
    near = difflib.get_close_matches(path, beside, 1, 0.75)
    elsewhere = [known for known in KEYS if known.rpartition(".")[2] == name]
    near = near or elsewhere or difflib.get_close_matches(path, KEYS, 1, 0.6)
    return f", the nearest is '{near[0]}'" if near else ""


def _is_off(value: object) -> bool:
    """Whether a block, or a switch, asks for nothing. An empty block is there."""
    if not isinstance(value, dict):
        return value is None or value is False
    one = value.get("autotp_size") in (0, 1)
    return value.get("enabled") is False or one


class Said:
    """What a configuration says, by paths as "fp16.enabled". ValueError, with a line for each key
    that is unknown, has another type or is refused."""

    def __init__(self, config: dict):
        self._values: dict[str, object] = {}
        problems = [*self._take(config, "")]
        if problems:
            lines = "".join(f"\n- {problem}" for problem in problems)
            raise ValueError(f"the DeepSpeed configuration cannot be followed:{lines}")

    def _take(self, config: dict, prefix: str) -> Iterator[str]:
        for name, value in config.items():
            path = f"{prefix}{name}"
            if path in BLOCKS and path not in KEYS:
                if isinstance(value, dict):
                    yield from self._take(value, f"{path}.")
                elif value is not None:
                    yield f"'{path}' is {value!r}, expected a block"
            elif path not in KEYS:
                yield f"'{path}' is unknown{_nearest(path)}"
            else:
                yield from self._check(path, value, KEYS[path])

    def _check(self, path: str, value: object, key: Key) -> Iterator[str]:
        if key.done == REFUSED and (_is_off(value) or value == key.default):
            self._values[path] = key.default
        elif not key.check.accepts(value):
            yield f"'{path}' is {value!r}, expected {key.check.words}{_of_auto(value)}"
        elif key.done == REFUSED:
            yield f"'{path}' is {value!r}, expected {key.default!r}: {key.words}"
        else:
            self._values[path] = key.check.take(value)

    def __contains__(self, path: str) -> bool:
        return path in self._values

    def __getitem__(self, path: str):
        """The value, or the key's default."""
        key = KEYS[path]
        return self._values.get(path, key.default)

    def block(self, path: str) -> dict:
        """What the file has of a block, without defaults."""
        return {
            name.removeprefix(f"{path}."): value
            for name, value in self._values.items()
            if name.startswith(f"{path}.")
        }

    def report(self) -> dict[str, str]:
        """By key of the file what was done about it."""
        keys = ((path, KEYS[path]) for path in self._values)
        return {path: f"{key.done}: {key.words}" for path, key in keys}


def _of_auto(value: object) -> str:
    if value != AUTO:
        return ""
    return '; "auto" is resolved from training_arguments, as transformers\' Trainer does'
