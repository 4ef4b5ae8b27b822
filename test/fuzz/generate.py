# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random definitions with everything that the language has.

Dims of every kind, broadcasts, reductions over dims and over the whole tensor,
statistics over the model and over groups in several rounds, kept scalars, reports,
skipped steps, guarded states and states of fewer dims, options, masks, rules with
conditions. A program is data: it can be printed, and made smaller (shrink.py).

``%x`` is *guarded* where it needs a state that exists only under the option
``%on``: it may be stored in such a state, or be taken by a select on the option.
"""

from __future__ import annotations

import numpy as np
from body import CONSTANTS, PREDICATES, TAME_CONSTANTS, Body
from matrices import bound_dims, is_matrix, other_dims
from program import F64, I1, I64, Call, Op, Program, Rule, State, tensor

DIMS = [("*",), ("*",), ("n",), ("n", "m"), ("n", "m"), ("...b", "n", "m"), ("...b", "n", "m"),
        ("...b", "m"), ("n", "n"), ("n", "m", "k"), ("...b", "n", "m", "k"), ("n", "m", "k", "l"),
        ("...b", "n", "m", "k", "l")]  # fmt: skip
# Words that mean something elsewhere: in layouts, manifests, kernels, states, arrays.
RESERVED = [
    "flat", "B", "N", "M", "R", "L", "NL", "temp0", "partial0", "exchange0", "carried0", "slot0",
    "count", "fresh", "state", "rank", "extent", "step", "model", "group", "scalars", "phase0",
    "master", "remainder", "dims", "all", "x", "over", "where", "kept", "unless", "sum",
]  # fmt: skip


class Maker:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nesting = np.random.default_rng([seed, 5])
        self.program = Program(seed)
        self.program.tame = self.coin(0.7)
        # Of hyper-parameters, options, statistics, ...; and of dims, states, rules.
        self.words = [list(self.rng.permutation(RESERVED)) for _ in range(4)]
        self.is_named_so = self.coin(0.3)
        self.has_matrices = self.nesting.random() < 0.2
        self.declare()
        for call in self.program.calls:
            self.fill_call(call)
        for rule in self.program.rules:
            self.fill_rule(rule)

    def coin(self, chance=0.5):
        return bool(self.rng.random() < chance)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def number(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def name(self, kind, name):
        """In some programs a word that means something elsewhere."""
        if not self.is_named_so or self.coin(0.3):
            return name
        return str(self.words[kind].pop())

    def declare(self):
        program, types = self.program, self.program.types
        program.name = self.name(0, "fuzzed")
        hypers = ["a", self.name(0, "b"), self.name(0, "c")]
        program.hypers = [(name, "0.5") for name in hypers[: self.number(1, 3)]]
        program.options = [("o", "false")]
        if self.coin():
            program.options.append(("d", f"%a {self.pick(PREDICATES)} 0.25"))
        program.guard = "%" + self.pick(program.options)[0]
        if self.has_matrices:
            program.options.append(("most_r", "4"))
        rounds = self.pick([0, 0, 1, 1, 1, 2, 2, 3])
        if rounds:
            for k in range(self.number(0, 2)):
                scope = self.pick(["model", "group"])
                program.kept.append((self.name(0, f"k{k}"), self.pick(TAME_CONSTANTS), scope))
            for k in range(self.number(1, 3)):
                kind, scope = self.pick(["sum", "sum", "amax"]), self.pick(["model", "group"])
                program.statistics.append((self.name(0, f"s{k}"), kind, scope))
        for name, _ in program.hypers:
            types[f"%{name}"] = F64
        for name, text in program.options:
            types[f"%{name}"] = I64 if text.isdigit() else I1
        for name, _, _ in [*program.kept, *program.statistics]:
            types[f"%{name}"] = F64
        program.calls = [Call(f"r{k}", self.pick(["model", "group"])) for k in range(rounds)]
        # What is of a group comes after what is of the model where both are needed.
        self.readers = {name: self.number(0, rounds - 1) for name, _, _ in program.statistics}
        dims = self.named_dims(self.pick(DIMS))
        program.rules = [Rule(self.name(1, "first"), dims)]
        if dims != ("*",) and self.coin(0.3):
            program.rules.append(Rule(self.name(1, "rest"), ("*",)))
            if self.coin(0.4):
                least = "%least" if self.coin() else "16"
                if least == "%least":
                    program.options.append(("least", "16"))
                    types["%least"] = I64
                conditions = [f"extent -1 ge {least}", "rank ge 2", "%o", "not %o",
                              f"extent 0 lt {least}"]  # fmt: skip
                if self.has_matrices:
                    conditions += ["extent -2 le extent -1", "extent 0 gt extent 1"]
                chosen = {self.pick(conditions) for _ in range(self.number(1, 2))}
                if not {"%o", "not %o"} <= chosen:
                    program.rules[0].condition = ", ".join(sorted(chosen))
        for rule in program.rules:
            self.declare_states(rule)

    def named_dims(self, dims):
        names = {name: self.name(2, name) for name in ("b", "n", "m", "k", "l")}
        return tuple(f"...{names['b']}" if d == "...b" else names.get(d, d) for d in dims)

    def declare_states(self, rule):
        if self.has_matrices and is_matrix(rule.dims):
            integers = [n for n, text in self.program.options if text.isdigit()]
            rule.bound = bound_dims(self.nesting, rule, integers)
        named = [d for d in rule.dims if d != "*" and not d.startswith("...")]
        for k in range(self.number(0, 3)):
            dims = rule.dims
            if named and self.coin(0.4):
                dims = tuple("1" if d in named and self.coin() else d for d in dims)
            elif len(rule.dims) == 1 and named and self.coin(0.3):
                dims = ("1",)
            if self.has_matrices and is_matrix(rule.dims) and self.coin(0.4):
                dims = other_dims(self.rng, rule)
            guarded = self.coin(0.25)
            init = self.pick(CONSTANTS[:8])
            # A state has one meaning in all rules.
            name = self.name(3, f"{rule.name}{k}")
            given = self.nesting.random() < 0.15
            rule.states.append(State(name, dims, init, guarded, given))
        if self.coin(0.4):
            rule.fresh = tuple(s.name for s in rule.states if self.coin(0.6))
        types = self.program.types
        for name, type_ in [("p", tensor(rule.dims)), ("g", tensor(rule.dims)), ("t", I64),
                            ("first", I1)]:  # fmt: skip
            types[rule.argument(name)] = type_
        for state in rule.states:
            types[rule.argument(state.name)] = tensor(state.dims)
            if state.guarded:
                self.program.guarded.add(rule.argument(state.name))

    def shared(self, scope=None):
        """What calls and rules may use of the declarations."""
        program = self.program
        names = [f"%{n}" for n, _ in [*program.hypers, *program.options]
                 if program.types[f"%{n}"] != I64]  # fmt: skip
        names += [f"%{n}" for n, _, s in program.kept if scope != "model" or s == "model"]
        return names

    def results(self, before, scope=None):
        return [f"%{call.name}#{k}" for call in before for k in range(len(call.yields))
                if scope != "model" or call.scope == "model"]  # fmt: skip

    def fill_call(self, call):
        program, index = self.program, self.program.calls.index(call)
        body = Body(self, call.ops, f"{call.name}_")
        body.add(*self.shared(call.scope))
        body.add(*self.results(program.calls[:index], call.scope))
        for name, _, scope in program.statistics:
            readable = call.scope == "group" or scope == "model"
            if readable and self.readers[name] <= index:
                body.add(f"%{name}", f"%{name}")
        body.grow(self.number(1, 7))
        for name, _, scope in program.kept:
            if scope == call.scope and name not in self.updated() and self.coin(0.6):
                always = " always" if self.coin(0.3) else ""
                value = body.recent(body.find(F64))
                call.ops.append(Op("update", [f"%{name}", value], after=always, typed=False))
        if self.coin(0.4):
            value = body.recent(body.find(F64))
            call.ops.append(Op("report", [value], before=f'"{call.name}", ', typed=False))
        if call.scope == "model" and self.coin(0.35):
            flag = body.a_flag()
            if self.coin(0.8):  # not every step
                finite = body.emit("is_finite", [body.recent(body.find(F64))], I1)
                flag = body.emit("not", [finite], I1)
            call.ops.append(Op("skip_if", [flag], typed=False))
        call.yields = [body.recent(body.find(self.pick([F64, F64, F64, I1])))
                       for _ in range(self.number(0, 2))]  # fmt: skip
        for k, value in enumerate(call.yields):
            program.types[f"%{call.name}#{k}"] = program.types[value]

    def updated(self):
        return {op.operands[0][1:] for call in self.program.calls
                for op in call.ops if op.name == "update"}  # fmt: skip

    def fill_rule(self, rule):
        program = self.program
        body = Body(self, rule.ops, f"{rule.name}_")
        body.dims, body.bound = rule.dims, rule.bound
        body.add(*self.shared(), rule.argument("t"), rule.argument("first"))
        body.add(rule.argument("p"), rule.argument("g"))
        body.add(*(rule.argument(state.name) for state in rule.states))
        number = self.number(1, 2) if body.coin(0.3) else 0
        statistics = [self.statistic_of_own(rule, body) for _ in range(number)]
        contributed = set()
        for stage in range(len(program.calls) + 1):
            if stage:
                # Twice: what a round gives is to be used.
                body.add(*self.results(program.calls[stage - 1 : stage]) * 2)
            body.grow(self.number(1, 6 if program.calls else 12))
            for name, _, _ in program.statistics:
                if name in contributed or self.readers[name] < stage or not self.coin(0.6):
                    continue
                contributed.add(name)
                if self.coin(0.7):
                    reduced = self.reduced(body, self.plain_tensor(body))
                    value = body.emit(self.pick(["sum", "amax"]), [reduced], F64)
                else:
                    value = body.recent(body.find(F64, guarded=False))
                rule.ops.append(Op("contribute", [f"%{name}", value], typed=False))
        wanted = [(tensor(rule.dims), False)]
        wanted += [(tensor(state.dims), state.guarded) for state in rule.written()]
        rule.returns = [body.of_type(type_, guarded) for type_, guarded in wanted]
        for statistic in statistics:
            names = body.tamed("mul", [rule.returns[0], statistic])
            rule.returns[0] = body.emit("mul", names, tensor(rule.dims))

    def statistic_of_own(self, rule, body):
        """A reduction of the param, and now and then of states with it, as those that are
        kept from step to step."""
        type_ = tensor(rule.dims)
        own = [rule.argument(s.name) for s in rule.states if s.dims == rule.dims]
        own = [name for name in own if name not in self.program.guarded]
        inputs = [rule.argument("p"), *(name for name in own if body.coin())]
        for k, name in enumerate(inputs):
            if body.coin(0.6):
                inputs[k] = body.emit("mul", [name, name], type_)
            elif body.coin():
                inputs[k] = body.emit(self.pick(["abs", "neg"]), [name], type_)
        if len(inputs) > 1 and body.coin(0.3):
            inputs.reverse()
        return body.emit(self.pick(["sum", "mean", "mean", "amax"]), inputs, F64)

    def reduced(self, body, name):
        """The tensor, or what is left of it over one or two of its dims: a rank's part of the
        result is one over some of the sharded dims."""
        while self.nesting.random() < 0.5:
            dims = self.program.types[name].dims
            named = [d for d in dims if d not in ("1", "*") and not d.startswith("...")]
            if not named or len(set(named)) != len(named):
                break
            over = named[int(self.nesting.integers(len(named)))]
            kind = ("sum", "mean", "amax")[int(self.nesting.integers(3))]
            left = tensor(tuple("1" if d == over else d for d in dims))
            name = body.emit(kind, [name], left, after=f" over [{over}]")
        return name

    def plain_tensor(self, body):
        return body.recent(body.fitting(body.tensors(guarded=False)))
