# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain tensors that are parts of larger ones, as Megatron-LM, ColossalAI and mixtures of
experts have them: the user says which part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import _mesh
from ._members import ObstacleError

DISTINCT = "distinct"
_GRADS = ("reduced", "partial")


@dataclass(frozen=True)
class Layout:
    """How a plain parameter lies on a mesh.

    Args:
        mesh: a ``torch.distributed.DeviceMesh``.
        placements: for each of its dims ``Shard(d)``, ``Replicate()``, or ``"distinct"``
            where other coordinates hold other tensors: pipeline stages, experts.
        grad: "reduced", or "partial" where it is still to be summed over the dims of the
            mesh over which the parameter is replicated.
        grad_divisor: what the gradient is divided by, after the sum.
        shape: of the whole tensor; by default the ranks add up what they have.

    Raises ValueError for other values.
    """

    mesh: object
    placements: Sequence
    grad: str = "reduced"
    grad_divisor: float | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self):
        if len(self.placements) != self.mesh.ndim:
            raise ValueError(
                f"the layout has {len(self.placements)} placements, its mesh has "
                f"{self.mesh.ndim} dims"
            )
        for placement in self.placements:
            known = placement == DISTINCT or (
                hasattr(placement, "is_replicate")
                and (placement.is_replicate() or isinstance(getattr(placement, "dim", None), int))
            )
            if not known:
                raise ValueError(
                    f"placement {placement!r} is none of Shard(d), Replicate() and 'distinct'"
                )
        if self.grad not in _GRADS:
            raise ValueError(f"grad is {self.grad!r}, expected 'reduced' or 'partial'")


Rule = tuple[str, Layout | None]


def check_rules(layouts: Sequence[Rule] | None) -> tuple[Rule, ...]:
    """The argument ``layouts`` of an optimizer; TypeError for what is none."""
    rules = tuple(layouts or ())
    for rule in rules:
        if not (isinstance(rule, tuple) and len(rule) == 2 and isinstance(rule[0], str)):
            raise TypeError(f"layouts has {rule!r}, expected a regular expression and a Layout")
        if rule[1] is not None and not isinstance(rule[1], Layout):
            raise TypeError(f"layouts has {rule[1]!r} for '{rule[0]}', expected a Layout or None")
        re.compile(rule[0])
    return rules


def find(rules: tuple[Rule, ...], group: dict, place: int, name: str) -> Layout | None:
    """The layout of the first expression that matches the whole name; ObstacleError where
    none does, or the parameters have no names."""
    names = group.get("param_names")
    if not names:
        raise ObstacleError(
            f"{name} has no name; layouts needs named parameters: model.named_parameters()", False
        )
    for pattern, layout in rules:
        if re.fullmatch(pattern, names[place]):
            return layout
    raise ObstacleError(f"{name} is matched by none of {len(rules)} layouts", False)


class PlainPart:
    """A plain parameter that is the rank's part of a larger tensor."""

    def __init__(self, param: torch.Tensor, name: str, how: Layout, axes: tuple[str, ...], mesh):
        self.param, self.name = param, name
        self.local = param.detach().requires_grad_(param.requires_grad)
        self._how = how
        dims: dict[int, list[str]] = {}
        replicated, distinct = [], []
        for axis, placement in zip(axes, how.placements, strict=True):
            if placement == DISTINCT:
                distinct.append(axis)
            elif placement.is_replicate():
                replicated.append(axis)
            else:
                dims.setdefault(placement.dim % max(param.dim(), 1), []).append(axis)
        shape = how.shape or self._whole_shape(param, dims, mesh)
        placed = tuple((dim, tuple(names)) for dim, names in sorted(dims.items()))
        self.layout = _mesh.Layout(tuple(shape), placed, distinct=tuple(distinct))
        self._summed = mesh.group_of(replicated) if how.grad == "partial" else None

    @staticmethod
    def _whole_shape(param: torch.Tensor, dims: dict, mesh) -> tuple[int, ...]:
        """The extents of all parts of a dim: all ranks of its axes together."""
        shape = list(param.shape)
        for dim, names in sorted(dims.items()):
            extent = torch.tensor([shape[dim]])
            dist.all_reduce(extent, group=mesh.group_of(names))
            shape[dim] = int(extent)
        return tuple(shape)

    def is_current(self) -> bool:
        return self.param.data_ptr() == self.local.data_ptr()

    def refresh(self) -> None:
        """Takes the gradient; one that is partial is summed, which all ranks of the
        mesh do together. The user's own stays as it is."""
        grad = self.param.grad
        if grad is not None and self._summed is not None:
            grad = grad.detach().clone()
            dist.all_reduce(grad, group=self._summed)
        if grad is not None and self._how.grad_divisor is not None:
            grad = grad.detach() / self._how.grad_divisor
        self.local.grad = grad

    def show(self, name: str, state: torch.Tensor) -> torch.Tensor:
        return state

    def hide(self, name: str, state):
        return state

    def full(self, name: str, state):
        return state
