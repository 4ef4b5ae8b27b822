# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that ranks cannot share, as their rule needs whole matrices: one rank steps each, which
the runtime library chooses by what a step costs. Counted as ``stepc.torch`` has them: with
``zero=`` the owner alone has the states; of others, such as those of ``fully_shard``, every rank
keeps its part of them, and the owner has room for the whole beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from .._describe import Query, choose_owners
from .layouts import Layout, Part, buckets
from .models import BYTES, Model, Tensor
from .package import Definition


@dataclass(frozen=True)
class Owned:
    """``owner``: the place along ``axes`` of the rank that steps it; ``flops`` of a step."""

    tensor: Tensor
    axes: tuple[str, ...]
    owner: int
    flops: float

    @property
    def part(self) -> Part:
        """What its owner steps."""
        return Part(self.tensor.shape, self.tensor.dtype, (), self.tensor.shape)


class Owners:
    """``list``: in the order of the model. ``cut``: the model of the other tensors."""

    def __init__(self, model: Model, layout: Layout, definition: Definition):
        self._layout = layout
        found: dict[int, tuple[tuple[str, ...], float, float]] = {}
        for number, tensor in enumerate(model.tensors):
            axes = _axes_of(tensor, layout, definition)
            if axes and layout.size(axes) > 1:
                whole = definition.tensor(tensor.shape)
                found[number] = (axes, whole.cost, whole.flops)
        owner_of: dict[int, int] = {}
        for axes in dict.fromkeys(axes for axes, _, _ in found.values()):
            # Of what a parameter is cut into one rank has all.
            own: dict[str | int, list[int]] = {}
            for number, one in found.items():
                if one[0] == axes:
                    own.setdefault(model.tensors[number].of or number, []).append(number)
            costs = [sum(found[n][1] for n in numbers) for numbers in own.values()]
            owners = choose_owners(costs, [0.0] * layout.size(axes))
            for numbers, owner in zip(own.values(), owners, strict=True):
                owner_of.update(dict.fromkeys(numbers, owner))
        self.list = [
            Owned(model.tensors[n], axes, owner_of[n], flops)
            for n, (axes, _, flops) in found.items()
        ]
        rest = [t for number, t in enumerate(model.tensors) if number not in found]
        self.cut = replace(model, tensors=tuple(rest)) if found else model

    def of(self, rank: int) -> list[Owned]:
        """Those that the rank steps."""
        places: dict[tuple[str, ...], int] = {}
        for axes in {one.axes for one in self.list}:
            places[axes] = self._layout.place(rank, axes)
        return [one for one in self.list if one.owner == places[one.axes]]

    def parts(self, rank: int) -> Counter[Part]:
        return Counter(one.part for one in self.of(rank))

    def landing(self, rank: int) -> int:
        """Bytes of means of gradients that the rank steps, of ``zero=``."""
        return sum(
            one.tensor.elements * max(BYTES[one.tensor.dtype], BYTES["f32"])
            for one in self.of(rank)
        )

    def buckets(self) -> list[list[Owned]]:
        """Those that cross together, of ``zero=``."""
        order = self.list[::-1] if self._layout.kind == "zero2" else self.list
        tensors, owners = [one.tensor for one in order], [one.owner for one in order]
        made = buckets(tensors, self._layout.ranks, owners) if order else ()
        return [[order[number] for number, _ in bucket] for bucket in made]


def _axes_of(tensor: Tensor, layout: Layout, definition: Definition) -> tuple[str, ...]:
    """Those along which one rank has to step it; none where its rule can be cut so."""
    whole = definition.tensor(tensor.shape)
    if layout.is_flat:
        return layout.data_axes if whole.rule.needs_matrices or tensor.of else ()
    dims = layout.dims(tensor)
    sharded = sum(1 << dim for dim, _ in dims)
    if sharded and tensor.of:
        return tuple(axis for _, axes in dims for axis in axes)
    if not sharded or definition.describe(Query((), tensor.shape, sharded=sharded)).cut_dim is None:
        return ()
    return tuple(axis for _, axes in dims for axis in axes)
