# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random definitions: every operation, option, guard, storage and way to return."""

import numpy as np
from driver import random_array

CONSTANTS = ["0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "0.1", "1.0e-40", "1.0e+300"]
PREDICATES = ["lt", "le", "gt", "ge", "eq", "ne"]
UNARY = ["neg", "abs", "sqrt", "sign", "floor", "exp", "log"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]


class Program:
    """The text of a definition, made statement by statement.

    Tensors that need the guarded state are kept apart in ``guarded``: they may
    only be stored in it, or be taken by a select on its option.
    """

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines = []
        self.tensors, self.guarded = ["%p", "%g"], []
        self.scalars, self.conditions, self.masks = ["%a", "%b", "%c"], ["%o", "%d", "%first"], []
        self.states = ["s"] if self.coin() else []
        self.has_guarded = self.coin()
        self.guard = self.pick(["%o", "%d"])
        self.tensors += ["%" + name for name in self.states]
        if self.has_guarded:
            self.guarded.append("%x")
        for _ in range(int(self.rng.integers(1, 16))):
            self.pick([self.unary, self.binary, self.binary, self.lerp, self.compare, self.select,
                       self.scalar, self.power])()  # fmt: skip
        self.rule = self.finish()

    def coin(self, chance=0.5):
        return bool(self.rng.random() < chance)

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def emit(self, text, results):
        name = f"%v{len(self.lines)}"
        self.lines.append(f"    {name} = {text}")
        results.append(name)

    def operands(self, count):
        """Names and types, at least one of them a tensor, and where the result belongs."""
        names, types, results = [], [], self.tensors
        tensor_at = int(self.rng.integers(count))
        for position in range(count):
            if position != tensor_at and self.coin(0.3):
                names.append(self.pick(self.scalars))
                types.append("f64")
                continue
            if self.guarded and self.coin(0.2):
                names.append(self.pick(self.guarded))
                results = self.guarded
            else:
                names.append(self.pick(self.tensors))
            types.append("[*]")
        return ", ".join(names), ", ".join(types), results

    def unary(self):
        names, types, results = self.operands(1)
        self.emit(f"step.{self.pick(UNARY)} {names} : {types}", results)

    def binary(self):
        names, types, results = self.operands(2)
        self.emit(f"step.{self.pick(BINARY)} {names} : {types}", results)

    def lerp(self):
        names, types, results = self.operands(3)
        self.emit(f"step.lerp {names} : {types}", results)

    def compare(self):
        predicate = self.pick(PREDICATES)
        if self.coin():
            names = f"{self.pick(self.scalars)}, {self.pick(self.scalars)}"
            self.emit(f"step.compare {predicate}, {names} : f64", self.conditions)
        else:
            names = f"{self.pick(self.tensors)}, {self.pick(self.tensors)}"
            self.emit(f"step.compare {predicate}, {names} : [*]", self.masks)

    def select(self):
        if self.guarded and self.coin():
            names = f"{self.guard}, {self.pick(self.guarded)}, {self.pick(self.tensors)}"
            self.emit(f"step.select {names} : [*]", self.tensors)
        elif self.masks and self.coin():
            names, types, results = self.operands(2)
            mask = self.pick(self.masks)
            self.emit(f"step.select {mask}, {names} : mask[*], {types}", results)
        else:
            names, types, results = self.operands(2)
            condition = self.pick(self.conditions)
            self.emit(f"step.select {condition}, {names} : {types}", results)

    def scalar(self):
        name = self.pick([*UNARY, *BINARY, "constant", "lerp", "select"])
        if name == "constant":
            self.emit(f"step.constant {self.pick(CONSTANTS)}", self.scalars)
        elif name == "select":
            names = ", ".join(
                [self.pick(self.conditions), *(self.pick(self.scalars) for _ in "12")]
            )
            self.emit(f"step.select {names} : f64", self.scalars)
        else:
            count = 1 if name in UNARY else 3 if name == "lerp" else 2
            names = ", ".join(self.pick(self.scalars) for _ in range(count))
            self.emit(f"step.{name} {names} : f64", self.scalars)

    def power(self):
        if self.coin():
            self.emit(f"step.powi {self.pick(self.scalars)}, %t", self.scalars)
            return
        self.emit("step.to_f64 %t", self.scalars)
        self.emit(f"step.pow {self.pick(self.scalars)}, {self.pick(self.scalars)}", self.scalars)

    def recent(self, names):
        """Mostly one of the last, so that long chains are stored."""
        return self.pick(names[-3:]) if self.coin(0.7) else self.pick(names)

    def finish(self):
        returned = [self.recent(self.tensors) for _ in ["param", *self.states]]
        arguments = ["%p: param[*]", "%g: grad[*]"]
        arguments += [
            f'%{name}: state "{name}"[*] = {self.pick(CONSTANTS[:7])}' for name in self.states
        ]
        if self.has_guarded:
            arguments.append(f'%x: state "x"[*] if {self.guard}')
            returned.append(self.recent([*self.guarded, *self.tensors]))
        arguments += ["%t: count", "%first: fresh"]
        return [f"  step.rule @any({', '.join(arguments)}) {{", *self.lines,
                f"    step.return {', '.join(returned)}", "  }"]  # fmt: skip

    def text(self):
        head = [f'  %{name} = step.hyper "{name}" = 0.5' for name in "abc"]
        head.append('  %o = step.option "o" = false')
        head.append(f'  %d = step.option "d" = %a {self.pick(PREDICATES)} 0.25')
        return "\n".join(["step.optimizer @random {", *head, *self.rule, "}", ""])

    def case(self):
        """Arrays and settings of a case."""
        param = self.pick(["f32", "bf16", "f64", "f16"])
        # Beside f64 parameters the compiler takes no 16-bit floats, and none stores a value
        # in both kinds of them.
        others = {"f64": ["f32", "f64"], "f16": ["f32", "f16"]}.get(param, ["f32", "bf16"])
        grad, state = self.pick(others), self.pick(others)
        shape = (int(self.rng.integers(1, 200)),)
        numbers = [0.25, 0.0, 1.0, -0.3, float(self.rng.random())]
        settings = {
            "hypers": {name: self.pick(numbers) for name in "abc"},
            "options": {"o": self.coin()},
            "count": int(self.rng.integers(1, 30)),
            "fresh": self.coin(),
            "steps": 2,
            "state": state,
        }  # fmt: skip
        arrays = {"param": random_array(self.rng, shape, param),
                  "grad": random_array(self.rng, shape, grad)}  # fmt: skip
        for name in self.states:
            if self.coin():
                arrays[name] = random_array(self.rng, shape, state)
        return arrays, settings
