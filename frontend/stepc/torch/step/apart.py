# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that torch's own step takes, beside the compiled step of all others: those of a
sparse gradient, complex ones, or of a class with operations of its own.

They have no gradient while the compiled step looks at the parameters, and are alone in their
groups while torch's runs. So an embedding with a sparse gradient costs the others nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from ..tensors import dlpack as _tensors
from ..tensors.members import ObstacleError, named_parameters
from .eager import step_eagerly


class Apart:
    """Those that have been found. ``taken``: with words, whose gradient of this step torch is to
    take."""

    def __init__(self):
        self._known: dict[int, tuple[str, torch.Tensor]] = {}  # by id() of the parameter

    def find(self, obstacle: ObstacleError, groups: list[dict]) -> bool:
        """Looks for all that are such as the one that has been met. False where that is none:
        the obstacle is none of a single parameter, or known already."""
        if obstacle.param is None or id(obstacle.param) in self._known:
            return False
        for name, param in named_parameters(groups):
            found = _tensors.obstacle(param, param.grad)
            if found is not None and found[1] and param.grad is not None:
                self._known[id(param)] = (name, param)
        return id(obstacle.param) in self._known

    def has(self, param: torch.Tensor) -> bool:
        """Whether it is one of those that have been found."""
        return id(param) in self._known

    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._known.values())

    def taken(self) -> list[tuple[str, torch.Tensor]]:
        found = []
        for name, param in self._known.values():
            words = None if param.grad is None else _tensors.obstacle(param, param.grad)
            if words is not None:
                found.append((f"{name} {words[0]}", param))
        return found


@contextlib.contextmanager
def without_gradients(params: list[torch.Tensor]) -> Iterator[None]:
    """The parameters have none meanwhile."""
    grads = [param.grad for param in params]
    for param in params:
        param.grad = None
    try:
        yield
    finally:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad


def step_apart(optimizer, taken: list[tuple[str, torch.Tensor]]) -> None:
    """torch's own step of these parameters alone."""
    wanted = {id(param) for _, param in taken}
    groups = optimizer.param_groups
    lists = [group["params"] for group in groups]
    try:
        for group, params in zip(groups, lists, strict=True):
            group["params"] = [param for param in params if id(param) in wanted]
        step_eagerly(optimizer, taken[0][0], [param for _, param in taken])
    finally:
        for group, params in zip(groups, lists, strict=True):
            group["params"] = params
