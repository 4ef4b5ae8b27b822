# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models at random: definitions, meshes, how tensors lie outside of a step, gradients that are
missing or overflow, sizes of buckets and the order in which gradients come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from definitions import Definition
from entries import Entry, Model, Tensor
from oracle import ZOO, store, widen
from stepc._mesh import Mesh
from values import fill

# With statistics, so compiled to have the same bits in every layout.
REDUCING = ["adafactor", "came", "lamb", "lars", "dadapt_adam"]
NAMES = ["adamw", "lion", "sgd", *REDUCING]
FRAGMENTS = [(), (), (), ("clip_by_norm",), ("torch_scaler",), ("torch_scaler", "clip_by_norm"),
             ("skip_nonfinite",), ("ema",)]  # fmt: skip
HYPERS = {"sgd": {"momentum": 0.9}, "clip_by_norm": {"max_norm": 1.0}}
SHAPES = [(), (1,), (3,), (17,), (1025,), (7, 5), (64, 33), (5, 1), (1, 9), (0, 4), (3, 65, 2),
          (33, 2, 3), (130, 3)]  # fmt: skip
KEPT = ["", "master=f32", "master=remainder", "rounding=stochastic"]
AXES = ("dp", "cp", "rep")
MODELS = 4  # of one program
ENTRIES = 3  # of a program
STORAGES = [("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f64", "f64")]


def random_mesh(rng, names):
    return Mesh(names, tuple(int(rng.integers(1, 5)) for _ in names))


def random_entry(rng, names, rank):
    """Of tensors with so many dims, on a mesh whose axes have these names."""
    axes = [name for name in names if rng.random() < 0.7] or [names[0]]
    inner, outer = [a for a in axes if a != "rep"], [a for a in axes if a == "rep"]
    kinds = ["flat", "flat", "rows" if rank else "flat", "owned", ""] if inner else [""]
    kind = str(rng.choice(kinds))
    whole = tuple(inner) if kind else ()
    partial = (tuple(inner) if rng.random() < 0.7 else ()) if kind else tuple(inner)
    partial += tuple(outer)
    wire = [None, None, "f32", "bf16", "f16"][int(rng.integers(5))]
    return Entry(kind, whole, partial, wire)


def random_grads(rng, mesh, shape, storage, partial, overflows):
    """A gradient of each rank: another one where ranks lie apart along an axis of ``partial``."""
    scale = float(rng.choice([1e-3, 1.0, 30.0]))
    places = [tuple(at for name, at in zip(mesh.names, mesh.coordinates(rank), strict=True)
                    if name in partial) for rank in range(int(np.prod(mesh.sizes)))]  # fmt: skip
    known = sorted(set(places))
    made = [fill(rng, "normal", shape, storage) for _ in known]
    if scale != 1.0:
        made = [store((widen(g) if g.dtype == np.uint16 else g) * scale, storage) for g in made]
    made = [np.array(g).reshape(shape) for g in made]
    if overflows and made[0].size:
        victim = made[int(rng.integers(len(made)))].reshape(-1)
        victim[int(rng.integers(victim.size))] = 0x7F80 if storage == "bf16" else np.inf
    return [made[known.index(place)] for place in places]


@dataclass
class Program:
    """What is compiled: models that have it in common share a package, which is what such a test
    takes longest with. ``entries``: ways to lie outside of a step, of tensors of a rank each."""

    definition: Definition
    hypers: dict
    options: dict
    storages: tuple
    kept: str
    axes: tuple
    entries: list


def random_program(seed, axes=None):
    rng = np.random.default_rng(seed)
    name = str(rng.choice(NAMES))
    fragments = FRAGMENTS[int(rng.integers(len(FRAGMENTS)))]
    reduces = name in REDUCING or "clip_by_norm" in fragments
    definition = Definition(
        ZOO / f"{name}.mlir", [ZOO / "fragments" / f"{f}.mlir" for f in fragments],
        flags=["--reproducible"] * reduces,
    )  # fmt: skip
    known = {h["name"] for h in definition.interface["hypers"]}
    hypers = {k: v for part in (name, *fragments) for k, v in HYPERS.get(part, {}).items()
              if k in known}  # fmt: skip
    options = {o["name"]: o["default"] for o in definition.interface["options"]
               if "derived" not in o}  # fmt: skip
    if "min_dim_size_to_factor" in options:
        options["min_dim_size_to_factor"] = 2
    storages = STORAGES[int(rng.integers(len(STORAGES)))]
    kept = str(rng.choice(KEPT)) if storages[0] == "bf16" else ""
    axes = axes or AXES[: int(rng.integers(1, 4))]
    ranks = [len(SHAPES[int(rng.integers(len(SHAPES)))]) for _ in range(ENTRIES)]
    entries = [(rank, random_entry(rng, axes, rank)) for rank in ranks]
    return Program(definition, hypers, options, storages, kept, axes, entries)


def random_tensor(rng, program):
    rank, entry = program.entries[int(rng.integers(ENTRIES))]
    shapes = [shape for shape in SHAPES if len(shape) == rank]
    shape = shapes[int(rng.integers(len(shapes)))]
    divisor = float(rng.choice([1.0, 2.0, 3.0])) if entry.partial else 1.0
    entry = replace(entry, divisor=divisor, before=bool(rng.random() < 0.4))
    param = fill(rng, "normal", shape, program.storages[0])
    return Tensor(shape, param, program.storages, entry)


def random_model(seed, mesh=None):
    """``mesh``: in place of one at random. MODELS seeds in a row have one program."""
    program = random_program(seed // MODELS, mesh and mesh.names)
    rng = np.random.default_rng(seed)
    mesh, steps = mesh or random_mesh(rng, program.axes), 3
    world = int(np.prod(mesh.sizes))
    tensors = [random_tensor(rng, program) for _ in range(int(rng.integers(1, 9)))]
    skips = {"torch_scaler", "skip_nonfinite"} & {
        Path(fragment).stem for fragment in program.definition.fragments
    }
    for _ in range(steps):
        overflowing = rng.random() < 0.3 and skips
        victim = int(rng.integers(len(tensors)))
        for number, tensor in enumerate(tensors):
            missing = rng.random() < 0.15
            tensor.grads.append(None if missing else random_grads(
                rng, mesh, tensor.shape, program.storages[1], tensor.entry.partial,
                bool(overflowing) and number == victim,
            ))  # fmt: skip
    orders = [None if rng.random() < 0.4 else
              [[int(i) for i in rng.permutation(len(tensors))] for _ in range(world)]
              for _ in range(steps)]  # fmt: skip
    buckets = tuple(int(rng.choice([1, 64, 1000, 20000, 0])) for _ in range(2))
    buckets = (*buckets, int(rng.integers(4)))
    ahead = [bool(rng.random() < 0.3) for _ in range(steps)]
    return Model(program.definition, program.hypers, program.options, mesh, tensors, buckets,
                 orders, program.kept, ahead)  # fmt: skip
