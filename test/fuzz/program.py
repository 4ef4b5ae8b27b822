# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A definition as data: it can be printed, and made smaller (shrink.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

SCALAR, FLAG, COUNT = "f64", "i1", "i64"
REDUCTIONS = ("sum", "mean", "amax")


@dataclass(frozen=True)
class Type:
    """A scalar's word, or dims: of a tensor or a mask."""

    word: str = ""
    dims: tuple = ()

    def __str__(self):
        if self.word in (SCALAR, FLAG, COUNT):
            return self.word
        return f"{self.word}[{', '.join(self.dims)}]"


F64, I1, I64 = Type(SCALAR), Type(FLAG), Type(COUNT)


def tensor(dims):
    return Type("", tuple(dims))


def mask(dims):
    return Type("mask", tuple(dims))


@dataclass
class Op:
    """``name`` with operands; ``before`` and ``after`` stand around them in the text.

    A step.when and a step.repeat hold one operation, called ``inner``: of a step.when the first
    two operands are its condition and the old value, the others the inner operation's. Of a
    step.repeat the first is what it begins with and what the inner operation's first becomes.
    """

    name: str
    operands: list
    result: str | None = None
    before: str = ""
    after: str = ""
    typed: bool = True
    inner: str = ""

    def body(self, types, operands):
        """The inner operation, as it stands in a body."""
        own = Op(self.inner, operands, "%made", after=self.after)
        type_ = types[self.result]
        return f"{{\n      {own.text(types)}\n      step.yield %made : {type_}\n    }}"

    def text(self, types):
        if self.name == "when":
            due, old, *own = self.operands
            head = f"{self.result} = step.when {due}, {old} : {types[self.result]}"
            return f"{head} {self.body(types, own)}"
        if self.name == "repeat":
            first, *own = self.operands
            type_ = types[self.result]
            head = f"{self.result} = step.repeat {self.before}(%each: {type_} = {first})"
            return f"{head} {self.body({**types, '%each': type_}, ['%each', *own])}"
        between = " by " if self.name == "sort" else ", "
        line = f"step.{self.name} {self.before}{between.join(self.operands)}{self.after}"
        if self.typed and self.operands:
            typed = self.operands[:1] if self.name in REDUCTIONS else self.operands
            if self.name == "select" and types[typed[0]] == I1:
                typed = typed[1:]
            line += " : " + ", ".join(str(types[o]) for o in typed)
        return f"{self.result} = {line}" if self.result else line


@dataclass
class State:
    name: str
    dims: tuple
    init: str
    guarded: bool = False
    given: bool = False  # the rule returns no value for it


@dataclass
class Rule:
    name: str
    dims: tuple
    condition: str = ""
    fresh: tuple | None = None  # the states that its fresh names; None: it names none
    bound: list = field(default_factory=list)  # dims of its own: name, what stands behind "="
    states: list = field(default_factory=list)
    ops: list = field(default_factory=list)
    returns: list = field(default_factory=list)

    def written(self):
        """The states for which it returns values, in the order of these."""
        return [state for state in self.states if not state.given]

    def argument(self, name):
        return f"%{self.name}_{name}"


@dataclass
class Call:
    """A step.scalars."""

    name: str
    scope: str
    ops: list = field(default_factory=list)
    yields: list = field(default_factory=list)


@dataclass
class Program:
    seed: int
    hypers: list = field(default_factory=list)  # name, default
    options: list = field(default_factory=list)  # name, what stands behind "="
    kept: list = field(default_factory=list)  # name, initial value, scope
    statistics: list = field(default_factory=list)  # name, kind, scope
    calls: list = field(default_factory=list)
    rules: list = field(default_factory=list)
    name: str = "fuzzed"
    types: dict = field(default_factory=dict)  # of all values
    guarded: set = field(default_factory=set)  # values
    guard: str = "%on"
    # How it is run: decided with the program, so that a seed says everything.
    tame: bool = True
    exact: bool = False  # whether its sums are, on what make_setting gives it

    def text(self):
        lines = [f"// seed {self.seed}", f"step.optimizer @{self.name} {{"]
        lines += [f'  %{n} = step.hyper "{n}" = {v}' for n, v in self.hypers]
        lines += [f'  %{n} = step.option "{n}" = {v}' for n, v in self.options]
        lines += [f'  %{n} = step.scalar "{n}" = {v} over {s}' for n, v, s in self.kept]
        lines += [f'  %{n} = step.statistic "{n}" {k} over {s}' for n, k, s in self.statistics]
        for call in self.calls:
            results = f"%{call.name}:{len(call.yields)} = " if call.yields else ""
            lines.append(f"  {results}step.scalars over {call.scope} {{")
            lines += [f"    {op.text(self.types)}" for op in call.ops]
            lines += [f"    {self.ending('yield', call.yields)}", "  }"]
        for rule in self.rules:
            lines += self.rule_text(rule)
        return "\n".join([*lines, "}", ""])

    def ending(self, name, values):
        types = ", ".join(str(self.types[v]) for v in values)
        return f"step.{name} {', '.join(values)} : {types}" if values else f"step.{name}"

    def rule_text(self, rule):
        dims = ", ".join(rule.dims)
        arguments = [f"{rule.argument('p')}: param[{dims}]", f"{rule.argument('g')}: grad[{dims}]"]
        for state in rule.states:
            text = f'{rule.argument(state.name)}: state "{state.name}"[{", ".join(state.dims)}]'
            text += f" = {state.init}" + (" given" if state.given else "")
            text += f" if {self.guard}" if state.guarded else ""
            arguments.append(text)
        fresh = f"{rule.argument('first')}: fresh"
        if rule.fresh is not None:
            named = [f'"{s.name}"' for s in rule.states if s.name in rule.fresh]
            fresh += f"({', '.join(named)})"
        arguments += [f"{rule.argument('t')}: count", fresh]
        where = "".join(f" dim {name} = {text}" for name, text in rule.bound)
        where += f" where {rule.condition}" if rule.condition else ""
        return [f"  step.rule @{rule.name}({', '.join(arguments)}){where} {{",
                *(f"    {op.text(self.types)}" for op in rule.ops),
                f"    {self.ending('return', rule.returns)}", "  }"]  # fmt: skip

    def blocks(self):
        """The lists of operations, calls first."""
        return [call.ops for call in self.calls] + [rule.ops for rule in self.rules]
