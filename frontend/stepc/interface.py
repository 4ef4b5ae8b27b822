# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of a definition: its names. Which rule updates which shape, with which states,
the runtime library says of it (:mod:`stepc._describe`).

The compiler prints it (``stepc --interface``), and a package's manifest has it;
``docs/statistics.md`` says what the parts mean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._describe import Handle, Query, Rule, Tensor, handle_of

Options = dict[str, "bool | int"]


@dataclass(frozen=True)
class Scalar:
    """A scalar, statistic or report; ``scope`` is "model" or "group"."""

    name: str
    scope: str
    default: float = 0.0

    @classmethod
    def from_json(cls, data: dict) -> Scalar:
        return cls(data["name"], data["scope"], float(data.get("default", 0.0)))


@dataclass(frozen=True)
class Interface:
    """The names of a definition, from ``stepc --interface`` or a manifest.

    ``hypers``: name and default, in the order in which values are passed.
    ``options``: name and default, a boolean or an integer, of those that a user
    may set. ``derived``: the names of those that follow from a hyper-parameter.
    ``rules`` and ``states``: their names, each once. ``scalars``: what is kept between steps.
    ``reports``: what can be read after a step. ``text``: the JSON that it was read from.
    """

    name: str
    hypers: tuple[tuple[str, float], ...]
    options: tuple[tuple[str, bool | int], ...]
    derived: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    statistics: tuple[Scalar, ...] = ()
    reports: tuple[Scalar, ...] = ()
    order: tuple[str, ...] = ()  # of all options
    text: bytes = field(default=b"", repr=False, compare=False)

    @classmethod
    def from_json(cls, data: dict, text: bytes | None = None) -> Interface:
        """``text``: what ``data`` was read from."""
        given, rules = data["options"], data.get("rules", ())
        return cls(
            data["optimizer"],
            tuple((hyper["name"], float(hyper["default"])) for hyper in data["hypers"]),
            tuple((o["name"], o["default"]) for o in given if "derived" not in o),
            tuple(o["name"] for o in given if "derived" in o),
            tuple(rule["name"] for rule in rules),
            tuple({state["name"]: 0 for rule in rules for state in rule["states"]}),
            *(
                tuple(Scalar.from_json(scalar) for scalar in data.get(kind, ()))
                for kind in ("scalars", "statistics", "reports")
            ),
            tuple(o["name"] for o in given),
            json.dumps(data).encode() if text is None else text,
        )

    @classmethod
    def from_text(cls, text: bytes) -> Interface:
        """What the compiler prints, or a manifest."""
        return cls.from_json(json.loads(text), text)

    @property
    def hyper_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.hypers)

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.options)

    @property
    def _handle(self) -> Handle:
        return handle_of(self.text)

    def resolve(self, options: Options, hypers: Sequence[float]) -> Options:
        """The value of every option, the derived ones evaluated.

        ``hypers`` in the order of the interface.
        """
        kinds = {name: type(default) for name, default in self.options}
        given = {name: int(kinds[name](options[name])) for name in kinds if name in options}
        values = self._handle.resolve(given, hypers, len(self.order))
        pairs = zip(self.order, values, strict=True)
        return {name: kinds.get(name, bool)(value) for name, value in pairs}

    def describe(self, queries: Sequence[Query]) -> list[Tensor]:
        """Which rule, and of a manifest which variant, each tensor gets, with which states."""
        return self._handle.describe(queries)

    def rules_of(self, queries: Sequence[Query]) -> list[Rule | None]:
        """The rules alone."""
        return self._handle.rules(queries)

    def in_order(self, options: Options) -> tuple[int, ...]:
        """What ``resolve`` gave, for queries."""
        return tuple([int(options[name]) for name in self.order])

    def check_states(self, given: dict) -> None:
        """TypeError for a name that is no state of any rule."""
        for name in given:
            if name not in self.states:
                raise TypeError(
                    f"optimizer '{self.name}' has no state '{name}'; states: "
                    f"{', '.join(self.states) or 'none'}"
                )

    def check_names(self, given: dict) -> None:
        """TypeError for a name that is neither a hyper-parameter nor an option."""
        for name in given:
            if name in self.hyper_names or name in self.option_names:
                continue
            if name in self.derived:
                raise TypeError(
                    f"option '{name}' of optimizer '{self.name}' follows from its "
                    "hyper-parameters and cannot be given"
                )
            raise TypeError(
                f"optimizer '{self.name}' has no hyper-parameter or option '{name}'; "
                f"hyper-parameters: {', '.join(self.hyper_names) or 'none'}; "
                f"options: {', '.join(self.option_names) or 'none'}"
            )


def describe_options(options: Options) -> str:
    """As messages, and the compiler, write them."""
    return ", ".join(f"{name}={describe_option(on)}" for name, on in sorted(options.items()))


def describe_option(value: bool | int) -> str:
    """``true``, ``false``, or a number."""
    return str(value).lower() if isinstance(value, bool) else str(value)
