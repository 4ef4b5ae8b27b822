# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of a step of ColossalAI's distributed optimizers, counted from their sources
(colossalai/nn/optimizer/distributed_{adafactor,came,lamb}.py): a collective for each tensor
and factor, one after the other, each waited for. Gradients are reduced before.

Under ZeRO a tensor is flattened, padded and cut evenly over the ranks. Where its rows do
not divide by them, the gradient and the square of it are gathered whole. What they compute
so is an approximation in some layouts; it is their calls that are counted here.
"""

from __future__ import annotations

from dataclasses import dataclass

from .failure import PlanError
from .layouts import Layout
from .models import Model, Tensor

BYTES = 4  # of an element that crosses: masters and states are f32
OPTIMIZERS = ("adafactor", "came", "lamb")


@dataclass
class Calls:
    """Calls of a step, each a round of its own, and the bytes of a rank's buffers."""

    calls: int = 0
    bytes: int = 0

    def add(self, number: int, elements: int) -> None:
        """``elements`` in each of them."""
        self.calls += number
        self.bytes += number * elements * BYTES


def _factored_zero(found: Calls, tensor: Tensor, world: int, factors: int) -> None:
    rows, columns = tensor.shape
    if rows % world == 0:
        found.add(factors, columns)
    else:
        found.add(2 * factors, tensor.elements)


def _factored_tp(found: Calls, tensor: Tensor, dim: int, factors: int) -> None:
    rows, columns = tensor.shape
    if dim == 1:
        found.add(factors, rows)
    else:
        found.add(factors, columns)
        found.add(factors, rows)


def count(model: Model, optimizer: str, world: int, split_dims: list[int | None] | None = None):
    """With ZeRO over ``world`` ranks, or with tensor parallelism where ``split_dims`` has
    the dim of each tensor that is cut."""
    if optimizer not in OPTIMIZERS:
        raise PlanError(f"no calls of ColossalAI's '{optimizer}', known: {', '.join(OPTIMIZERS)}")
    found = Calls()
    factors = {"adafactor": 1, "came": 2, "lamb": 0}[optimizer]
    for number, tensor in enumerate(model.tensors):
        if optimizer == "lamb":
            # |w| of the whole working copy needs no call under ZeRO.
            found.add(1, 1 if split_dims is None else 2)
            continue
        if len(tensor.shape) == 2:
            if split_dims is None:
                _factored_zero(found, tensor, world, factors)
            elif split_dims[number] is not None:
                _factored_tp(found, tensor, split_dims[number], factors)
        if split_dims is None or split_dims[number] is not None:
            found.add(1, 1)  # the root mean square of the update
    return found


def count_on(model: Model, optimizer: str, layout: Layout) -> Calls:
    """The same on a layout of ours: zero1, zero2 or tp."""
    if layout.is_flat:
        return count(model, optimizer, layout.ranks)
    if set(layout.axes) == {"tp"}:
        return count(model, optimizer, layout.ranks, [layout.split_dim(t) for t in model.tensors])
    raise PlanError(f"layout is '{layout.name}', ColossalAI's are counted for zero1, zero2 and tp")
