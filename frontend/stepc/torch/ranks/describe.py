# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the parameters of an optimizer lie on ranks, in words."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_HEAD = ("parameter", "shape", "here", "lies", "gradient", "states here")


def describe_layouts(optimizer, parts: list, meshes: list) -> str:
    """A line for each parameter, below one for each axis. ``parts`` in the parameters' order,
    as this rank has them; nobody is asked."""
    zero = optimizer._zero
    lines = [_HEAD, *(_row(part, optimizer.state.get(part.param), zero) for part in parts)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*_axes(meshes, shared_over(optimizer)), *table, *_owned(optimizer)])


def _owned(optimizer) -> list[str]:
    """What is done of parameters that an owner steps, known from the first step on."""
    told = optimizer._told
    return [] if told is None or told.owners is None else told.owners.describe()


def shared_over(optimizer):
    """The process group over which ranks share states, if they do."""
    if optimizer._zero is not None:
        return optimizer._zero.group
    return None if optimizer._shards is None else optimizer._shards.dp_group


def _axes(meshes: Iterable, zero) -> list[str]:
    """The ranks along each, from this one."""
    import torch.distributed as dist

    groups = [
        (name, mesh.get_group(dim)) for mesh in meshes for dim, name in enumerate(axis_names(mesh))
    ]
    if zero is not None:
        groups.append(("zero", zero))
    lines = (
        f"{name}: ranks {', '.join(map(str, dist.get_process_group_ranks(group)))}"
        for name, group in groups
    )
    return list(dict.fromkeys(lines))


def axis_names(mesh) -> tuple[str, ...]:
    """Those of a device mesh, or numbers where it has none."""
    return tuple(mesh.mesh_dim_names or (f"axis{dim}" for dim in range(mesh.ndim)))


def lies(mesh, placements) -> list[str]:
    """The dims that are cut, and where others are beside them, in words."""
    words = []
    for axis, placement in zip(axis_names(mesh), placements, strict=True):
        if placement == "distinct":
            words.append(f"others along {axis}")
        elif not placement.is_replicate():
            strided = ", strided" if hasattr(placement, "split_factor") else ""
            words.append(f"dim {placement.dim} over {axis}{strided}")
    return words


def _row(part, states: dict | None, zero) -> tuple[str, ...]:
    gradient = part.gradient
    if zero is not None and zero.local_gradients:
        gradient = f"{gradient}, mean over zero".removeprefix("reduced, ")
    seen = getattr(part, "inner", part).seen
    lies = [*part.lies, *([] if seen is None else [str(seen.view)])]
    return (
        part.name.removeprefix("parameter '").removesuffix("'"),
        "?" if part.whole_shape is None else str(part.whole_shape),
        str(tuple(getattr(part, "own", part.local).shape)),
        ", ".join(lies) or "whole",
        gradient,
        ", ".join(_state(name, state) for name, state in (states or {}).items()) or "-",
    )


def _state(name: str, state) -> str:
    if not isinstance(state, torch.Tensor):
        return name
    own = state.to_local() if hasattr(state, "to_local") else state
    return f"{name} {tuple(own.shape)}"
