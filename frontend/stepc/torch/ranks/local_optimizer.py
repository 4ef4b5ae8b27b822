# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a plan of a rank's parts is bound to in place of the user's optimizer."""

from __future__ import annotations

import weakref

import torch

from ..._mesh import UNDER_WAY
from ..binding.state_map import StateMap
from ..tensors.members import Member, request_of
from ..tensors.patterns import KEY as VIEW


def _without_view(group: dict) -> dict:
    """Parts have the shape that it says."""
    return {key: value for key, value in group.items() if key != VIEW}


class LocalOptimizer:
    """An optimizer of the parts: what the user's is, but for parameters and states."""

    _static_grads = False
    _captured: tuple = ()  # those with steps in CUDA graphs
    _exclusive_writes = False  # versions of parts say little of who writes the whole

    def __init__(self, optimizer, groups: list[list], mesh, shares=None):
        self._optimizer = weakref.ref(optimizer)  # which has the binding that has this
        self._mesh = mesh
        self._shares = shares  # of zero
        self.param_groups = [
            {**_without_view(group), "params": [part.local for part in parts]}
            for group, parts in zip(optimizer.param_groups, groups, strict=True)
        ]
        self._parts = {id(part.local): part for parts in groups for part in parts}
        self.state = StateMap()

    def __getattr__(self, name: str):
        return getattr(self._optimizer(), name)

    def _place(self, member: Member) -> None:
        part = self._parts[id(member.param)]
        member.layout = part.layout
        if part.entry is not None:
            member.layout, member.entry, member.cut = part.bound, part.entry, part.own
            member.elements = part.begin, part.end
            member.elsewhere = part.is_owned and not part.owns

    def _whole_shape(self, param: torch.Tensor) -> tuple[int, ...]:
        layout = self._parts[id(param)].layout
        return tuple(param.shape) if layout is None else layout.shape

    def _is_trained(self, param: torch.Tensor) -> bool:
        """What was cut together is bound together, also when it is frozen later. What torch's own
        step has taken is bound when it has a gradient that it need not take."""
        part, apart = self._parts[id(param)], self._optimizer()._apart
        if apart is not None and apart.has(part.param):
            return False
        cut = part.entry is not None and not self._shares.how.frozen.was(part.param)
        return cut or param.requires_grad

    def _request_of(self, param: torch.Tensor) -> str:
        part = self._parts[id(param)]
        return request_of(part.layout, part.entry)

    def _calls_of(self, members: list[Member]) -> list[list[Member]]:
        """With ``zero`` those that are cut together, in the order of their gradients."""
        if self._shares is None:
            return [members]
        found = {id(member.param): member for member in members}
        calls = [[found[id(p.local)] for p in own if id(p.local) in found]
                 for own in self._shares.calls]  # fmt: skip
        shared = {id(part.local) for part in self._shares}
        # What owners step stands for a part that is cut.
        owned = [member for member in members if id(member.param) not in shared]
        return [own for own in (*calls, owned) if own]

    @property
    def _buckets(self) -> tuple[int, int, int] | None:
        if self._shares is None:
            return None
        how = self._shares.how
        gathered = how.gathered_at_once(self._mesh.device)
        return how.reduce_bytes, gathered, UNDER_WAY if how.overlap else 1

    @property
    def _shares_sums(self) -> bool:
        if self._shares is None or not self._shares.how.in_backward:
            return False
        return not (self._optimizer()._measures_norm or self._mesh.device.type != "cpu")

    @property
    def _brought(self) -> frozenset[int]:
        reducer = self._optimizer()._reducer
        if reducer is None:
            return frozenset()
        return frozenset(id(self._shares.part_of(p).local) for p in reducer.brought)

    def check_options(self) -> None:
        """Has the class refuse what its states, which are of the user's parameters, cannot have.
        Where ranks share states, some alone would: there it is not looked at."""
        optimizer = self._optimizer()
        if self._mesh is None or not self._mesh.mesh.names:
            for group in optimizer.param_groups:
                optimizer._read_options(group)

    def follow(self) -> None:
        """Takes over what the user has changed in the groups."""
        for own, group in zip(self.param_groups, self._optimizer().param_groups, strict=True):
            for key, value in _without_view(group).items():
                if key != "params":
                    own[key] = value
