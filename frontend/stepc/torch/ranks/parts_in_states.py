# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are parts: what a saved one says of that, and what a loaded one has to."""

from __future__ import annotations

import torch

from ..tensors.members import named_parameters
from ..tensors.patterns import KEY, check_view
from .dtensor import is_dtensor, place_of
from .exchanges import within
from .state_parts import StatePart


class PartsInStates:
    """Mix-in of :class:`~stepc.torch.ranks.arguments.OnRanks`."""

    def _pack_parts(self, packed: dict) -> None:
        """Lets the states that are parts say so, in what ``state_dict`` has made."""
        parts = self._parts() if self._is_shared else {}
        for number, id_ in zip(_numbers(packed), self._param_ids(), strict=True):
            own = packed["state"].get(number)
            if not isinstance(own, dict):
                continue
            if id_ in parts:
                saved = {name: parts[id_].saved(name, value) for name, value in own.items()}
                packed["state"][number] = {
                    name: value
                    for name, value in saved.items()
                    if value is not None or own[name] is None  # else another rank has it
                }

    def _check_parts(self, state_dict: dict) -> None:
        """ValueError for a state that is another part than this rank has, and for a view that no
        parameter of its group can have."""
        groups, saved = self.param_groups, state_dict["param_groups"]
        for number, (own, group) in enumerate(zip(saved, groups, strict=False)):
            check_view({**group, KEY: own.get(KEY)}, number, bool(self._layouts))
        values = state_dict["state"]
        parts = self._parts() if values and self._is_shared else {}
        named = named_parameters(groups)
        viewed = {
            id(param)
            for own, group in zip(saved, groups, strict=False)
            if own.get(KEY) is not None or group.get(KEY) is not None
            for param in group["params"]
        }
        for number, (called, param) in zip(_numbers(state_dict), named, strict=False):
            own, lies_alike = values.get(number), id(param) not in viewed
            for name, value in own.items() if isinstance(own, dict) else ():
                if isinstance(value, torch.Tensor):
                    words = _strange(param, parts.get(id(param)), name, value, lies_alike)
                    if words:
                        raise ValueError(
                            f"state '{name}' of {called} {words}; full_state_dict() makes a state "
                            "that loads anywhere, torch.distributed.checkpoint one of parts"
                        )

    def _full_states(self) -> dict[int, dict]:
        """Whole states by ``id()`` of the parameter: all ranks together."""
        from .distributed import make_binding
        from .parts import is_distributed

        if not is_distributed(self):
            return {}
        binding = self._binding
        with within(self._timeout):
            return (make_binding(self) if binding is None else binding).full_states()


def _numbers(packed: dict) -> list:
    return [number for group in packed["param_groups"] for number in group["params"]]


def _strange(param, part, name: str, value: torch.Tensor, lies_alike: bool) -> str:
    """What of a loaded state cannot be this rank's, in words; "" where it can. ``lies_alike``:
    whether one of the parameter's shape has its placements."""
    # Scales of DTensors may be parts, too.
    own = part.place if part is not None else place_of(param) if is_dtensor(param) else None
    if isinstance(value, StatePart):
        has = "has whole states" if own is None else f"has {own}"
        return "" if value.place == own else f"is {value.place}, this optimizer {has}"
    if is_dtensor(value) and not is_dtensor(param):
        return f"is a DTensor with placements {tuple(value.placements)}, the parameter is none"
    # With an extent of 1, or a view, it may be a row or a column, which lies otherwise: a step
    # looks again.
    like = is_dtensor(value) and value.shape == param.shape and 1 not in param.shape
    if like and lies_alike and value.placements != param.placements:
        return (
            f"has placements {tuple(value.placements)}, the parameter has {tuple(param.placements)}"
        )
    if part is not None and part.is_bare(name, value):
        return "is a part that does not say which"
    return ""
