# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models made tensor by tensor: on stages of a pipeline and on experts, with groups,
tensors that are bound late and hyper-parameters that change."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from definitions import Definition
from layouts import ShardedPackages, run
from oracle import ZOO, store, widen
from placement import Dims, Flat, even_cuts
from ranks import Sharded
from stepc._mesh import Mesh
from steps import Case, Group, Packages, Tensor
from values import fill

# Sums of parts are added in another order: a few roundings of f64 between them, of
# which mostly nothing is left after rounding.
NEAR = 1e-12
NEAR_ELEMENTS = 2e-6
EQUAL = 0.99


@dataclass
class Row:
    """A tensor of a model: where it lies, and what it has when."""

    shape: tuple
    placement: object
    group: int = 0
    idle: tuple = ()  # steps without a gradient
    late: int = 0  # the step before which it is bound
    grads: dict = field(default_factory=dict)  # of a step: the value of one element


def make_model(name, fragments, mesh, rows, groups=None, steps=3, hypers=None, options=None,
               storages=("f32",) * 3, scale=1.0):  # fmt: skip
    files = [ZOO / "fragments" / f"{fragment}.mlir" for fragment in fragments]
    definition = Definition(ZOO / f"{name}.mlir", files)
    known = {option["name"] for option in definition.interface["options"]}
    wanted = {"min_dim_size_to_factor": 2, **(options or {})}
    chosen = {n: v for n, v in wanted.items() if n in known}
    takes = {hyper["name"] for hyper in definition.interface["hypers"]}
    groups = [
        Group({n: v for n, v in given.items() if n in takes}, dict(chosen))
        for given in groups or [{}]
    ]
    tensors, late = [], {}
    for number, row in enumerate(rows):
        rng = np.random.default_rng([number, *map(ord, name)])
        arrays = {"param": fill(rng, "normal", row.shape, storages[0])}
        for step in range(steps):
            grad = np.array(fill(rng, "normal", row.shape, "f64")) * scale
            if step in row.grads:
                grad.reshape(-1)[-1] = row.grads[step]
            key = f"grad:{step}" if step else "grad"
            arrays[key] = fill_from(grad, storages[1])
        with_grad = [step >= row.late and step not in row.idle for step in range(steps)]
        tensors.append(
            Tensor(
                row.shape,
                storages,
                arrays,
                row.group,
                None if all(with_grad) else with_grad,
                1,
                True,
            )
        )
        if row.late:
            late[number] = row.late
    case = Case(definition, groups, tensors, steps, label=name, threads=1)
    return Sharded(case, mesh, [row.placement for row in rows], late, hypers or {})


def fill_from(values, storage):
    return np.asarray(store(np.asarray(values, np.float32), storage)).reshape(values.shape)


def differing(gathered, plain):
    """What is not nearly the unsharded run's; the share of elements that are it to the bit."""
    found, equal, number = [], 0, 0
    assert gathered.keys() == plain.keys()
    for name in plain:
        a, b = (widen(np.asarray(result[name])) for result in (gathered, plain))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        near = NEAR if ":" in name else NEAR_ELEMENTS
        with np.errstate(invalid="ignore"):
            if not (same | (np.abs(a - b) <= near * np.maximum(np.abs(a), np.abs(b)))).all():
                found.append(name)
        equal, number = equal + int(same.sum()), number + same.size
    return found, equal / max(number, 1)


def check(models, folder, bits=False):
    """Each on its mesh, beside the unsharded run; returns the unsharded results."""
    packages = ShardedPackages(Packages(folder))
    packages.prepare(models)
    results = []
    for model in models:
        with np.errstate(all="ignore"):
            gathered, plain, _ = run(model, packages)
        found, share = differing(gathered, plain)
        assert found == [], model.describe()
        assert share == 1 if bits else share > EQUAL, (share, model.describe())
        results.append(plain)
    return results


def stages(number, inner=1):
    """A pipeline, each stage of which has some ranks."""
    return Mesh(("pp", "dp"), (number, inner))


def on_stage(stage, shape, layout="whole", **more):
    """A tensor of one stage, as its ranks share it."""
    at, size = {"pp": stage}, int(np.prod(shape))
    placement = {
        "whole": lambda: Dims({}, at=at),
        "fsdp2": lambda: Dims({0: ("dp",)}, at=at),
        "tp": lambda: Dims({len(shape) - 1: ("dp",)}, at=at),
        "flat": lambda: Flat(("dp",), even_cuts(size, more.pop("parts", 2)), at),
    }[layout]()
    return Row(shape, placement, **more)
