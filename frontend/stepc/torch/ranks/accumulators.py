# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who else waits for a gradient: DistributedDataParallel, and what is made in its manner,
hangs a hook on the node of autograd that accumulates it, and reduces it from there."""

from __future__ import annotations

import functools

import torch

from ... import errors
from ..tensors.probes import apart, word

_SIZE = 384  # bytes of a node that are looked at
_NODE = object.__basicsize__  # where a node's Python object has its address


def _node_of(param: torch.Tensor):
    """What accumulates the parameter's gradient, the same object for as long as it lives."""
    return torch.autograd.graph.get_gradient_edge(param).node


@functools.cache
def _place_of_hooks() -> int:
    """Where a node has its list of hooks, begin and end; 0 where that is not certain."""
    return apart(_find_hooks)


def _find_hooks() -> int:
    node = _node_of(torch.zeros(1, dtype=torch.float32, device="cpu", requires_grad=True))
    if type(node).__basicsize__ < _NODE + 8:
        return 0
    address = word(id(node) + _NODE)
    places = range(0, _SIZE, 8)
    before = [word(address + at) for at in places]
    node.register_hook(lambda *_: None)
    changed = [at for at, then in zip(places, before, strict=True) if word(address + at) != then]
    if len(changed) != 3 or changed[2] - changed[0] != 16 or any(before[at // 8] for at in changed):
        return 0
    begin, end = word(address + changed[0]), word(address + changed[1])
    return changed[0] if end - begin == 8 else 0


def _is_hooked(param: torch.Tensor, place: int) -> bool:
    node = _node_of(param)
    at = word(id(node) + _NODE) + place
    return word(at) != word(at + 8)


def refuse_reducers(named: list[tuple[str, torch.Tensor]], doing: str) -> None:
    """StepcError where something else has still to reduce the gradients of parameters over
    ranks. ``doing``: what needs them reduced."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    place = _place_of_hooks()
    if not place:
        raise errors.StepcError(
            f"{doing} on {torch.distributed.get_world_size()} ranks needs to know who reduces "
            f"gradients, and does not find it in torch {torch.__version__}"
        )
    for name, param in named:
        if _is_hooked(param, place):
            raise errors.StepcError(
                f"{name} has a hook where its gradient is accumulated, as "
                "DistributedDataParallel has to reduce it; "
                f"{doing} would take this rank's gradient before that. Give it a model "
                "without the wrapper, or take an optimizer that steps after the backward pass"
            )
