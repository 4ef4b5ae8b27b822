# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random definitions whose sums are exact, so that every bit of a sharded step is the
unsharded one's: what is counted twice, or not at all, is no matter of rounding.

All that is added up is made of gradients of few bits (``values.fill``'s "few bits") on
extents that are powers of two. ``CountedBody.spans`` has, of such a value, how many bits it
has before the point and behind it; sums and means add those of the extents, and 22 in
all are exact in f32. What is not added up may be anything.
"""

from __future__ import annotations

from body import UNARY, Body
from generate import DIMS, Maker
from program import F64, I1, Call, Op, Rule, tensor

BITS = 22  # f32 has 24
GRADIENT = (4, 1)  # values.fill's: below 16, multiples of 1/2
# Bits of an extent: of a named dim, and of all batch dims.
NAMED, BATCH = 4, 3
EXTENTS = [2**k for k in range(NAMED + 1)]
BATCHES = [(), (), (1,), (2,), (4,), (8,), (2, 2), (4, 2)]


def make_shape(rng, dims):
    """One that fits the dims, of powers of two; mostly so long that ranks share it."""
    pick = lambda items: items[int(rng.integers(len(items)))]  # noqa: E731
    batch = pick(BATCHES) if dims[0].startswith("...") else ()
    extents = [pick(EXTENTS[1:] if rng.random() < 0.9 else EXTENTS) for _ in dims]
    return (*batch, *extents[dims[0].startswith("...") :])


class CountedBody(Body):
    """``spans``: of values whose sums are exact, their bits before the point and behind."""

    def __init__(self, maker, ops, prefix):
        super().__init__(maker, ops, prefix)
        self.spans = {}

    def exact(self, is_scalar=False):
        """Names of those values: tensors and vectors, or scalars."""
        return [v for v in self.spans if (self.program.types[v] == F64) == is_scalar]

    def combine(self, names):
        """An operation on exact values that is exact too; a flag may be of a round."""
        one, other = self.recent(names), self.recent(names)
        (before, behind), (before2, behind2) = self.spans[one], self.spans[other]
        most = (max(before, before2), max(behind, behind2))
        more = (most[0] + 1, most[1])
        spans = {"add": more, "sub": more, "mul": (before + before2, behind + behind2),
                 "maximum": most, "minimum": most, "select": most,
                 "abs": (before, behind), "neg": (before, behind)}  # fmt: skip
        name = self.pick(list(spans))
        if sum(spans[name]) > BITS:
            return
        operands = [one] if name in UNARY else [one, other]
        if name == "select":
            operands = [self.a_flag(), *operands]
        is_scalar = self.program.types[one] == F64
        type_ = F64 if is_scalar else tensor(self.shape_of(operands))
        self.spans[self.emit(name, operands, type_)] = spans[name]

    def reduced_span(self, kind, name, dims):
        """What a reduction over these dims may have."""
        before, behind = self.spans[name]
        bits = sum(BATCH if d.startswith("...") else NAMED for d in dims if d != "1")
        return (before + bits * (kind == "sum"), behind + bits * (kind == "mean"))

    def reduce_exactly(self, name, over=None):
        """Over some dims, or of the whole; None where that has too many bits."""
        dims = self.program.types[name].dims
        kind = self.pick(["sum", "sum", "mean", "amax", "amax"])
        span = self.reduced_span(kind, name, over or dims)
        if sum(span) > BITS:
            kind, span = "amax", self.spans[name]
        if over is None:
            made = self.emit(kind, [name], F64)
        else:
            kept = tensor(tuple("1" if d in over else d for d in dims))
            made = self.emit(kind, [name], kept, after=f" over [{', '.join(over)}]")
        self.spans[made] = span
        return made

    def reduce(self):
        """A reduction of a reduction, and so on: each over other dims."""
        name = self.recent(self.exact())
        while True:
            named = [d for d in self.program.types[name].dims
                     if d != "1" and not d.startswith("...")]  # fmt: skip
            if not named or self.coin(0.25):
                break
            over = [d for d in named if self.coin(0.2)] or [self.pick(named)]
            name = self.reduce_exactly(name, over)
        return self.reduce_exactly(name)

    def grow_exactly(self, number):
        for _ in range(number):
            if self.coin(0.6):
                self.combine(self.exact())
            else:
                self.reduce()
                self.combine(self.exact(is_scalar=True))

    def contributed(self):
        """An exact scalar; mostly one that nothing else uses, so that each rank contributes
        its part and the ranks do not combine them before."""
        if self.coin(0.2):
            return self.recent(self.exact(is_scalar=True))
        value = self.reduce()
        if self.coin(0.8):
            self.values.remove(value)
            del self.spans[value]
        return value

    def small(self):
        return self.arithmetic()


class CountedMaker(Maker):
    def __init__(self, seed):
        super().__init__(seed)
        self.program.exact = True

    def declare(self):
        program, types = self.program, self.program.types
        program.tame = True
        program.hypers, program.options = [("a", "0.5")], [("o", "false")]
        program.guard = "%o"
        rounds = self.number(1, 3)
        for k in range(self.number(2, 4)):
            kind, scope = self.pick(["sum", "sum", "amax"]), self.pick(["model", "group"])
            program.statistics.append((f"s{k}", kind, scope))
        program.kept = [("k", "0.0", self.pick(["model", "group"]))]
        for name in ["a", "k", *(name for name, _, _ in program.statistics)]:
            types[f"%{name}"] = F64
        types["%o"] = I1
        program.calls = [Call(f"r{k}", self.pick(["model", "group"])) for k in range(rounds)]
        self.readers = {name: self.number(0, rounds - 1) for name, _, _ in program.statistics}
        named = [dims for dims in DIMS if dims != ("*",) and len(set(dims)) == len(dims)]
        several = [dims for dims in named if {"n", "m"} <= {*dims}]
        program.rules = [Rule("first", self.pick([*named, *several]))]
        for rule in program.rules:
            self.declare_states(rule)

    def fill_call(self, call):
        """Reports the statistics that it may read first, so that each is seen."""
        super().fill_call(call)
        index, model = self.program.calls.index(call), call.scope == "model"
        for name, _, scope in self.program.statistics:
            if self.readers[name] == index and (scope == "model" or not model):
                call.ops.append(Op("report", [f"%{name}"], before=f'"{name}", ', typed=False))

    def fill_rule(self, rule):
        body = CountedBody(self, rule.ops, f"{rule.name}_")
        body.dims = rule.dims
        body.add(*self.shared(), *(rule.argument(n) for n in ("t", "first", "p", "g")))
        body.add(*(rule.argument(state.name) for state in rule.states))
        body.spans[rule.argument("g")] = GRADIENT
        body.spans[body.emit("constant", [], F64, before="1.0")] = (1, 0)
        calls, contributed = self.program.calls, set()
        for stage in range(len(calls) + 1):
            if stage:
                body.add(*self.results(calls[stage - 1 : stage]) * 2)
            body.grow_exactly(self.number(1, 4))
            for name, _, _ in self.program.statistics:
                if name in contributed or self.readers[name] < stage or not self.coin(0.7):
                    continue
                contributed.add(name)
                value = body.contributed()
                rule.ops.append(Op("contribute", [f"%{name}", value], typed=False))
        body.grow(self.number(1, 6))
        wanted = [(tensor(rule.dims), False)]
        wanted += [(tensor(state.dims), state.guarded) for state in rule.written()]
        rule.returns = [body.of_type(type_, guarded) for type_, guarded in wanted]
