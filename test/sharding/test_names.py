# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No name means anything but itself: every word that layouts, sizes, kernels, manifests or the
language have for something of their own is tried as the name of whatever can have a name. Cut
by rows, by columns and as ranges, with the bits of the unsharded run and within the bounds of
the interpreter."""

import numpy as np
import pytest
from definitions import Definition
from layouts import ShardedPackages
from oracle import store
from placement import Dims, Flat, even_cuts
from ranks import Sharded
from stepc._mesh import Mesh
from steps import Case, Group, Packages, Tensor
from stepwise import judge_bits, judge_bounds, run_twice

# Those of layouts, sizes and kernels; of memory; of the language; of files and messages.
WORDS = [
    "flat", "rows", "blocks", "range", "B", "N", "M", "whole", "owners", "layout",
    "temp0", "partial0", "exchange0", "carried0", "slot0", "input", "phase0", "master", "remainder",
    "count", "fresh", "state", "param", "grad", "position", "rank", "extent", "model", "group",
    "scalars", "step", "sum", "unless", "across", "if", "true", "not", "as", "kept",
    "round0", "skipped", "report", "scalar", "variants", "dims", "name", "options", "rounding_seed",
]  # fmt: skip
# What the words are names of. Each takes the next word, so that each word is each of them.
ROLES = [
    "optimizer", "hyper", "option", "integer", "scalar", "statistic", "report", "matrix", "any",
    "b", "n", "m", "row", "col", "full", "first_axis", "second_axis",
]  # fmt: skip
STATES = ["row", "col", "full"]
REFUSED = {"param", "grad", "position"}  # as states: roles whose arrays are called so

DEFINITION = """
step.optimizer @{optimizer} {{
  %lr = step.hyper "{hyper}" = 0.125
  %on = step.option "{option}" = true
  %least = step.option "{integer}" = 2
  %kept = step.scalar "{scalar}" = 0.5 over model
  %norm = step.statistic "{statistic}" sum over model
  %one = step.constant 1.0
  %rate = step.scalars over model {{
    %shifted = step.add %norm, %one : f64
    %root = step.sqrt %shifted : f64
    %next = step.add %kept, %root : f64
    step.update %kept, %next
    step.report "{report}", %next
    %rate = step.div %lr, %next : f64
    step.yield %rate : f64
  }}
  step.rule @{matrix}(%p: param[...{b}, {n}, {m}], %g: grad[...{b}, {n}, {m}],
                      %r: state "{row}"[...{b}, {n}, 1], %c: state "{col}"[...{b}, 1, {m}],
                      %f: state "{full}"[...{b}, {n}, {m}] if %on, %first: fresh("{full}"))
      where rank ge %least {{
    %gg = step.mul %g, %g : [...{b}, {n}, {m}]
    %size = step.sum %gg : [...{b}, {n}, {m}]
    step.contribute %norm, %size
    %row = step.mean %gg over [{m}] : [...{b}, {n}, {m}]
    %col = step.mean %gg over [{n}] : [...{b}, {n}, {m}]
    %r1 = step.add %r, %row : [...{b}, {n}, 1]
    %c1 = step.add %c, %col : [...{b}, 1, {m}]
    %rc = step.mul %r1, %c1 : [...{b}, {n}, 1], [...{b}, 1, {m}]
    %e = step.add %rc, %one : [...{b}, {n}, {m}], f64
    %u = step.div %g, %e : [...{b}, {n}, {m}]
    %sum = step.add %f, %u : [...{b}, {n}, {m}]
    %f1 = step.select %first, %u, %sum : [...{b}, {n}, {m}]
    %d = step.select %on, %f1, %u : [...{b}, {n}, {m}]
    %v = step.mul %d, %rate : [...{b}, {n}, {m}], f64
    %p1 = step.sub %p, %v : [...{b}, {n}, {m}]
    step.return %p1, %r1, %c1, %f1 : [...{b}, {n}, {m}], [...{b}, {n}, 1], [...{b}, 1, {m}],
        [...{b}, {n}, {m}]
  }}
  step.rule @{any}(%p: param[*], %g: grad[*], %f: state "{full}"[*]) {{
    %size = step.sum %g, %f : [*]
    step.contribute %norm, %size
    %f1 = step.add %f, %g : [*]
    %v = step.mul %f1, %rate : [*], f64
    %p1 = step.sub %p, %v : [*]
    step.return %p1, %f1
  }}
}}
"""


def names_from(first):
    """The word, and those that follow it, for the roles in order."""
    names = {}
    for at, role in enumerate(ROLES, WORDS.index(first)):
        word = WORDS[at % len(WORDS)]
        if role in STATES and word in REFUSED:
            word = WORDS[(at + len(REFUSED)) % len(WORDS)]  # behind them
        names[role] = word
    return names


def make_model(names, path):
    rng, storages, tensors = np.random.default_rng(1), ("f32", "f32", "f32"), []
    path.write_text(DEFINITION.format(**names))
    axes = (names["first_axis"], names["second_axis"])
    shapes = [(6, 5), (3, 4, 7), (9, 8), (2, 6, 5), (11,), (13,)]
    for shape in shapes:
        wanted = {"param": shape, "grad": shape, names["full"]: shape}
        if len(shape) > 1:
            wanted[names["row"]] = (*shape[:-1], 1)
            wanted[names["col"]] = (*shape[:-2], 1, shape[-1])
        arrays = {n: store(np.abs(rng.standard_normal(s)), "f32") for n, s in wanted.items()}
        tensors.append(Tensor(shape, storages, arrays, fresh=True))
    placements = [
        Dims({0: axes}), Dims({2: axes[:1], 1: axes[1:]}), Flat(axes, even_cuts(72, 4)),
        Flat(axes[1:], even_cuts(60, 2)), Dims({0: axes[1:]}), Flat(axes, even_cuts(13, 4)),
    ]  # fmt: skip
    definition = Definition(path, flags=["--reproducible"])
    case = Case(definition, [Group(hypers={names["hyper"]: 0.25})], tensors, steps=2)
    return Sharded(case, Mesh(axes, (2, 2)), placements)


@pytest.mark.sample(one_of=4)
@pytest.mark.parametrize("word", WORDS)
def test_names(word, tmp_path):
    model = make_model(names_from(word), tmp_path / "named.mlir")
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare([model])
    assert list(judge_bounds([model], packages)) == [None]
    assert judge_bits(model, run_twice(model, packages), packages) is None


def test_each_word_is_each_name():
    tried = {(role, word) for first in WORDS for role, word in names_from(first).items()}
    states = {(role, word) for role in STATES for word in REFUSED}
    assert {(role, word) for role in ROLES for word in WORDS} == tried | states
