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
from matrices import Matrices, bound_dims, covers, is_matrix, other_dims
from program import F64, I1, I64, Call, Op, Program, Rule, State, mask, tensor

CONSTANTS = ["0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "0.1", "1.0e-3", "1.0e-40", "1.0e+300"]
TAME_CONSTANTS = ["1.0", "-1.0", "2.0", "0.5", "0.1", "-0.25", "1.0e-3"]
PREDICATES = ["lt", "le", "gt", "ge", "eq", "ne"]
UNARY = ["neg", "abs", "sqrt", "sign", "floor", "exp", "log"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]
DIMS = [("*",), ("*",), ("n",), ("n", "m"), ("n", "m"), ("...b", "n", "m"), ("...b", "n", "m"),
        ("...b", "m"), ("n", "n"), ("n", "m", "k"), ("...b", "n", "m", "k"), ("n", "m", "k", "l"),
        ("...b", "n", "m", "k", "l")]  # fmt: skip
# Words that mean something elsewhere: in layouts, manifests, kernels, states, arrays.
RESERVED = [
    "flat", "B", "N", "M", "R", "L", "NL", "temp0", "partial0", "exchange0", "carried0", "slot0",
    "count", "fresh", "state", "rank", "extent", "step", "model", "group", "scalars", "phase0",
    "master", "remainder", "dims", "all", "x", "over", "where", "kept", "unless", "sum",
]  # fmt: skip


class Body(Matrices):
    """Operations, and the values that they may use."""

    def __init__(self, maker, ops, prefix):
        self.maker, self.ops, self.prefix = maker, ops, prefix
        self.program, self.rng = maker.program, maker.rng
        self.values = []
        self.dims = None
        self.bound = []  # dims that the rule makes of others

    def add(self, *names):
        self.values += names

    def find(self, type_, guarded=None):
        """Names of that type, guarded or not (None: any)."""
        return [v for v in self.values if self.program.types[v] == type_
                and (guarded is None or (v in self.program.guarded) == guarded)]  # fmt: skip

    def tensors(self, guarded=None, word=""):
        types = self.program.types
        return [v for v in self.values if types[v].dims and types[v].word == word
                and (guarded is None or (v in self.program.guarded) == guarded)]  # fmt: skip

    def emit(self, name, operands, type_, unguard=False, **text):
        result = f"%{self.prefix}{len(self.program.types)}"
        self.program.types[result] = type_
        if not unguard and any(o in self.program.guarded for o in operands):
            self.program.guarded.add(result)
        self.ops.append(Op(name, list(operands), result, **text))
        self.values.append(result)
        return result

    def coin(self, chance=0.5):
        return self.maker.coin(chance)

    def pick(self, items):
        return self.maker.pick(items)

    def recent(self, names):
        """Mostly one of the last, so that chains are long."""
        return self.pick(names[-4:]) if self.coin(0.6) else self.pick(names)

    def plain(self, names):
        """Rarely a guarded one."""
        unguarded = [n for n in names if n not in self.program.guarded]
        return names if self.coin(0.15) or not unguarded else unguarded

    # Scalars.

    def a_scalar(self):
        names = self.plain(self.find(F64))
        return self.recent(names) if names else self.constant()

    def a_flag(self):
        names = self.plain(self.find(I1))
        return self.pick(names) if names else self.emit(
            "constant", [], I1, before=self.pick(["true", "false"]))  # fmt: skip

    def constant(self):
        text = self.pick(TAME_CONSTANTS if self.program.tame else CONSTANTS)
        return self.emit("constant", [], F64, before=text)

    def tamed(self, name, operands):
        """Operands for which the result is a number of the same size, mostly."""
        if not self.program.tame or self.coin(0.1):
            return operands
        result_type = {o: self.program.types[o] for o in operands}
        if name == "sqrt":
            return [self.emit("abs", operands, result_type[operands[0]])]
        if name == "exp":
            size = self.emit("abs", operands, result_type[operands[0]])
            return [self.emit("neg", [size], result_type[operands[0]])]
        if name == "log":
            size = self.emit("abs", operands, result_type[operands[0]])
            half = self.emit("constant", [], F64, before="0.5")
            return [self.emit("add", [size, half], result_type[operands[0]])]
        if name == "pow":
            return [self.emit("abs", operands[:1], result_type[operands[0]]), operands[1]]
        if name == "div":
            divisor = self.emit("abs", [operands[1]], result_type[operands[1]])
            half = self.emit("constant", [], F64, before="0.5")
            return [operands[0], self.emit("add", [divisor, half], result_type[operands[1]])]
        return operands

    def scalar(self):
        name = self.pick([*UNARY, *BINARY, "constant", "lerp", "select", "compare", "logic",
                          "is_finite"])  # fmt: skip
        if name == "constant":
            return self.constant()
        if name == "select":
            operands = [self.a_flag(), self.a_scalar(), self.a_scalar()]
            return self.emit("select", operands, F64)
        if name == "compare":
            operands = [self.a_scalar(), self.a_scalar()]
            return self.emit("compare", operands, I1, before=f"{self.pick(PREDICATES)}, ")
        if name == "logic":
            if self.coin(0.3):
                return self.emit("not", [self.a_flag()], I1)
            return self.emit(self.pick(["and", "or"]), [self.a_flag(), self.a_flag()], I1)
        if name == "is_finite":
            return self.emit("is_finite", [self.a_scalar()], I1)
        count = 1 if name in UNARY else 3 if name == "lerp" else 2
        return self.emit(name, self.tamed(name, [self.a_scalar() for _ in range(count)]), F64)

    def power(self):
        counts = self.find(I64)
        kind = self.pick(["powi", "to_f64", "pow"] if counts else ["pow"])
        if kind == "powi":
            return self.emit("powi", [self.a_scalar(), self.pick(counts)], F64, typed=False)
        if kind == "to_f64":
            return self.emit("to_f64", [self.pick(counts)], F64, typed=False)
        base = self.a_scalar()
        if self.program.tame:
            base = self.emit("abs", [base], F64)
        return self.emit("pow", [base, self.a_scalar()], F64, typed=False)

    # Tensors.

    def shape_of(self, names):
        """The dims of what is made of these, scalars left out."""
        shapes = [self.program.types[n].dims for n in names if self.program.types[n].dims]
        return tuple(next((d for d in column if d != "1"), "1")
                     for column in zip(*shapes, strict=True))  # fmt: skip

    def fitting(self, names):
        """Of these, those of the rule's dims or 1: states of one element have another rank."""
        return [n for n in names if covers(self.dims, self.program.types[n].dims)]

    def a_tensor(self):
        names = self.plain(self.fitting(self.tensors()))
        full = [n for n in names if self.program.types[n].dims == self.dims]
        return self.recent(full if full and self.coin(0.5) else names)

    def operands(self, count):
        """At least one of them a tensor."""
        tensor_at = int(self.rng.integers(count))
        return [self.a_scalar() if i != tensor_at and self.coin(0.3) else self.a_tensor()
                for i in range(count)]  # fmt: skip

    def arithmetic(self):
        name = self.pick([*UNARY, *BINARY, *BINARY, "lerp", "pow"])
        count = 1 if name in UNARY else 3 if name == "lerp" else 2
        names = self.tamed(name, self.operands(count))
        return self.emit(name, names, tensor(self.shape_of(names)))

    def small(self):
        """An operation on states of one element."""
        names = [n for n in self.tensors() if self.program.types[n].dims == ("1",) != self.dims]
        if not names:
            return self.arithmetic()
        one = self.pick(names)
        if self.coin():
            return self.whole(self.pick(["sum", "amax", "mean"]), one)
        return self.emit(self.pick(BINARY), [one, self.a_scalar()], self.program.types[one])

    def masks(self):
        known = self.fitting(self.tensors(word="mask"))
        kind = self.pick(["compare", "compare", "is_finite", "logic", "not"])
        if kind == "is_finite":
            name = self.a_tensor()
            return self.emit("is_finite", [name], mask(self.program.types[name].dims))
        if kind == "compare" or not known:
            names = self.operands(2)
            return self.emit("compare", names, mask(self.shape_of(names)),
                             before=f"{self.pick(PREDICATES)}, ")  # fmt: skip
        one = self.pick(known)
        if kind == "not":
            return self.emit("not", [one], self.program.types[one])
        names = [one, self.a_flag() if self.coin() else self.pick(known)]
        return self.emit(self.pick(["and", "or"]), names, mask(self.shape_of(names)))

    def select(self):
        known = self.fitting(self.tensors(word="mask"))
        guarded = self.fitting(self.tensors(guarded=True))
        if guarded and self.coin():
            one, other = self.pick(guarded), self.pick(self.fitting(self.tensors(guarded=False)))
            names = [self.program.guard, one, other]
            dims = self.shape_of(names)
            return self.emit("select", names, tensor(dims), unguard=True)
        names = self.operands(2)
        condition = self.pick(known) if known and self.coin(0.7) else self.a_flag()
        names = [condition, *names]
        return self.emit("select", names, tensor(self.shape_of(names)))

    def together(self, name):
        """The tensor, and now and then another one that is reduced with it."""
        dims = self.program.types[name].dims
        alike = [n for n in self.tensors() if self.program.types[n].dims == dims]
        return [name, self.pick(alike)] if self.coin(0.15) else [name]

    def whole(self, kind, name):
        """A reduction of the whole tensor; some are used only where a flag says so."""
        result = self.emit(kind, self.together(name), F64)
        if self.coin(0.8):
            return result
        self.values.remove(result)
        operands = [result, self.a_scalar()][:: self.pick([1, -1])]
        return self.emit("select", [self.a_flag(), *operands], F64)

    def square(self):
        """The mean of the square of a product, whose order of additions is free: of a factor
        that lacks dims, or of the least of a scalar and of two that do."""
        names = self.fitting(self.tensors(guarded=False))
        full = [n for n in names if self.program.types[n].dims == self.dims]
        lacking = [n for n in names if "1" in self.program.types[n].dims]
        if not full or not lacking:
            return self.reduce()
        factor = self.pick(lacking)
        if self.coin():
            factors = [self.emit("abs", [n], self.program.types[n])
                       for n in (self.pick(names), factor)]  # fmt: skip
            product = self.emit("mul", factors, tensor(self.shape_of(factors)))
            bound = [product, self.a_scalar()]
            factor = self.emit("minimum", bound, self.program.types[product])
        factors = [self.pick(full), factor]
        product = self.emit("mul", factors, tensor(self.dims))
        squared = self.emit("mul", [product, product], tensor(self.dims))
        return self.emit(self.pick(["sum", "mean"]), [squared], F64, after=" reassociable")

    def reduce(self):
        name = self.a_tensor()
        dims = self.program.types[name].dims
        kind = self.pick(["sum", "mean", "mean", "amax"])
        named = [d for d in dims if d != "1" and d != "*" and not d.startswith("...")]
        if self.coin() or not named or len(set(named)) != len(named):
            return self.whole(kind, name)
        over = [d for d in named if self.coin()] or [self.pick(named)]
        kept = tuple("1" if d in over else d for d in dims)
        names = self.together(name)
        return self.emit(kind, names, tensor(kept), after=f" over [{', '.join(over)}]")

    def grow(self, number):
        """Some more operations."""
        kinds = [self.arithmetic] * 6 + [self.reduce] * 3 + [self.select] * 2
        kinds += [self.scalar] * 3 + [self.masks, self.power, self.small, self.square]
        if self.maker.has_matrices and is_matrix(self.dims or ()):
            kinds += [self.multiply] * 3 + [self.on_others] * 3 + [self.extent]
        if self.dims is None:
            kinds = [self.scalar] * 6 + [self.power]
        for _ in range(number):
            self.pick(kinds)()

    def of_type(self, type_, guarded):
        """A value to store in something of that type."""
        names = self.find(type_, None if guarded else False)
        # A sum with what is there gives a tensor of fewer dims the type that is wanted.
        fitting = [n for n in self.fitting(self.tensors(guarded=False))
                   if covers(self.dims, type_.dims)]  # fmt: skip
        if fitting and self.coin(0.15):
            names_ = [self.recent(fitting), self.pick(names)]
            if self.shape_of(names_) == type_.dims:
                return self.emit("add", names_, type_)
        return self.recent(names)


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
