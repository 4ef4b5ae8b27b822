# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes a failing program, and what it is run on, smaller while it still fails."""

from __future__ import annotations

import copy
import time
from dataclasses import replace as replaced

from program import FLAG


def operations(program):
    for block in program.blocks():
        yield from ((block, op) for op in block)


def drop_unused(program):
    """Operations whose results nothing uses."""
    while True:
        used = {o for _, op in operations(program) for o in op.operands}
        used |= {v for call in program.calls for v in call.yields}
        used |= {v for rule in program.rules for v in rule.returns}
        unused = [(b, op) for b, op in operations(program) if op.result and op.result not in used]
        if not unused:
            return program
        for block, op in unused:
            block.remove(op)


def replace(program, old, new):
    for _, op in operations(program):
        op.operands = [new if o == old else o for o in op.operands]
    for block in program.calls:
        block.yields = [new if v == old else v for v in block.yields]
    for rule in program.rules:
        rule.returns = [new if v == old else v for v in rule.returns]


def stand_ins(program, block, op):
    """Values that may stand for the operation's result: its operands, and what the
    rule or the optimizer declares."""
    type_ = program.types[op.result]
    names = list(op.operands)
    for rule in program.rules:
        if rule.ops is block:
            names += [rule.argument(n) for n in ("g", "p", *(s.name for s in rule.states))]
            names += [rule.argument("first")]
    names += [f"%{n}" for n, _ in [*program.hypers, *program.options]]
    known = program.types
    return [n for n in dict.fromkeys(names) if known.get(n) == type_
            and (n not in program.guarded or op.result in program.guarded)]  # fmt: skip


def smaller_programs(program):
    """Changes, those that may save most first."""

    def changed(change):
        one = copy.deepcopy(program)
        change(one)
        return drop_unused(one)

    for index, rule in enumerate(program.rules):
        if len(program.rules) > 1:
            yield changed(lambda p, i=index: p.rules.pop(i))
        if rule.condition:
            yield changed(lambda p, i=index: setattr(p.rules[i], "condition", ""))
    for index, block in enumerate(program.blocks()):
        for position in reversed(range(len(block))):
            op = block[position]
            if op.result is None:
                yield changed(lambda p, i=index, k=position: p.blocks()[i].pop(k))
                continue
            for name in stand_ins(program, block, op)[:4]:

                def substitute(p, i=index, k=position, name=name):
                    replace(p, p.blocks()[i][k].result, name)
                    p.blocks()[i].pop(k)

                yield changed(substitute)
            if op.name != "constant" and program.types[op.result].word in ("f64", FLAG):

                def constant(p, i=index, k=position):
                    made = p.blocks()[i][k]
                    is_flag = p.types[made.result].word == FLAG
                    made.name, made.operands, made.after = "constant", [], ""
                    made.before, made.typed = "true" if is_flag else "0.5", True

                yield changed(constant)
    for index, rule in enumerate(program.rules):
        used = {o for op in rule.ops for o in op.operands}
        for position, state in enumerate(rule.written()):
            if rule.returns[1 + position] != rule.argument(state.name):

                def keep(p, i=index, k=position):
                    rule = p.rules[i]
                    rule.returns[1 + k] = rule.argument(rule.written()[k].name)

                yield changed(keep)
            elif rule.argument(state.name) not in used:

                def drop(p, i=index, k=position):
                    rule = p.rules[i]
                    rule.states.remove(rule.written()[k])
                    rule.returns.pop(1 + k)

                yield changed(drop)
        for position, state in enumerate(rule.states):
            if state.given and rule.argument(state.name) not in used:

                def drop_given(p, i=index, k=position):
                    p.rules[i].states.pop(k)

                yield changed(drop_given)
    for index in range(len(program.calls)):
        call = program.calls[index]
        used = {o for _, op in operations(program) for o in op.operands}
        used |= {v for c in program.calls for v in c.yields}
        used |= {v for rule in program.rules for v in rule.returns}
        if not any(v.startswith(f"%{call.name}#") for v in used):
            yield changed(lambda p, i=index: p.calls.pop(i))
            if call.yields:
                yield changed(lambda p, i=index: setattr(p.calls[i], "yields", []))
    used = {o for _, op in operations(program) for o in op.operands}
    for key in ("statistics", "kept"):
        for index, item in enumerate(getattr(program, key)):
            if f"%{item[0]}" not in used:
                yield changed(lambda p, k=key, i=index: getattr(p, k).pop(i))


def smaller_settings(setting):
    def changed(change):
        one = copy.deepcopy(setting)
        change(one)
        return one

    for index in range(len(setting.tensors)):
        if len(setting.tensors) > 1:
            yield changed(lambda s, i=index: s.tensors.pop(i))
    if setting.steps > 1:
        yield changed(lambda s: setattr(s, "steps", s.steps - 1))
    if len(setting.groups) > 1:

        def join(s):
            del s.groups[1:]
            for tensor in s.tensors:
                tensor.group = 0

        yield changed(join)
    for name, value in [("threads", 1), ("chunk", 0), ("scalars", {})]:
        if getattr(setting, name) != value:
            yield changed(lambda s, n=name, v=value: setattr(s, n, v))
    for index, tensor in enumerate(setting.tensors):
        for name, value in [("participates", None), ("placed", False), ("own_gradients", False),
                            ("given", False), ("count", 1), ("kind", "normal"), ("states", {}),
                            ("storages", ("f32",) * 3)]:  # fmt: skip
            if getattr(tensor, name) != value:
                yield changed(lambda s, i=index, n=name, v=value: setattr(s.tensors[i], n, v))
        for dim, extent in enumerate(tensor.shape):
            for less in dict.fromkeys([1, 2, extent // 2, extent - 1]):
                if 0 < less < extent:
                    shape = (*tensor.shape[:dim], less, *tensor.shape[dim + 1 :])
                    yield changed(lambda s, i=index, v=shape: setattr(s.tensors[i], "shape", v))
        if len(tensor.shape) > 1:
            yield changed(lambda s, i=index, v=tensor.shape[1:]: setattr(s.tensors[i], "shape", v))
        for spread in smaller_spreads(tensor.spread):
            yield changed(lambda s, i=index, v=spread: setattr(s.tensors[i], "spread", v))
    for sizes in smaller_meshes(setting.mesh):
        yield changed(lambda s, v=sizes: setattr(s, "mesh", v))


def smaller_meshes(sizes):
    """With an axis or some ranks less."""
    if len(sizes) > 1:
        yield sizes[:1]
        # The second axis has its name only beside a first.
        if sizes[0] > 1:
            yield (1, *sizes[1:])
    for axis, size in enumerate(sizes):
        for less in dict.fromkeys([2, size // 2, size - 1]):
            if 0 < less < size:
                yield (*sizes[:axis], less, *sizes[axis + 1 :])


def smaller_spreads(spread):
    """Of a tensor: whole, cut by fewer axes, cut evenly, on all ranks."""
    if spread is None:
        return
    for name, value in [("flat", ()), ("dims", {}), ("at", {}), ("cuts", "even")]:
        if getattr(spread, name) != value:
            yield replaced(spread, **{name: value})
    if len(spread.flat) > 1:
        yield from (replaced(spread, flat=(axis,)) for axis in spread.flat)
    for dim, axes in spread.dims.items():
        rest = {d: a for d, a in spread.dims.items() if d != dim}
        yield replaced(spread, dims=rest)
        if len(axes) > 1:
            yield from (replaced(spread, dims=rest | {dim: (axis,)}) for axis in axes)


def kind_of(text):
    """Two failures are the same where they are refused with the same words, or
    where values differ."""
    first = text.splitlines()[0] if text else ""
    if first.startswith("ranks: "):
        return "".join(c for c in first[:50] if not c.isdigit())
    if first.startswith(("compiled: ", "interpreted: ")):
        if "exit status" in first:
            for line in text.splitlines():
                if ": error: " in line:
                    return "compiled: " + "".join(c for c in line.split(": error: ")[1][:60]
                                                  if not c.isdigit())  # fmt: skip
            return "compiled: " + first[:40]
        return first[:50]
    return "values"


def shrink(program, setting, fails, seconds=120.0):
    """The smallest found for which ``fails(program, setting)`` gives a failure of the
    same kind; returns it with its failure."""
    text = fails(program, setting)
    wanted, end = kind_of(text), time.monotonic() + seconds
    progress = bool(text)
    while progress and time.monotonic() < end:
        progress = False
        for candidate in smaller_settings(setting):
            if time.monotonic() > end:
                break
            found = fails(program, candidate)
            if found and kind_of(found) == wanted:
                setting, text, progress = candidate, found, True
                break
        if progress:
            continue
        for candidate in smaller_programs(program):
            if time.monotonic() > end:
                break
            found = fails(candidate, setting)
            if found and kind_of(found) == wanted:
                program, text, progress = candidate, found, True
                break
    return program, setting, text
