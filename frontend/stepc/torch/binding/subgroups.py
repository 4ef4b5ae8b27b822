# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of a plan that an optimizer does not have: of one of its groups the tensors for which an
option follows from their shape, as a rank that is a fraction of a matrix's extent."""

from __future__ import annotations

from ..tensors.members import Member
from .groups import BoundGroup


class Subgroups:
    """Behind the plan's groups that are the optimizer's, in the order of the parameters: the same
    on all ranks, whatever these step."""

    def __init__(self, plan, groups: list[BoundGroup], seed: tuple[float, ...], optimizer):
        self._plan, self._groups = plan, groups
        self._found: dict[tuple, int] = {}  # the plan's number
        for number, bound in enumerate(groups):
            for param in bound.params if bound.of_shape is not None else ():
                key = self._key(number, optimizer._whole_shape(param))
                if key not in self._found:
                    options = {**bound.options, **dict(key[1:])}
                    self._found[key] = plan.add_group(options, bound.hypers + seed)

    def _key(self, number: int, shape: tuple[int, ...]) -> tuple:
        return number, *self._groups[number].of_shape(shape).items()

    def place(self, members: list[Member]) -> None:
        """Tells members of theirs."""
        for member in members:
            if self._groups[member.group].of_shape is not None:
                member.plan_group = self._found[self._key(member.group, member.whole_shape)]

    def set_hypers(self, number: int, hypers: tuple[float, ...]) -> None:
        """Those of a group, which its subgroups have too."""
        for key, group in self._found.items():
            if key[0] == number:
                self._plan.set_hypers(group, hypers)
