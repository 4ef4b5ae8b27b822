# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DTensors of pipeline stages and experts: a DTensor says how it lies on its own mesh, and
``layouts`` along which dims of a larger one ranks have other tensors beside it."""

from __future__ import annotations

import re

from ..tensors.members import ObstacleError
from .describe import axis_names
from .exchanges import ranks_along
from .layouts import DISTINCT, Layout


def beside(rules, group: dict, place: int, name: str) -> Layout | None:
    """The layout of the first expression that matches the DTensor's whole name, if it says anything
    of it: a DTensor needs none. ObstacleError for what it cannot say."""
    names = group.get("param_names")
    if rules and not names:
        raise ObstacleError(
            f"{name} has no name; layouts needs named parameters: model.named_parameters()", False
        )
    found = (layout for pattern, layout in rules if re.fullmatch(pattern, names[place]))
    layout = next(found, None)
    if layout is not None:
        _check(layout, group["params"][place], name)
    return layout


def _check(layout: Layout, param, name: str) -> None:
    if layout.grad == "partial" or layout.grad_divisor is not None:
        raise ObstacleError(
            f"{name} is a DTensor, whose gradient says itself what is to be summed; its layout has "
            f"grad={layout.grad!r}, grad_divisor={layout.grad_divisor}",
            False,
        )
    mesh, own = param.device_mesh, {}
    for dim, placement in enumerate(param.placements):
        own[ranks_along(mesh, dim)] = placement
    names = axis_names(layout.mesh)
    for dim, placement in enumerate(layout.placements):
        if layout.mesh.size(dim) == 1 or (placement != DISTINCT and placement.is_replicate()):
            continue
        lies = own.get(ranks_along(layout.mesh, dim))
        if (placement == DISTINCT) != (lies is None) or (lies is not None and lies != placement):
            there = "is not of its mesh" if lies is None else f"lies there as {lies}"
            raise ObstacleError(
                f"{name} is a DTensor, which {there}; its layout has {placement} along "
                f"{names[dim]}",
                False,
            )


def others_along(param, layout: Layout | None, sharing) -> list[int]:
    """The dims of the layout's mesh along which other ranks have other tensors, or, of
    ``shared_over``, this one counts it."""

    def is_other(dim: int) -> bool:
        along = ranks_along(layout.mesh, dim)
        shared = layout.shared_dim == dim
        return layout.placements[dim] == DISTINCT or (
            shared and sharing.counts(param, layout, along)
        )

    dims = () if layout is None else range(layout.mesh.ndim)
    return [dim for dim in dims if layout.mesh.size(dim) > 1 and is_other(dim)]


def rest(dtensor, layout: Layout | None) -> list[int]:
    """The dims of the layout's mesh that the DTensor's does not have."""
    if layout is None:
        return []
    mesh = dtensor.device_mesh
    own = {ranks_along(mesh, dim) for dim in range(mesh.ndim)}
    return [d for d in range(layout.mesh.ndim) if ranks_along(layout.mesh, d) not in own]
