# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the zoo's definitions on meshes, and what their steps must be."""

from __future__ import annotations

import numpy as np
from definitions import Definition
from driver import STORAGES
from oracle import ZOO, widen
from placement import Dims, Flat, even_cuts, random_blocks, random_cuts, random_rows
from ranks import Sharded, WholeLaunch, gather, run_ranks
from stepc._mesh import Mesh
from steps import Case, Group, Tensor, interpret
from values import fill

# Extents around what a rank, a lane, a leaf and a block of rows have.
SHAPES = [(), (1,), (5,), (64,), (1025,), (3, 2), (7, 5), (64, 33), (65, 17), (130, 70),
          (1, 9), (9, 1), (0, 4), (2, 3, 5), (3, 65, 9), (2, 2, 3, 4), (5, 1, 7),
          (2, 1030)]  # fmt: skip

WORLDS = [1, 2, 3, 4, 5, 7, 8]
PRESETS = ["ddp", "zero", "owners", "concatenated", "fsdp2", "tp0", "tp1", "tp x fsdp2",
           "fsdp2 x tp", "uneven", "strided", "distinct", "blocks x blocks"]  # fmt: skip


def mesh_of(preset, world):
    """One axis, or two where the preset is a product and the world is one."""
    if "x" in preset.split() or preset in ("uneven", "distinct"):
        outer = 2 if world % 2 == 0 else 1
        return Mesh(("a", "b"), (outer, world // outer))
    return Mesh(("dp",), (world,))


def place(preset, mesh, shapes, rng):
    """A placement for each tensor."""
    return list(placements(preset, mesh, shapes, rng))


def placements(preset, mesh, shapes, rng):
    world = int(np.prod(mesh.sizes))
    before = 0
    total = sum(int(np.prod(s)) for s in shapes)
    cuts = even_cuts(total, world)
    for number, shape in enumerate(shapes):
        rank, size = len(shape), int(np.prod(shape))
        last, first = rank - 1, 0
        if preset == "ddp" or (rank == 0 and preset not in ("zero", "owners", "concatenated")):
            yield Dims({})
        elif preset == "zero":
            yield Flat(mesh.names, even_cuts(size, world))
        elif preset == "owners":
            owner = number % world
            yield Flat(mesh.names, [0] * (owner + 1) + [size] * (world - owner))
        elif preset == "concatenated":
            yield Flat(mesh.names, [min(max(c - before, 0), size) for c in cuts])
        elif preset in ("fsdp2", "tp0"):
            yield Dims({first: mesh.names})
        elif preset == "tp1":
            yield Dims({last: mesh.names})
        elif preset == "tp x fsdp2":  # the same dim by both axes where there is one only
            yield Dims({first: ("a",), last: ("b",)} if rank > 1 else {0: ("a", "b")})
        elif preset == "fsdp2 x tp":
            yield Dims({first: ("b",)} if number % 2 else {last: ("a",)})
        elif preset == "uneven":
            yield Flat(mesh.names[:1], random_cuts(rng, size, mesh.sizes[0]))
        elif preset == "strided":
            dim = int(rng.integers(rank))
            rows = {dim: random_rows(rng, shape[dim], world)}
            yield Dims({dim: mesh.names}, rows)
        elif preset == "blocks x blocks":  # two dims where there are, each by an axis of its own
            dims = [int(dim) for dim in rng.permutation(rank)[:2]]
            axes = dict(zip(dims, rng.permutation(mesh.names).tolist(), strict=False))
            sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
            rows = {d: random_blocks(rng, shape[d], sizes[axis]) for d, axis in axes.items()}
            yield Dims({dim: (axis,) for dim, axis in axes.items()}, rows)
        elif preset == "distinct":
            yield Dims({last: ("b",)} if number % 2 else {})
        before += size


def make_case(name, fragments, preset, world, seed=0, steps=1, storages=STORAGES[0], number=5,
              hypers=None, missing=False, kind="normal", flags=(), rounding=None):  # fmt: skip
    """Some tensors of a definition on the mesh of a preset. ``flags`` are the compiler's,
    ``rounding`` as of :class:`Definition`."""
    files = [ZOO / "fragments" / f"{fragment}.mlir" for fragment in fragments]
    definition = Definition(ZOO / f"{name}.mlir", files, flags=list(flags), rounding=rounding)
    rng = np.random.default_rng([seed, world, *map(ord, name + preset)])
    group = Group(dict(hypers or {}))
    # Factored where a matrix has two rows, so that small ones are.
    if any(o["name"] == "min_dim_size_to_factor" for o in definition.interface["options"]):
        group.options["min_dim_size_to_factor"] = 2
    shapes = [SHAPES[i] for i in rng.choice(len(SHAPES), number, replace=False)]
    tensors = []
    for index, shape in enumerate(shapes):
        arrays = {"param": fill(rng, "normal", shape, storages[0]),
                  "grad": fill(rng, kind, shape, storages[1])}  # fmt: skip
        for step in range(1, steps):
            arrays[f"grad:{step}"] = fill(rng, kind, shape, storages[1])
        for state, own in definition.states(shape, group).items():
            arrays[state] = fill(rng, "normal", own, storages[2], state != "exp_avg")
        takes = [bool(rng.random() < 0.6) for _ in range(steps)] if missing and index else None
        tensors.append(Tensor(shape, storages, arrays, 0, takes, 3, False))
    case = Case(definition, [group], tensors, steps, label=f"{preset} on {world}", threads=1)
    mesh = mesh_of(preset, world)
    return Sharded(case, mesh, place(preset, mesh, shapes, rng))


class ShardedPackages:
    """A package for each definition, with the variants of all cases."""

    def __init__(self, packages):
        self.packages = packages

    def prepare(self, sharded):
        """As Packages.prepare, of sharded cases."""

        class Wanted:
            def __init__(self, case):
                self.definition, self.variants = case.case.definition, case.variants

        self.packages.prepare([Wanted(case) for case in sharded])

    def get(self, sharded):
        package = self.packages.get(sharded.case)
        assert not isinstance(package, str), package
        return package


def same_bits(left, right):
    """The names of what differs, any NaN being equal to any."""
    found = []
    for name, value in right.items():
        if name == "step:skipped" or name not in left:
            continue
        a, b = np.asarray(left[name]), np.asarray(value)
        a, b = (widen(x) if x.dtype == np.uint16 else x for x in (a, b))
        same = a.shape == b.shape and ((a == b) | (np.isnan(a) & np.isnan(b))).all()
        if not same or not (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all():
            found.append(name)
    return found


def run(sharded, packages):
    """The gathered results, the unsharded ones and the ranks' counters."""
    package = packages.get(sharded)
    results = run_ranks(sharded, package)
    plain = WholeLaunch(sharded, package).run()
    return gather(sharded, results), plain, [info for _, info, _ in results]


def bounds_of(cases):
    """The intervals of the interpreter's bound mode."""
    return interpret([sharded.case for sharded in cases], mode="bound")
