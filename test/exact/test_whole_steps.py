# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps of several tensors have the interpreter's bits: every definition of
the zoo, with fragments before and after it, in f32, bf16 and f64.

STEPC_STEP_CASES=200 runs so many cases for each package in place of a few, and
STEPC_ALL_FRAGMENTS=1 each definition behind all combinations of fragments; the first, and
STEPC_BREADTH=1, take larger matrices of definitions with eigenvectors.
"""

import os
from zlib import crc32

import numpy as np
import pytest
from definitions import Definition
from driver import STORAGES
from formulas import HYPERS as ELEMENTWISE
from oracle import ZOO
from papers import HYPERS as PAPERS
from papers import OF_MATRICES
from steps import Case, Group, Packages, Tensor, check
from torch_formulas import HYPERS as TORCH
from values import FILLS, RANKS, fill, random_place, random_shape

CASES = int(os.environ.get("STEPC_STEP_CASES", "10"))
HYPERS = ELEMENTWISE | TORCH | PAPERS
FRAGMENTS = [
    [], ["clip_by_norm"], ["unscale", "clip_by_inf_norm"], ["torch_scaler", "clip_by_norm"],
    ["colossal_scaler"], ["deepspeed_scaler", "clip_by_value"], ["clip_by_value", "clip_by_norm"],
    ["param_copy", "ema"], ["grad_scaler", "skip_nonfinite", "clip_by_norm", "ema"],
    ["unscale", "accumulation", "swa", "param_copy"],
]  # fmt: skip
# Each definition alone, and behind one of the combinations, which follows from its name.
CHOSEN = [
    (name, FRAGMENTS[i])
    for name in HYPERS
    for i in (
        range(10) if "STEPC_ALL_FRAGMENTS" in os.environ else (0, 1 + crc32(name.encode()) % 9)
    )
]
PROFILES = 4
# Several tiles of rows and columns.
LARGE = [(65, 4097), (129, 1025), (2, 65, 1023), (4097, 3), (5000,), (3, 65, 129), (257, 255),
         (1, 1, 2049), (2049, 33), (2, 2, 66, 129)]  # fmt: skip
# Of eigenvectors, which take minutes at the extents above: the long runs have those.
OF_EIGENVECTORS = {"apollo", "dion", "galore_adamw", "galore_adafactor", "shampoo", "soap"}
IS_LONG = "STEPC_STEP_CASES" in os.environ or os.environ.get("STEPC_BREADTH") == "1"


def profiles(rng, definition):
    """Storages, options and hyper-parameters that are 0: few, each is to be compiled."""
    made = []
    own = [o["name"] for o in definition.interface["options"] if isinstance(o.get("default"), bool)]
    compared = sorted({
        o["derived"]["hyper"] for o in definition.interface["options"] if "derived" in o
    })  # fmt: skip
    for index in range(PROFILES):
        options = {name: bool(rng.random() < 0.5) for name in own} if index else {}
        zeros = [name for name in compared if rng.random() < (0.4 if index else 0)]
        made.append((STORAGES[[0, 2, 1, 3][index]], options, zeros))
    return made


def make_group(rng, name, definition, options, zeros):
    hypers = {}
    for hyper in definition.interface["hypers"]:
        known = HYPERS[name].get(hyper["name"], hyper["default"])
        hypers[hyper["name"]] = float(known * (0.5 + rng.random()))
        if hyper["name"] in zeros:
            hypers[hyper["name"]] = 0.0
        elif hyper["name"] == "beta1" and known == 0:
            hypers["beta1"] = 0.8
    # Scalers are to grow, too.
    for interval in ("growth_interval", "scale_window"):
        if interval in hypers:
            hypers[interval] = float(rng.integers(1, 3))
    return Group(hypers, options)


def make_tensor(rng, shape, storages, group, definition, groups, kind, steps):
    special = kind in ("special", "huge", "one nan", "one inf", "one huge")
    param = fill(rng, "special" if kind == "special" else "normal", shape, storages[0])
    arrays = {"param": param, "grad": fill(rng, kind, shape, storages[1])}
    for step in range(1, steps):
        later = "normal" if special and rng.random() < 0.7 else kind
        arrays[f"grad:{step}"] = fill(rng, later, shape, storages[1])
    given = rng.random() < 0.6
    if given:
        for name, own in definition.states(shape, groups[group]).items():
            values = "special" if kind == "special" else "normal"
            arrays[name] = fill(rng, values, own, storages[2], not name.startswith("exp_avg"[:7])
                                or name != "exp_avg")  # fmt: skip
    participates = None
    if rng.random() < 0.4:
        participates = [bool(rng.random() < 0.7) for _ in range(steps)]
    places = {n: random_place(rng, shape) for n in ("param", "grad")}
    dense = definition.dense_states(shape, groups[group])
    for name, own in definition.states(shape, groups[group]).items():
        places[name] = random_place(rng, own, strided=name not in dense)
    return Tensor(shape, storages, arrays, group, participates, int(rng.integers(1, 40)),
                  not given, places)  # fmt: skip


def make_case(rng, name, definition, profile, index):
    storages, options, zeros = profile
    groups = [make_group(rng, name, definition, options, zeros)]
    for _ in range(int(rng.integers(0, 3))):
        # What is read over the model is equal in all groups.
        other = make_group(rng, name, definition, options, zeros).hypers
        shared = {n: v for n, v in groups[0].hypers.items() if n not in HYPERS[name]}
        shared |= {n: v for n, v in groups[0].hypers.items() if n == "max_grad_norm"}
        if name == "dadapt_sgd":
            shared = groups[0].hypers
        groups.append(Group(other | shared, options))
    kinds = [*FILLS, "special", "special", "normal", "normal", "normal"]
    kind = kinds[int(rng.integers(len(kinds)))]
    steps = int(rng.integers(1, 4))
    large = index % 5 == 4
    ranks, most, larger = RANKS, 6000, LARGE
    if name in OF_MATRICES:
        ranks, larger = (2,), LARGE[:2]
    if name in OF_EIGENVECTORS and not IS_LONG:
        most, larger = 1200, [(17, 260), (129, 20)]
    tensors = []
    for position in range(int(rng.integers(1, 6))):
        shape = random_shape(rng, most, ranks)
        if large and position == 0:
            shape = larger[int(rng.integers(len(larger)))]
        own = kind if rng.random() < 0.6 else "normal"
        group = int(rng.integers(len(groups)))
        tensors.append(make_tensor(rng, shape, storages, group, definition, groups, own,
                                   1 if large else steps))  # fmt: skip
    return Case(definition, groups, tensors, 1 if large else steps,
                threads=int(rng.integers(1, 4)), chunk=int(rng.choice([0, 0, 1, 3, 70000])),
                label=kind)  # fmt: skip


def make_cases(name, fragments, number=CASES, seed=0):
    files = [ZOO / "fragments" / f"{fragment}.mlir" for fragment in fragments]
    definition = Definition(ZOO / f"{name}.mlir", files)
    rng = np.random.default_rng([seed, *map(ord, name + "".join(fragments))])
    made = profiles(rng, definition)
    return [make_case(rng, name, definition, made[i % PROFILES], i) for i in range(number)]


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize(
    ("name", "fragments"), CHOSEN, ids=lambda v: v if isinstance(v, str) else "+".join(v) or "alone"
)
def test_whole_steps(name, fragments, tmp_path):
    failures = check(make_cases(name, fragments), Packages(tmp_path))
    assert not failures, "\n".join(failures)
