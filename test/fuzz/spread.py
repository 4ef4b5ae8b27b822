# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random meshes, and how the tensors of a random model lie on them.

What is said of a tensor fits every shape and mesh: where it is cut follows from a
seed, so that extents, axes and ranks can be made fewer and the rest stays (shrink.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from matrices import has_matrices
from placement import Dims, Flat, even_cuts, random_cuts, random_rows
from ranks import Sharded
from stepc._mesh import Mesh
from values import random_place

# Of the mesh's axes: words that mean something in layouts and sizes.
NAMES = ("flat", "B", "c")
MESHES = [(1,), (2,), (2,), (3,), (4,), (5,), (6,), (7,), (8,), (1, 2), (2, 1), (2, 2), (2, 2),
          (3, 2), (2, 3), (4, 2), (2, 4), (1, 5), (7, 1),
          (2, 2, 2), (2, 2, 2), (1, 2, 3), (2, 1, 2), (3, 2, 1)]  # fmt: skip
# Of programs whose sums are exact: most axes are of several ranks.
WIDE = [(2, 2), (2, 2), (2, 3), (3, 2), (2, 4), (2, 2, 2), (2, 2, 2), (1, 2, 3), (3, 1, 2), (2,)]


@dataclass
class Spread:
    """``flat``: over these axes, in this order. ``dims``, counted from the end: the axes of
    each. ``cuts``: "even", "random", or with flat "owner". ``at``: coordinates of axes on
    which other ranks do not have the tensor."""

    flat: tuple = ()
    dims: dict = field(default_factory=dict)
    cuts: str = "even"
    seed: int = 0
    at: dict = field(default_factory=dict)


def make_spread(rng, shape):
    coin = lambda chance=0.5: bool(rng.random() < chance)  # noqa: E731
    pick = lambda items: items[int(rng.integers(len(items)))]  # noqa: E731
    order = NAMES if coin(0.7) else NAMES[::-1]
    spread = Spread(cuts=pick(["even", "random", "random"]), seed=int(rng.integers(2**31)))
    kind = pick(["whole", "flat", "flat", "flat", "dims", "dims", "dims", "dims"])
    if kind == "flat":
        spread.flat = order if coin(0.6) else (pick(NAMES),)
        spread.cuts = pick(["even", "random", "random", "owner"])
    elif kind == "dims" and shape:
        for name in order:
            if coin(0.85):
                dim = -1 - int(rng.integers(len(shape)))
                spread.dims[dim] = (*spread.dims.get(dim, ()), name)
    used = {*spread.flat, *(name for axes in spread.dims.values() for name in axes)}
    for name in NAMES:
        if name not in used and coin(0.2):
            spread.at[name] = int(rng.integers(8))
    return spread


def cross(rng, spread, shape):
    """Cuts each dim by one axis, as far as there are axes: a reduction over one of them is
    whole along its axis and a part along those of the others."""
    dims = [-1 - int(dim) for dim in rng.permutation(len(shape))]
    axes = dict(zip(dims, ((NAMES[int(k)],) for k in rng.permutation(len(NAMES))), strict=False))
    return replace(spread, flat=(), dims=axes, at={})


def names_twice(dims):
    """Whether two dims have one name: the compiler cuts neither."""
    named = [dim for dim in dims if dim != "1"]
    return len(set(named)) != len(named)


def spread_setting(program, setting):
    """Adds a mesh, and how each tensor lies on it."""
    rng = np.random.default_rng([program.seed, 3])
    meshes = WIDE if program.exact else MESHES
    setting.mesh = meshes[int(rng.integers(len(meshes)))]
    if has_matrices(program):
        # Each rank has them whole: what cannot be cut is refused, which has its own tests.
        for tensor in setting.tensors:
            tensor.spread = Spread()
        return setting
    twice = any(names_twice(rule.dims) for rule in program.rules)
    for tensor in setting.tensors:
        tensor.spread = make_spread(rng, tensor.shape)
        if program.exact and rng.random() < 0.6:
            tensor.spread = cross(rng, tensor.spread, tensor.shape)
        if twice and tensor.spread.dims and rng.random() < 0.8:
            # Few are to be refused.
            tensor.spread = replace(tensor.spread, dims={}, flat=NAMES)
            tensor.spread.at = {}
    return setting


def without_dims(setting):
    """The same, where tensors that are cut by dims are whole."""
    for tensor in setting.tensors:
        tensor.spread = replace(tensor.spread, dims={})
    return setting


def place(spread, mesh, shape):
    """Where the tensor lies: Dims or Flat."""
    sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
    known = lambda axes: tuple(name for name in axes if name in sizes)  # noqa: E731
    count = lambda axes: int(np.prod([sizes[name] for name in axes], dtype=int))  # noqa: E731
    at = {name: coordinate % sizes[name] for name, coordinate in spread.at.items() if name in sizes}
    rng = np.random.default_rng([spread.seed, *shape])
    if known(spread.flat):
        axes, size = known(spread.flat), int(np.prod(shape, dtype=int))
        parts = count(axes)
        if spread.cuts == "owner":
            owner = int(rng.integers(parts))
            cuts = [0] * (owner + 1) + [size] * (parts - owner)
        else:
            make = even_cuts if spread.cuts == "even" else lambda n, p: random_cuts(rng, n, p)
            cuts = make(size, parts)
        return Flat(axes, cuts, at)
    axes = {len(shape) + dim: known(names) for dim, names in spread.dims.items()}
    axes = {dim: names for dim, names in axes.items() if dim >= 0 and names}
    rows = {}
    if spread.cuts == "random":
        rows = {dim: random_rows(rng, shape[dim], count(names)) for dim, names in axes.items()}
    return Dims(axes, rows, at)


def make_sharded(case, setting):
    """The case on its mesh; parts lie anywhere in memory where the whole would."""
    mesh = Mesh(NAMES[: len(setting.mesh)], setting.mesh)
    placements = [place(t.spread, mesh, t.shape) for t in setting.tensors]

    def places(rank, number, name, shape):
        tensor, placement = setting.tensors[number], placements[number]
        if not tensor.placed:
            return {}
        rng = np.random.default_rng([number, rank, *map(ord, name)])
        group = case.groups[tensor.group]
        dense = name in case.definition.dense_states(tensor.shape, group)
        return random_place(rng, shape, strided=not (dense or isinstance(placement, Flat)))

    return Sharded(case, mesh, placements, places=places)
