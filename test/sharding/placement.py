# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which elements of a tensor a rank has: written down as indices, so that a test's cut
cannot share a mistake with the code under test."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from stepc._mesh import Layout, Mesh


def chunk(indices, parts, at):
    """As torch.chunk: parts of ceil(n / parts), the last ones smaller or empty."""
    size = -(-len(indices) // parts)
    return indices[at * size : (at + 1) * size]


class Placement:
    """``at`` of axes: the coordinates of the ranks that have the tensor. Ranks at others
    have other tensors in its place, as stages of a pipeline do."""

    def is_on(self, mesh: Mesh, rank):
        place = dict(zip(mesh.names, mesh.coordinates(rank), strict=True))
        return all(place[axis] == coordinate for axis, coordinate in self.at.items())


@dataclass
class Dims(Placement):
    """Dims cut by the axes named for them, one axis after the other.

    ``rows`` of a dim and flattened coordinate, where given, are any indices in place of
    chunks: uneven and strided cuts.
    """

    axes: dict  # of a dim: the names of its axes
    rows: dict | None = None
    at: dict = field(default_factory=dict)

    def indices(self, mesh: Mesh, rank, shape):
        at = dict(zip(mesh.names, mesh.coordinates(rank), strict=True))
        size = dict(zip(mesh.names, mesh.sizes, strict=True))
        found = []
        for dim, extent in enumerate(shape):
            own = np.arange(extent)
            if self.rows and dim in self.rows:
                number = 0
                for name in self.axes.get(dim, ()):
                    number = number * size[name] + at[name]
                own = self.rows[dim][number]
            else:
                for name in self.axes.get(dim, ()):
                    own = chunk(own, size[name], at[name])
            found.append(own)
        return found

    def layout(self, mesh, rank, shape):
        dims = tuple((dim, tuple(axes)) for dim, axes in sorted(self.axes.items()) if axes)
        start = self.start(mesh, rank, shape)
        return Layout(tuple(shape), dims, distinct=tuple(self.at), start=start)

    def start(self, mesh, rank, shape):
        """Where each dim of the part begins; None where its rows are no block of the whole."""
        indices = self.indices(mesh, rank, shape)
        if any((np.diff(own) != 1).any() for own in indices):
            return None
        return tuple(int(own[0]) if len(own) else 0 for own in indices)

    def cut(self, mesh, rank, shape, array, whole_dims=()):
        """The rank's part; ``whole_dims`` are those that are no dim of the parameter."""
        indices = self.indices(mesh, rank, shape)
        own = [np.arange(array.shape[d]) if d in whole_dims else i for d, i in enumerate(indices)]
        return np.array(array[np.ix_(*own)], order="C") if own else array.copy()

    def paste(self, mesh, rank, shape, whole, part, whole_dims=()):
        indices = self.indices(mesh, rank, shape)
        own = [np.arange(whole.shape[d]) if d in whole_dims else i for d, i in enumerate(indices)]
        if own:
            whole[np.ix_(*own)] = part
        else:
            whole[...] = part


@dataclass
class Flat(Placement):
    """A range [begin, end) of the row-major order for each coordinate of the axes."""

    axes: tuple
    cuts: list  # one more than coordinates
    at: dict = field(default_factory=dict)

    def range(self, mesh, rank):
        at = dict(zip(mesh.names, mesh.coordinates(rank), strict=True))
        size = dict(zip(mesh.names, mesh.sizes, strict=True))
        number = 0
        for name in self.axes:
            number = number * size[name] + at[name]
        return self.cuts[number], self.cuts[number + 1]

    def layout(self, mesh, rank, shape):
        begin, _ = self.range(mesh, rank)
        return Layout(tuple(shape), flat=tuple(self.axes), begin=begin, distinct=tuple(self.at))

    def cut(self, mesh, rank, shape, array, whole_dims=()):
        if tuple(array.shape) != tuple(shape) or whole_dims:
            return array.copy()  # a state of fewer dims is whole everywhere
        begin, end = self.range(mesh, rank)
        return array.ravel()[begin:end].copy()

    def paste(self, mesh, rank, shape, whole, part, whole_dims=()):
        if tuple(whole.shape) != tuple(shape) or whole_dims:
            whole[...] = part
            return
        begin, end = self.range(mesh, rank)
        whole.reshape(-1)[begin:end] = part


def even_cuts(elements, parts):
    size = -(-elements // parts)
    return [min(i * size, elements) for i in range(parts + 1)]


def random_cuts(rng, elements, parts):
    return [0, *sorted(int(c) for c in rng.integers(0, elements + 1, parts - 1)), elements]


def random_blocks(rng, extent, parts):
    """Rows that follow one another for each part, some parts empty."""
    cuts = random_cuts(rng, extent, parts)
    return [np.arange(begin, end) for begin, end in zip(cuts, cuts[1:], strict=False)]


def random_rows(rng, extent, parts):
    """Any rows for each part, some parts empty, in the order of the rows."""
    owner = rng.integers(0, parts, extent)
    if rng.random() < 0.3 and parts > 1:
        owner[owner == 0] = parts - 1
    return [np.flatnonzero(owner == part) for part in range(parts)]
