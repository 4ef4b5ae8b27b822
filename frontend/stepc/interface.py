# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of a definition: its names, and which rule updates which shape.

The compiler prints it (``stepc --interface``), and a package's manifest has it;
``docs/statistics.md`` says what the parts mean. Format 1, which has neither dims
of rules nor scalars, is read too.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

PREDICATES = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

Options = dict[str, "bool | int"]


# In a layout's place of a dim: ranks have ranges of elements.
FLAT_RANGE = "flat range"


@dataclass(frozen=True)
class Condition:
    """One condition of a rule: of its rank, of one extent, or of an option.

    ``operand``: "rank", the index of an extent (from the end where negative), or
    the name of an option. ``value``: a number, the name of an integer option, or
    what the option must be. ``other``: the index of the extent that it is compared with in
    place of a value.
    """

    operand: str | int
    predicate: str
    value: int | bool | str
    is_option: bool = False
    other: int | None = None

    @classmethod
    def from_json(cls, data: dict) -> Condition:
        predicate = data.get("predicate", "eq")
        if "rank" in data or "extent" in data:
            other = data.get("other_extent")
            value = data["option"] if "option" in data else int(data.get("value", 0))
            operand = "rank" if "rank" in data else int(data["extent"])
            return cls(operand, predicate, value, other=other)
        return cls(data["option"], predicate, bool(data.get("value", True)), is_option=True)

    def holds(self, shape: tuple[int, ...], options: Options) -> bool:
        """Whether it holds; a condition on an extent that is not there does not."""
        if self.is_option:
            return PREDICATES[self.predicate](bool(options[self.operand]), self.value)
        bound = options[self.value] if isinstance(self.value, str) else self.value
        indices = [i for i in (self.operand, self.other) if isinstance(i, int)]
        if any(not -len(shape) <= i < len(shape) for i in indices):
            return False
        if self.other is not None:
            bound = shape[self.other]
        found = len(shape) if self.operand == "rank" else shape[self.operand]
        return PREDICATES[self.predicate](found, bound)


@dataclass(frozen=True)
class State:
    """A state of a rule; ``dims`` are those of the rule, or "1". ``guard``: the
    option it exists under, if any."""

    name: str
    dims: tuple[str, ...]
    init: float = 0.0
    guard: str | None = None


@dataclass(frozen=True)
class BoundDim:
    """A dim that a rule makes of others: the least of the extents of the dims ``least_of``, of
    the number ``most`` and of the integer option ``option``, divided by ``per`` and rounded up."""

    name: str
    least_of: tuple[str, ...]
    most: int | None = None
    option: str | None = None
    per: int = 1

    @classmethod
    def from_json(cls, data: dict) -> BoundDim:
        least_of = tuple(data["least_of"])
        return cls(data["name"], least_of, data.get("most"), data.get("option"), data["per"])

    def extent(self, extents: dict[str, tuple[int, ...]], options: Options) -> int:
        """Its extent, where the rule's dims have these."""
        least = [extents[name][0] for name in self.least_of]
        least += [] if self.most is None else [self.most]
        least += [] if self.option is None else [int(options[self.option])]
        return -(-min(least) // self.per)


@dataclass(frozen=True)
class Rule:
    """How tensors of one kind of shape are updated.

    ``dims``: ``("*",)``, names, or names after ``"...b"``. ``bound_dims``: those that states
    have besides. ``conditions``: all must hold. ``unshardable``: the dims that ranks cannot
    share, and ``FLAT_RANGE`` where no rank can have a range of the elements; ``line`` and
    ``column`` say where in the definition a rule with such dims is, 0 where that is not known.
    """

    name: str
    dims: tuple[str, ...] = ("*",)
    conditions: tuple[Condition, ...] = ()
    states: tuple[State, ...] = ()
    unshardable: tuple[str, ...] = ()
    line: int = 0
    column: int = 0
    bound_dims: tuple[BoundDim, ...] = ()

    @property
    def needs_matrices(self) -> bool:
        """Whether no rank can work on a part of the parameter: there are products."""
        return FLAT_RANGE in self.unshardable

    @classmethod
    def from_json(cls, data: dict) -> Rule:
        unshardable = data.get("unshardable", {})
        return cls(
            data.get("name", ""),
            tuple(data.get("dims", ("*",))),
            tuple(Condition.from_json(condition) for condition in data.get("guard") or ()),
            tuple(
                State(
                    state["name"],
                    tuple(state.get("dims", ("*",))),
                    float(state.get("init", 0.0)),
                    state.get("guard"),
                )
                for state in data["states"]
            ),
            tuple(unshardable.get("dims", ())),
            int(unshardable.get("line", 0)),
            int(unshardable.get("column", 0)),
            tuple(map(BoundDim.from_json, data.get("bound_dims", ()))),
        )

    @property
    def takes_all(self) -> bool:
        """Whether it is for any shape, under any options."""
        return self.dims == ("*",) and not self.conditions

    def holds(self, shape: tuple[int, ...], options: Options) -> bool:
        """Whether the shape fits and every condition holds."""
        return self.extents(shape) is not None and all(
            condition.holds(shape, options) for condition in self.conditions
        )

    def extents(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]] | None:
        """What each dim stands for in ``shape``; None where that does not fit."""
        if self.dims == ("*",):
            return {"*": shape}
        found, names = {}, self.dims
        if names and names[0].startswith("..."):
            names = names[1:]
            if len(shape) < len(names):
                return None
            cut = len(shape) - len(names)
            found[self.dims[0]], shape = shape[:cut], shape[cut:]
        if len(shape) != len(names):
            return None
        for name, extent in zip(names, shape, strict=True):
            if found.setdefault(name, (extent,)) != (extent,):
                return None
        return found if found.get("1", (1,)) == (1,) else None

    def state_shape(
        self, dims: tuple[str, ...], shape: tuple[int, ...], options: Options
    ) -> tuple[int, ...]:
        """The shape of a state of these dims beside a parameter of ``shape``."""
        extents = {**self.extents(shape), "1": (1,)}
        for bound in self.bound_dims:
            extents[bound.name] = (bound.extent(extents, options),)
        return tuple(extent for name in dims for extent in extents[name])


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
    may set. ``derived``: name, hyper-parameter, predicate and value of those that
    follow from a hyper-parameter. ``scalars``: what is kept between steps.
    ``reports``: what can be read after a step.
    """

    name: str
    hypers: tuple[tuple[str, float], ...]
    options: tuple[tuple[str, bool | int], ...]
    derived: tuple[tuple[str, str, str, float], ...]
    rules: tuple[Rule, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    statistics: tuple[Scalar, ...] = ()
    reports: tuple[Scalar, ...] = ()

    @classmethod
    def from_json(cls, data: dict) -> Interface:
        given = data["options"]
        return cls(
            data["optimizer"],
            tuple((hyper["name"], float(hyper["default"])) for hyper in data["hypers"]),
            tuple((o["name"], o["default"]) for o in given if "derived" not in o),
            tuple(
                (o["name"], d["hyper"], d["predicate"], float(d["value"]))
                for o in given
                if (d := o.get("derived"))
            ),
            tuple(Rule.from_json(rule) for rule in data.get("rules", ())),
            *(
                tuple(Scalar.from_json(scalar) for scalar in data.get(kind, ()))
                for kind in ("scalars", "statistics", "reports")
            ),
        )

    @property
    def hyper_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.hypers)

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.options)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states of all rules, each once."""
        return tuple({state.name: 0 for rule in self.rules for state in rule.states})

    def resolve(self, options: Options, hypers: tuple[float, ...]) -> Options:
        """The value of every option, the derived ones evaluated.

        ``hypers`` in the order of the interface.
        """
        values = dict(zip(self.hyper_names, hypers, strict=True))
        full = {name: type(default)(options.get(name, default)) for name, default in self.options}
        for name, hyper, predicate, value in self.derived:
            full[name] = PREDICATES[predicate](values[hyper], value)
        return full

    def rule_of(self, shape: tuple[int, ...], options: Options) -> Rule | None:
        """The rule that updates a parameter of this shape: the first that holds.

        ``options``: all of them, as ``resolve`` gives them.
        """
        return next((rule for rule in self.rules if rule.holds(shape, options)), None)

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
            if any(name == derived[0] for derived in self.derived):
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
