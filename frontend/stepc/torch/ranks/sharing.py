# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that some ranks along an axis have, and others beside them do not: which of the
ranks counts them in norms and other sums over all tensors.

It is the first rank of the axis. Where that does not have the tensor, ``shared_over`` says
so, and the first that has it counts.
"""

from __future__ import annotations

import itertools

import torch
import torch.distributed as dist

from ... import errors
from ..tensors.members import parameter_name
from .beside import beside
from .dtensor import is_dtensor
from .exchanges import Ranks, gathered, ranks_along
from .layouts import DISTINCT, SHARED, Layout, match


def placement_on(mesh, placements, ranks: Ranks):
    """Along an axis; None where the mesh does not have it."""
    for dim, placement in enumerate(placements):
        if ranks_along(mesh, dim) == ranks:
            return placement
    return None


def _placement_on(layout: Layout | None, ranks: Ranks):
    return None if layout is None else placement_on(layout.mesh, layout.placements, ranks)


def is_whole(placement) -> bool:
    """Whether ranks along the axis have the same, as far as they have it."""
    return placement is None or (placement != DISTINCT and placement.is_replicate())


def uneven_axes(rules) -> dict[Ranks, dist.ProcessGroup]:
    """The axes of ``layouts`` whose ranks have other tensors."""
    found = {}
    for _, layout in rules:
        for dim, placement in enumerate(layout.placements if layout is not None else ()):
            if layout.mesh.size(dim) > 1 and (placement == DISTINCT or dim == layout.shared_dim):
                found[ranks_along(layout.mesh, dim)] = layout.mesh.get_group(dim)
    return found


def _device_of(param: torch.Tensor | None, meshes: list) -> torch.device:
    """That of the parameter; of a rank that has none what it works on in the meshes."""
    if param is not None:
        return param.device
    if any(mesh.device_type == "cuda" for mesh in meshes):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class Sharing:
    """What the ranks along each uneven axis have in common, by the ``layouts`` of an optimizer,
    which are the same on all of them."""

    def __init__(self, optimizer):
        self.axes = uneven_axes(optimizer._layouts)
        layouts = [how for _, how in optimizer._layouts if how is not None]
        self.meshes = list(dict.fromkeys(how.mesh for how in layouts))
        params = itertools.chain.from_iterable(g["params"] for g in optimizer.param_groups)
        self.device = _device_of(next(params, None), self.meshes)
        self.declared = any(how is not None and how.shared_over for _, how in optimizer._layouts)
        self._own: list[tuple[str, str, Layout | None]] = []  # name, key, layout
        self._keys: dict[int, str] = {}
        self._found: dict[Ranks, list[dict[str, list[str]]]] = {}
        for number, group in enumerate(optimizer.param_groups if self.axes else ()):
            for place, param in enumerate(group["params"]):
                name = parameter_name(group, number, place)
                if is_dtensor(param) and beside(optimizer._layouts, group, place, name) is None:
                    continue
                layout, key = match(optimizer._layouts, group, place, name)
                self._own.append((name, key, layout))
                self._keys[id(param)] = key

    def axis(self, mesh, dim: int) -> Ranks:
        return ranks_along(mesh, dim)

    def is_uneven(self, mesh, dim: int) -> bool:
        """Whether ranks along the dim may have other tensors."""
        return ranks_along(mesh, dim) in self.axes

    def remember(self, sharing: Sharing) -> None:
        """Takes over what other ranks have said, where this one says the same."""
        if self._own == sharing._own:
            self._found = sharing._found

    def agree(self) -> None:
        """Tells the other ranks what this one has: all ranks of the axes together, once.

        TensorError, on all of them, for a tensor that no rank counts, or of which they do not
        know which it is.
        """
        if not self._found:
            self._exchange()
            self._check()

    def _exchange(self) -> None:
        for ranks in sorted(self.axes):
            own: dict[str, list[str]] = {}
            for name, key, layout in self._own:
                if is_whole(_placement_on(layout, ranks)):
                    own.setdefault(key, []).append(name)
            what = "the ranks could not tell each other which tensors they have"
            self._found[ranks] = gathered(own, what, self.axes[ranks], self.device)

    def counts(self, param, layout: Layout | None, ranks: Ranks) -> bool:
        """Whether of the ranks along an axis that have the parameter it is this one that
        counts it."""
        if not is_whole(_placement_on(layout, ranks)):
            return True
        shared = layout is not None and layout.shared_dim is not None
        if not shared or ranks_along(layout.mesh, layout.shared_dim) != ranks:
            return ranks[0] == dist.get_rank()
        return dist.get_rank() == self.holders(param, layout)[0]

    def key(self, param) -> str:
        """What tells the tensor from others on all ranks."""
        return self._keys.get(id(param), "")

    def holders(self, param, layout: Layout) -> Ranks:
        """The ranks along ``shared_over`` that have the tensor, once they have agreed."""
        ranks = ranks_along(layout.mesh, layout.shared_dim)
        if ranks not in self.axes:
            return ranks  # this one alone
        key, found = self.key(param), self._found[ranks]
        return tuple(rank for rank, own in zip(ranks, found, strict=True) if key in own)

    def _check(self) -> None:
        for ranks, found in sorted(self._found.items()):
            for rank, own in zip(ranks, found, strict=True):
                for key, names in own.items():
                    _check_names(key, names, found[0].get(key, []), rank, ranks)


def _check_names(key: str, names: list[str], first: list[str], rank: int, ranks: Ranks) -> None:
    """``first`` are those of the first rank of the axis."""
    if key.startswith(SHARED):
        if len(names) > 1:
            raise errors.TensorError(
                f"{names[0]} and {names[1]} of rank {rank} are of one layout with shared_over, "
                "which is of one tensor for each value of its expression's groups",
                "STEPC_LAYOUT_UNSUPPORTED",
            )
    elif len(names) > len(first):
        raise errors.TensorError(
            f"{names[len(first)]} of rank {rank} is whole along ranks "
            f"{', '.join(map(str, ranks))}, of which rank {ranks[0]} counts it and does not have "
            "it; give its layout shared_over",
            "STEPC_LAYOUT_UNSUPPORTED",
        )
