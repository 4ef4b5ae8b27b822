# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random operations of a rule, of a call and of scalars."""

from __future__ import annotations

from matrices import Matrices, covers, is_matrix
from program import F64, I1, I64, Op, mask, tensor

CONSTANTS = ["0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "0.1", "1.0e-3", "1.0e-40", "1.0e+300"]
TAME_CONSTANTS = ["1.0", "-1.0", "2.0", "0.5", "0.1", "-0.25", "1.0e-3"]
PREDICATES = ["lt", "le", "gt", "ge", "eq", "ne"]
UNARY = ["neg", "abs", "sqrt", "sign", "floor", "exp", "log"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]


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
        name = self.pick([*UNARY, *BINARY, *BINARY, "lerp", "pow", "round"])
        if name == "round":
            (one,) = self.tamed(name, self.operands(1))
            narrow = f" to {self.pick(['bf16', 'f16', 'f32'])}"
            return self.emit(name, [one], self.program.types[one], after=narrow)
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
            kinds += [self.decompose, self.basis, self.sorted, self.first_columns, self.normals]
            kinds += [self.written]
            kinds += [self.when, self.when, self.repeat]
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
