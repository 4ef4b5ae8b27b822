# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a plan of a rank's parts is bound to in place of the user's optimizer."""

from __future__ import annotations

import itertools
import weakref

import torch

from ..._mesh import UNDER_WAY
from ..binding.state_map import StateMap
from ..tensors.members import WORDS, Member, parameter_name, request_of
from ..tensors.patterns import KEY as VIEW
from ..tensors.patterns import SEEN


def _without_view(group: dict) -> dict:
    """Parts have the shape that it says; the class may look at what it was."""
    own = {key: value for key, value in group.items() if key != VIEW}
    return own if VIEW not in group else {**own, SEEN: group[VIEW]}


def _as_planned(group: dict, number: int, parts: list) -> dict:
    """A group with the tensors that the plan steps, and what to call them where they are more than
    the user's parameters."""
    planned = {**group, "params": list(itertools.chain.from_iterable(p.planned for p in parts))}
    if all(part.blocks is None for part in parts):
        return planned
    names, words = group.get("param_names"), []
    given: list[str] = []
    for place, part in enumerate(parts):
        name = parameter_name(group, number, place)
        many = part.blocks is not None
        words += [f"block {k} of {name}" if many else name for k in range(len(part.planned))]
        given += [f"{names[place]}[{k}]" if many else names[place]
                  for k in range(len(part.planned) if names else 0)]  # fmt: skip
    return {**planned, **({"param_names": given} if names else {}), WORDS: words}


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
            _as_planned(_without_view(group), number, parts)
            for number, (group, parts) in enumerate(
                zip(optimizer.param_groups, groups, strict=True)
            )
        ]
        self._parts = {id(own): p for parts in groups for p in parts for own in p.planned}
        # Of a block, its number.
        self._numbers = {
            id(own): number
            for part in itertools.chain.from_iterable(groups)
            if part.blocks is not None
            for number, own in enumerate(part.planned)
        }
        self.state = StateMap()

    def __getattr__(self, name: str):
        return getattr(self._optimizer(), name)

    def _place(self, member: Member) -> None:
        part = self._parts[id(member.param)]
        member.layout = self._layout_of(member.param)
        member.sends_states = part.sends_states
        if id(member.param) in self._numbers:
            member.joint = id(part)
            member.pieces_of = part.blocks.pieces_of if part.blocks.lies_apart else None
        if part.entry is not None:
            number = self._numbers.get(id(member.param))
            member.layout, member.entry, member.cut = part.bound, part.entry, part.own
            member.elements = part.begin, part.end
            if number is not None:
                member.layout = part.blocks.layout(part.bound, number)
                member.cut = member.param if part.owns else member.param.reshape(-1)[:0]
                member.elements = part.cuts[number].begin, part.cuts[number].end
            member.elsewhere = part.is_owned and not part.owns

    def _layout_of(self, param: torch.Tensor):
        part, number = self._parts[id(param)], self._numbers.get(id(param))
        return part.layout if number is None else part.blocks.layout(part.layout, number)

    def _whole_shape(self, param: torch.Tensor) -> tuple[int, ...]:
        layout = self._layout_of(param)
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
        return request_of(self._layout_of(param), self._parts[id(param)].entry)

    def _calls_of(self, members: list[Member]) -> list[list[Member]]:
        """With ``zero`` those that are cut together, in the order of their gradients."""
        if self._shares is None:
            return [members]
        found = {id(member.param): member for member in members}
        calls = [[found[id(t)] for p in own for t in p.planned if id(t) in found]
                 for own in self._shares.calls]  # fmt: skip
        shared = {id(tensor) for part in self._shares for tensor in part.planned}
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
        return frozenset(id(t) for p in reducer.brought for t in self._shares.part_of(p).planned)

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
                if key != "params" and not (key == "param_names" and WORDS in own):
                    own[key] = value
