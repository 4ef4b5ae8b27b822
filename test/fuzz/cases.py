# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models on which random programs are run: made of the program's seed.

The values of an array follow from the seed, the tensor's number, the array's name
and its shape, so that a shape can be made smaller and the case still be said in a
few words.
"""

from __future__ import annotations

import copy
import itertools
import zlib
from dataclasses import dataclass, field

import numpy as np
from counted import make_shape as make_exact_shape
from definitions import Definition
from matrices import bound_dim, has_matrices
from steps import Case, Group, Tensor
from values import EXTENTS, FILLS, fill, random_place

NUMBERS = [0.25, 0.0, 1.0, -0.3, 0.9]
BIG = [(65, 70), (3, 1025), (129, 33), (2, 65, 17), (1, 4097), (66, 1030), (2100,), (2, 3, 5, 1025),
       (70, 3, 1030), (2, 70, 3, 130), (130, 2, 5, 7), (3, 66, 2, 5, 17)]  # fmt: skip


@dataclass
class Tensors:
    """What a tensor of a case is made of."""

    shape: tuple
    storages: tuple
    states: dict
    kind: str
    group: int
    participates: list | None
    count: int
    fresh: bool | None  # None: of the states that are not given
    given: bool
    missing: frozenset  # names of states that are not given where others are
    placed: bool
    own_gradients: bool
    spread: object = None  # how it lies on the mesh (spread.py)


@dataclass
class Setting:
    """What a case is made of, beside the program."""

    groups: list
    tensors: list
    steps: int
    threads: int
    chunk: int
    scalars: dict = field(default_factory=dict)
    mesh: tuple = ()  # the sizes of its axes, where tensors are sharded


def read_over_model(program):
    """Hyper-parameters and options that must be equal in all groups."""
    names = set()
    for call in program.calls:
        if call.scope == "model":
            for op in call.ops:
                names |= {operand[1:] for operand in op.operands}
            names |= {value[1:] for value in call.yields}
    for name, text in program.options:
        if name in names and text.startswith("%"):
            names.add(text.split()[0][1:])
    return names


def extent(rng):
    return int(rng.choice(EXTENTS[1:16]) if rng.random() < 0.95 else 0)


def make_shape(rng, dims, most, squares=False):
    """One that fits the dims. ``squares``: matrices of the extents' squares are made."""
    if squares:
        most = 800
    if rng.random() < (0.05 if squares else 0.2):
        # What does not fit the dims is another rule's.
        big = [(65, 70), (129, 33), (7, 600), (530, 3)] if squares else BIG
        found = big[int(rng.integers(len(big)))]
        if fits(dims, found):
            return found
    while True:
        if dims == ("*",):
            shape = tuple(extent(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4])))
        elif len(dims) == 2 and dims[0] == dims[1]:
            shape = (extent(rng),) * 2
        else:
            batched = dims[0].startswith("...")
            leading = int(rng.choice([0, 0, 1, 1, 2])) if batched else 0
            shape = tuple(extent(rng) for _ in range(leading + len(dims) - batched))
        if np.prod([max(n, 1) for n in shape]) <= most:
            return shape


def fits(dims, shape):
    if dims == ("*",):
        return True
    if len(dims) == 2 and dims[0] == dims[1]:
        return len(shape) == 2 and shape[0] == shape[1]
    if dims[0].startswith("..."):
        return len(shape) >= len(dims) - 1
    return len(shape) == len(dims)


def make_setting(program):
    """Groups and tensors for a program."""
    rng = np.random.default_rng([program.seed, 1])
    coin = lambda chance=0.5: bool(rng.random() < chance)  # noqa: E731
    pick = lambda items: items[int(rng.integers(len(items)))]  # noqa: E731
    shared = read_over_model(program)
    own_options = [n for n, text in program.options if text in ("true", "false")]
    first = Group({n: pick(NUMBERS) for n, _ in program.hypers}, {n: coin() for n in own_options})
    groups = [first]
    for _ in range(pick([0, 0, 1, 2])):
        # Other options need other variants: mostly the same.
        hypers = {n: v if n in shared or coin() else pick(NUMBERS) for n, v in first.hypers.items()}
        options = {n: v if n in shared or coin(0.9) else coin() for n, v in first.options.items()}
        if any(text.startswith("%") for _, text in program.options) and coin(0.8):
            hypers["a"] = first.hypers["a"]
        groups.append(Group(hypers, options))
    steps = pick([1, 1, 2, 3])
    dims = [rule.dims for rule in program.rules]
    states = sorted({s.name for rule in program.rules for s in rule.states})
    storages = None
    tensors = []
    for _ in range(pick([1, 1, 2, 3]) + 2 * bool(program.statistics)):
        if storages is None or coin(0.1):
            param = pick(["f32", "bf16", "f64", "f16", "bf16"])
            others = {"f64": ["f32", "f64"], "f16": ["f32", "f16"]}.get(param, ["f32", "bf16"])
            storages = (param, pick(others), pick(others), {n: pick(others) for n in states})
        kind = pick(["normal", "wide"]) if program.tame else pick([*FILLS, "special", "special"])
        if program.exact:
            kind, shape = "few bits", make_exact_shape(rng, pick(dims))
        else:
            shape = make_shape(rng, pick(dims), 2500, has_matrices(program))
        tensors.append(Tensors(
            shape=shape, storages=storages[:3], states=storages[3],
            kind=kind, group=int(rng.integers(len(groups))),
            participates=[coin(0.7) for _ in range(steps)] if coin(0.3) else None,
            count=int(rng.integers(1, 30)), fresh=pick([True, False, None, None]),
            given=coin(0.7), missing=frozenset(n for n in states if coin(0.3)),
            placed=coin(0.6), own_gradients=coin()))  # fmt: skip
    scalars = {}
    for name, _, scope in program.kept:
        if coin(0.3):
            (scalars if scope == "model" else groups[0].scalars)[name] = pick(NUMBERS)
    return Setting(groups, tensors, steps, pick([1, 2, 3]), pick([0, 0, 1, 7, 100]), scalars)


def interface_of(program):
    """What the compiler would say, so that it need not be asked."""
    options = []
    for name, text in program.options:
        if text.startswith("%"):
            hyper, predicate, value = text[1:].split()
            derived = {"hyper": hyper, "predicate": predicate, "value": float(value)}
            options.append({"name": name, "derived": derived})
        else:
            default = {"true": True, "false": False}.get(text)
            options.append({"name": name, "default": int(text) if default is None else default})
    rules = []
    for rule in program.rules:
        states = [
            {"name": s.name, "dims": list(s.dims), "init": float(s.init),
             "guard": program.guard[1:] if s.guarded else None}
            for s in rule.states
        ]  # fmt: skip
        guard = [condition(c) for c in rule.condition.split(", ") if c]
        bound = [bound_dim(name, text) for name, text in rule.bound]
        rules.append({"name": rule.name, "dims": list(rule.dims), "states": states,
                      "guard": guard, "bound_dims": bound})  # fmt: skip
    hypers = [{"name": n, "default": float(v)} for n, v in program.hypers]
    return {"hypers": hypers, "options": options, "rules": rules}


def condition(text):
    words = text.split()
    if words[0] in ("rank", "extent"):
        made = {"rank": True} if words[0] == "rank" else {"extent": int(words[1])}
        right = words[-1]
        if words[-2] == "extent":
            return made | {"other_extent": int(right), "predicate": words[-3]}
        made |= {"option": right[1:]} if right.startswith("%") else {"value": int(right)}
        return made | {"predicate": words[-2]}
    return {"option": words[-1][1:], "holds": len(words) == 1}


def make_array(program, index, name, shape, kind, storage):
    rng = np.random.default_rng([program.seed, index, zlib.crc32(name.encode())])
    return fill(rng, kind, tuple(shape), storage)


# Half of plain packages, half of those that keep reductions from step to step.
FLAGS = [[], ["--exclusive-writes"]]


def make_case(program, setting, path, flags=None):
    """The case; None where a shape fits no rule. ``flags`` are the compiler's, by default
    some of FLAGS."""
    flags = FLAGS[program.seed % len(FLAGS)] if flags is None else flags
    definition = Definition(path, interface=interface_of(program), flags=flags)
    tensors = []
    for index, made in enumerate(setting.tensors):
        group = setting.groups[made.group]
        if definition.rule(made.shape, group)[0] is None:
            return None
        names = definition.states(made.shape, group)
        shapes = {"param": made.shape, "grad": made.shape}
        if made.own_gradients:
            shapes |= {f"grad:{step}": made.shape for step in range(1, setting.steps)}
        given = {n: s for n, s in names.items() if made.given and n not in made.missing}
        shapes |= given
        fresh = made.fresh
        if fresh is None:  # as one who has these states would say it
            fresh = [n for n in names if n not in given] if given else True
        storages = {n: made.states.get(n, made.storages[2]) for n in names}
        one = Tensor(made.shape, made.storages, {}, made.group, made.participates, made.count,
                     fresh, {}, storages)  # fmt: skip
        one.arrays = {
            name: make_array(program, index, name, shape,
                             "normal" if name == "param" and program.tame else made.kind,
                             one.storage(name))
            for name, shape in shapes.items()
        }  # fmt: skip
        if made.placed:
            dense = definition.dense_states(made.shape, group)
            rng = np.random.default_rng([program.seed, index, 2])
            for name, shape in itertools.chain(shapes.items(), names.items()):
                one.places[name] = random_place(rng, shape, strided=name not in dense)
        tensors.append(one)
    groups = copy.deepcopy(setting.groups)
    kept = {name for name, _, _ in program.kept}  # shrinking drops some
    for group in groups:
        group.scalars = {n: v for n, v in group.scalars.items() if n in kept}
    scalars = {n: v for n, v in setting.scalars.items() if n in kept}
    return Case(definition, groups, tensors, setting.steps, scalars,
                setting.threads, setting.chunk, f"seed {program.seed}")  # fmt: skip
