# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products and transposes in random programs, and tensors of other dims than the param's."""

from __future__ import annotations

from program import F64, I1, I64, tensor

OPERATIONS = (
    "matmul", "transpose", "eigh", "eigenvalues", "qr", "diagonal", "sort", "first",
    "random_normal", "identity", "index",
)  # fmt: skip


def covers(dims, other):
    """Whether each dim of the second is that of the first in its place, or 1."""
    return len(dims) == len(other) and all(b in (a, "1") for a, b in zip(dims, other, strict=True))


def is_matrix(dims):
    return len(dims) >= 2 and not any(d == "*" or d.startswith("...") for d in dims[-2:])


def has_matrices(program):
    """Whether a rule needs whole matrices: no rank can have a part of its param."""
    return any(
        any(op.name in OPERATIONS or op.inner in OPERATIONS for op in rule.ops)
        or any(not covers(rule.dims, state.dims) for state in rule.states)
        for rule in program.rules
    )


def bound_dims(rng, rule, integers):
    """Dims that follow from the param's: the least of some numbers, or blocks of a dim.
    ``integers``: names of integer options."""
    *_, n, m = rule.dims
    if "1" in (n, m) or n == m:
        return []
    least = [str(int(rng.integers(1, 6))), *(f"%{name}" for name in integers)]
    choices = [("rk", f"min {least[-1]}, {n}, {m}"), ("rk", f"min {least[0]}, {m}"),
               ("bk", f"{m} / {int(rng.choice([2, 3, 64]))}"),
               ("bk", f"min {least[0]}, {n} / 2")]  # fmt: skip
    found = {}
    for _ in range(int(rng.integers(0, 3))):
        name, text = choices[int(rng.integers(len(choices)))]
        found[name] = text
    return list(found.items())


def bound_dim(name, text):
    """As the compiler's interface has it."""
    text, _, per = text.partition(" / ")
    made = {"name": name, "least_of": [], "per": int(per or 1)}
    for word in text.removeprefix("min ").split(", "):
        if word.startswith("%"):
            made["option"] = word[1:]
        elif word.isdigit():
            made["most"] = int(word)
        else:
            made["least_of"].append(word)
    return made


def other_dims(rng, rule):
    """Dims of a state that are the param's in another order, or the rule's own."""
    *batch, n, m = rule.dims
    choices = [(n, n), (m, m), (m, n), ("1", n)]
    for name, _ in rule.bound:
        choices += [(n, name), (m, name), (name, m), (name, name)]
    return (*batch, *choices[int(rng.integers(len(choices)))])


class Matrices:
    """What a body computes of matrices; the rest of it works on tensors of the param's dims."""

    def matrices(self):
        names = self.tensors(guarded=False)
        return [n for n in names if is_matrix(self.program.types[n].dims)]

    def transposed(self, name):
        *batch, n, m = self.program.types[name].dims
        return self.emit("transpose", [name], tensor((*batch, m, n)))

    def multiply(self):
        """Of a matrix and what fits it, by itself where nothing does."""
        names = self.matrices()
        if not names:
            return self.arithmetic()
        one = self.recent(names)
        *batch, rows, along = self.program.types[one].dims
        fitting = [n for n in names if self.program.types[n].dims[:-1] == (*batch, along)]
        other = self.pick(fitting) if fitting and self.coin(0.6) else self.transposed(one)
        columns = self.program.types[other].dims[-1]
        said = [self.pick(["accumulate = f64", "factors = bf16"])] * self.coin(0.4)
        said += ["symmetric"] * (rows == columns and self.coin(0.3))
        after = f" {{{', '.join(said)}}}" if said else ""
        return self.emit("matmul", [one, other], tensor((*batch, rows, columns)), after=after)

    def squares(self):
        """Matrices of as many rows as columns."""
        types = self.program.types
        return [n for n in self.matrices() if types[n].dims[-1] == types[n].dims[-2] != "1"]

    def gram(self):
        """A symmetric matrix."""
        one = self.recent(self.matrices())
        turned = self.transposed(one)
        *batch, rows, _ = self.program.types[one].dims
        return self.emit("matmul", [one, turned], tensor((*batch, rows, rows)),
                         after=" {accumulate = f64}" if self.coin() else "")  # fmt: skip

    def decompose(self):
        """Of any square matrix: its lower half is read."""
        if not self.matrices():
            return self.arithmetic()
        names = self.squares()
        one = self.recent(names) if names and self.coin() else self.gram()
        if self.program.types[one].dims[-1] == "1":
            return self.multiply()
        *batch, rows, _ = self.program.types[one].dims
        made = self.pick(["eigh", "eigenvalues", "both"])
        if made != "eigh":
            values = self.emit("eigenvalues", [one], tensor((*batch, "1", rows)))
        return (
            values if made == "eigenvalues" else self.emit("eigh", [one], self.program.types[one])
        )

    def written(self):
        """A matrix that is made of no other, of the dims of one that is there."""
        names = self.matrices()
        if not names:
            return self.arithmetic()
        *batch, rows, columns = self.program.types[self.recent(names)].dims
        choices = [("identity", (n, n)) for n in (rows, columns) if n != "1"]
        choices += [("index", (rows, "1")), ("index", ("1", columns))]
        kind, dims = self.pick(choices)
        type_ = tensor((*batch, *dims))
        return self.emit(kind, [], type_, after=f" : {type_}", typed=False)

    def basis(self):
        """Of the columns of a square matrix."""
        names = self.squares()
        if not names:
            return self.decompose()
        one = self.recent(names)
        return self.emit("qr", [one], self.program.types[one])

    def sorted(self):
        """By the diagonal of a square matrix, or by any row."""
        types, squares = self.program.types, self.squares()
        names = [n for n in self.matrices() if types[n].dims[-1] != "1"]
        if not names:
            return self.decompose()
        one = self.recent(names)
        *batch, _, columns = types[one].dims
        rows = tensor((*batch, "1", columns))
        keys = [n for n in self.matrices() if types[n] == rows]
        fitting = [n for n in squares if types[n].dims == (*batch, columns, columns)]
        if fitting and (not keys or self.coin()):
            keys = [self.emit("diagonal", [self.pick(fitting)], rows)]
        if not keys:
            return self.decompose()
        return self.emit("sort", [one, self.pick(keys)], types[one])

    def normals(self):
        """Random numbers of a matrix's dims, of any seed."""
        names, counts = self.matrices(), self.find(I64)
        if not names or not counts:
            return self.multiply()
        type_ = self.program.types[self.recent(names)]
        own = [self.a_scalar(), self.pick(counts)]
        before = self.pick(['"a" ', '"b" '])
        return self.emit("random_normal", own, type_, before=before, after=f" : {type_}",
                         typed=False)  # fmt: skip

    def first_columns(self):
        """As many as a dim of the rule has that is the least of them and others; or all."""
        names = self.matrices()
        if not names:
            return self.arithmetic()
        one = self.recent(names)
        *batch, rows, columns = self.program.types[one].dims
        less = [name for name, text in self.bound if columns in text.replace(",", " ").split()]
        kept = self.pick([*less, columns])
        if kept == "1":
            return self.multiply()
        return self.emit("first", [one], tensor((*batch, rows, kept)), after=f", {kept}")

    def now_and_then(self):
        """A flag that is known before the step."""
        counts, names = self.find(I64), [f"%{name}" for name, _ in self.program.hypers]
        flags = [v for v in self.find(I1) if v.endswith("_first")]
        if counts and (not flags or self.coin(0.8)):
            gap = self.emit("constant", [], F64, before=self.pick(["1.0", "2.0", "3.0"]))
            gap = gap if self.coin(0.7) else self.pick(names)
            return self.emit("every", [gap, self.pick(counts)], I1, typed=False)
        return self.pick(flags) if flags else None

    def when(self):
        """What is made of matrices in some steps, else something of its type."""
        due = self.now_and_then()
        names = self.matrices()
        if due is None or not names:
            return self.multiply()
        types = self.program.types
        old = self.recent(names)
        inner = self.pick(["transpose", "eigh", "qr", "matmul", "add"])
        *batch, rows, columns = types[old].dims
        if inner == "matmul":
            own = self.factors(old)
        elif inner == "add":
            own = [old, self.pick([n for n in names if types[n] == types[old]])]
        else:
            shape = (*batch, columns, rows) if inner == "transpose" else (*batch, rows, rows)
            fitting = [n for n in names if types[n].dims == shape]
            own = (
                [self.pick(fitting)]
                if fitting and (inner == "transpose" or rows == columns)
                else None
            )
        if not own:
            return self.multiply()
        return self.emit("when", [due, old, *own], types[old], inner=inner)

    def factors(self, like):
        """Two matrices whose product has the type of another; null where there are none."""
        types = self.program.types
        pairs = [
            [a, b]
            for a in self.matrices()[-8:]
            for b in self.matrices()[-8:]
            if types[a].dims[-1] == types[b].dims[-2]
            and types[a].dims[:-2] == types[b].dims[:-2]
            and (*types[a].dims[:-1], types[b].dims[-1]) == types[like].dims
        ]
        return self.pick(pairs) if pairs else None

    def repeat(self):
        """Again and again; what a rule returns, an operation makes of it."""
        names, types = self.matrices(), self.program.types
        if not names:
            return self.arithmetic()
        one = self.recent(names)
        alike = [n for n in names if types[n] == types[one]]
        if one in self.squares() and self.coin(0.5):
            inner, own = "matmul", [self.pick(alike)]
        else:
            inner, own = self.pick(["sub", "lerp"]), [self.pick(alike)]
        if inner == "lerp":
            own.append(self.a_scalar())
        times = f"{self.pick([0, 1, 2, 3])} "
        made = self.emit("repeat", [one, *own], types[one], inner=inner, before=times)
        self.values.remove(made)
        return self.emit("neg", [made], types[one])

    def on_others(self):
        """An operation on tensors of other dims than the param's."""
        others = [n for n in self.matrices() if not covers(self.dims, self.program.types[n].dims)]
        if not others:
            return self.multiply()
        one = self.recent(others)
        type_ = self.program.types[one]
        alike = [n for n in others if self.program.types[n] == type_]
        kind = self.pick(["add", "mul", "lerp", "sum", "maximum", "transpose", "over"])
        if kind == "transpose":
            return self.transposed(one)
        if kind == "sum":
            return self.emit(self.pick(["sum", "mean", "amax"]), [one], F64)
        if kind == "over":
            over = type_.dims[-1]
            if over == "1" or type_.dims.count(over) > 1:
                return self.multiply()
            left = tensor((*type_.dims[:-1], "1"))
            return self.emit(self.pick(["sum", "mean", "amax"]), [one], left,
                             after=f" over [{over}]")  # fmt: skip
        second = self.pick(alike) if self.coin() else self.a_scalar()
        operands = [one, second] + ([self.a_scalar()] if kind == "lerp" else [])
        return self.emit(kind, operands, type_)

    def extent(self):
        dims = [d for d in self.dims if d != "1"] + [name for name, _ in self.bound]
        dim = self.pick(dims)
        return self.emit("extent", [], F64, before=dim, typed=False)
