# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the training loop moves beside the step: gradients that are reduced, parameters
that are gathered; as ``stepc.torch`` does it with ``zero=``, and torch's ``fully_shard``
and DistributedDataParallel with theirs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .account import Call
from .layouts import Layout
from .models import BYTES, Model, Tensor
from .owners import Owners
from .package import Package

OF_DDP = "gradients (DDP)"
_DIGEST = 16  # bytes, of what ranks must have alike (ranks/alike.py)


TIMES = FORWARD, BACKWARD, BEFORE, AFTER = (
    "forward pass", "backward pass", "before the step", "after the step"
)  # fmt: skip


@dataclass
class Traffic:
    """``when``: one of :data:`TIMES`. ``calls`` in a step; ``bytes`` of the rank's buffers,
    padding included; ``sent`` of the rank where an all-reduce is a ring and the others send
    each part once. ``calls`` None: buckets are torch's own."""

    when: str
    what: str
    operation: str
    axes: tuple[str, ...]
    calls: int | None
    bytes: int
    sent: int


def ring(operation: str, size: int, data: int) -> int:
    """Bytes that a rank sends of a buffer of ``data`` bytes, the whole one."""
    return (2 if operation == "all_reduce" else 1) * data * (size - 1) // size


def _row(when, what, operation, layout: Layout, axes, calls, data) -> Traffic:
    sent = ring(operation, layout.size(axes), data)
    return Traffic(when, what, operation, tuple(axes), calls, data, sent)


def _zero(model: Model, layout: Layout, gradients: str) -> list[Traffic]:
    """Of ``zero=``: what the runtime has cross for each bucket, and what is told before."""
    axes, world = layout.data_axes, layout.size(layout.data_axes)
    lines = layout.lines
    whole = sum(world * line.most * BYTES[line.dtype] for line in lines)
    numbers = 16 * (len(model.tensors) + 1)
    found = [_row(BEFORE, "which gradients there are", "all_reduce", layout, axes, 1, numbers)]
    if gradients == "local" and lines:
        # zero2 sends a bucket as soon as the backward pass has filled it.
        when = BACKWARD if layout.kind == "zero2" else BEFORE
        found.append(_row(when, "gradients", "all_to_all", layout, axes, len(lines), whole))
    elif gradients == "reduced":
        data = sum(tensor.bytes for tensor in model.tensors)
        found.append(_row(BACKWARD, OF_DDP, "all_reduce", layout, axes, None, data))
    if layout.kind == "zero2":
        what, broken = "which pass it is", "whether it broke off"
        found.append(_row(BACKWARD, what, "all_reduce", layout, axes, 1, _DIGEST))
        found.append(_row(BACKWARD, broken, "all_reduce", layout, axes, 1, world))
    # One from each rank that has a part, as on Gloo.
    calls = sum(line.owners for line in lines)
    data = sum(line.elements * BYTES[line.dtype] for line in lines)
    if not lines:
        return found
    return [*found, _row(AFTER, "parameters", "broadcast", layout, axes, calls, data)]


def _padded(layout: Layout, tensors: list[Tensor], at: dict[str, int]) -> int:
    """Bytes that ``fully_shard`` gathers of a unit: rows of the dim up to equal parts."""
    total, world = 0, layout.size(layout.data_axes)
    for tensor in tensors:
        if not tensor.shape:
            continue
        local = layout.local_shape(tensor, at, without=layout.data_axes)
        rows = -(-local[0] // world) * world
        elements = rows
        for extent in local[1:]:
            elements *= extent
        total += elements * BYTES[tensor.dtype]
    return total


def _fsdp2(model: Model, layout: Layout, at: dict[str, int]) -> list[Traffic]:
    """A unit is gathered for the forward and again for the backward pass, what belongs to
    no block (the root) once; gradients are reduced once, in the parameter's dtype."""
    axes, units = layout.data_axes, model.units()
    sizes = {name: _padded(layout, tensors, at) for name, tensors in units.items()}
    root = sizes.get("", 0)
    blocks = len(units) - ("" in units)
    total = sum(sizes.values())
    number = len(units)
    rows = [
        _row(FORWARD, "parameters, forward", "all_gather", layout, axes, number, total),
        _row(BACKWARD, "parameters, backward", "all_gather", layout, axes, blocks, total - root),
        _row(BACKWARD, "gradients", "reduce_scatter", layout, axes, number, total),
    ]
    if "replicate" in layout.axes:
        own, across = total // layout.size(axes), ("replicate",)
        what = "gradients, replicas"
        rows.append(_row(BACKWARD, what, "all_reduce", layout, across, number, own))
    return rows


def presence(model: Model, layout: Layout, calls: list[Call]) -> list[Traffic]:
    """What goes before a step with exchanges, for each set of axes that tensors lie on: two
    integers for each of them, whether it has a gradient, and two that check the rest."""
    if not calls or layout.is_flat:  # with zero= it goes before every step
        return []
    numbers = Counter(
        tuple(sorted({axis for _, names in layout.dims(tensor) for axis in names}))
        for tensor in model.tensors
    )
    what = "which gradients there are"
    return [
        _row(BEFORE, what, "all_reduce", layout, axes, 1, 16 * (number + 1))
        for axes, number in sorted(numbers.items())
        if axes
    ]


def of_owners(owners: Owners, layout: Layout, package: Package, gradients: str) -> list[Traffic]:
    """What goes to those that step whole tensors, and comes back."""
    if not owners.list:
        return []
    if layout.is_flat:
        axes, made = layout.data_axes, owners.buckets()
        data = sum(one.tensor.bytes for one in owners.list)
        when = BACKWARD if layout.kind == "zero2" else BEFORE
        rows = []
        if gradients == "local":
            what = "gradients to owners"
            rows.append(_row(when, what, "all_to_all", layout, axes, len(made), data))
        calls = sum(len({one.owner for one in own}) for own in made)
        what = "parameters from owners"
        return [*rows, _row(AFTER, what, "broadcast", layout, axes, calls, data)]
    rows = []
    for axes in dict.fromkeys(one.axes for one in owners.list):
        there = back = 0
        for one in owners.list:
            if one.axes == axes:
                states = sum(state.bytes for state in package.part(one.part).states)
                wide = max(BYTES[one.tensor.dtype], BYTES["f32"])
                there += one.tensor.bytes + one.tensor.elements * wide + states
                back += one.tensor.bytes + states
        rows.append(_row(BEFORE, "parts to owners", "all_to_all", layout, axes, 1, there))
        rows.append(_row(AFTER, "parts from owners", "all_to_all", layout, axes, 1, back))
    return rows


def largest_unit(model: Model, layout: Layout) -> int:
    """Bytes of the root, which stays gathered through both passes, and of the largest block, with
    their padding, as ``fully_shard`` gathers them."""
    at = layout.coordinates(0)
    sizes = {name: _padded(layout, tensors, at) for name, tensors in model.units().items()}
    return sizes.pop("", 0) + max(sizes.values(), default=0)


def beside_step(model: Model, layout: Layout, gradients: str = "local") -> list[Traffic]:
    """In each step, of rank 0; none over axes of one rank. What tensor parallelism moves
    between layers is the model's, and is not here."""
    at = layout.coordinates(0)
    if layout.is_flat:
        rows = _zero(model, layout, gradients)
    elif layout.kind == "fsdp2":
        rows = _fsdp2(model, layout, at)
    elif layout.kind == "ddp":
        data = 0
        for tensor in model.tensors:
            elements = 1
            for extent in layout.local_shape(tensor, at):
                elements *= extent
            data += elements * BYTES[tensor.dtype]
        rows = [_row(BACKWARD, OF_DDP, "all_reduce", layout, ("dp",), None, data)]
    else:
        rows = []
    return [row for row in rows if layout.size(row.axes) > 1]
