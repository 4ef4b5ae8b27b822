# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks of one host exchange through memory that they share, where their process group goes
over Gloo, which has sockets alone: a gather takes a third of its time, a sum of a few numbers a
fiftieth (docs/measurements.md). ``STEPC_SHARED_MEMORY=0`` leaves all to Gloo.

Whether they can is found out at a group's first exchange: its first rank makes the memory, the
others look for it. All ranks do the same: where one of them does not find it, none uses it.
"""

from __future__ import annotations

import ctypes
import datetime
import os

import torch
import torch.distributed as dist

from ... import errors
from ..._mesh import ALL_TO_ALL, MAX_I64, SUM_F64, ReduceCall, Transfer
from ..._shared_memory import SharedGroup
from .exchanges import Ranks, gathered, timeout_of

_CPU = torch.device("cpu")
_MAKING = "memory for the ranks of one host could not be made"
_REDUCTIONS = {
    (torch.float64, dist.ReduceOp.SUM): SUM_F64,
    (torch.int64, dist.ReduceOp.MAX): MAX_I64,
}
# Of this process; None where ranks cannot share memory.
_made: dict[str, tuple[dist.ProcessGroup, SharedGroup | None]] = {}


def shared_group(group: dist.ProcessGroup) -> SharedGroup | None:
    """The memory of a group's ranks, whose calls end by the current timeout; None where they
    exchange by ``torch.distributed``. The first call for a group is made by all of them."""
    known = _made.get(group.group_name)
    # torch.distributed may have been started anew, with groups of the same names.
    if known is None or known[0] is not group:
        known = _made[group.group_name] = group, _make(group)
    shared = known[1]
    if shared is not None:
        shared.set_deadline(max(1, timeout_of(group) // datetime.timedelta(milliseconds=1)))
    return shared


def all_reduce(tensor: torch.Tensor, operation: dist.ReduceOp, group: dist.ProcessGroup) -> None:
    """As ``dist.all_reduce`` of a dense tensor, in place."""
    reduction = _REDUCTIONS.get((tensor.dtype, operation))
    shared = shared_group(group) if tensor.device == _CPU else None
    if shared is None or reduction is None:
        dist.all_reduce(tensor, operation, group=group)
    else:
        shared.reduce([ReduceCall(0, reduction, 0, tensor.data_ptr(), tensor.numel())])


def all_to_all(
    received: torch.Tensor,
    sent: torch.Tensor,
    sizes: list[int],
    own: list[int],
    group: dist.ProcessGroup,
) -> None:
    """As ``dist.all_to_all_single`` of bytes in the processor's memory: ``own`` for each rank,
    and ``sizes`` from each."""
    shared = shared_group(group)
    if shared is None:
        dist.all_to_all_single(received, sent, sizes, own, group=group)
        return
    numbers = ctypes.c_int64 * len(own)
    pointers = sent.data_ptr(), received.data_ptr()
    shared.start(Transfer(0, ALL_TO_ALL, 0, *pointers, numbers(*own), numbers(*sizes)))()


def _goes_over_gloo(group: dist.ProcessGroup) -> bool:
    try:
        return group._get_backend(_CPU).name() == "gloo"
    except (AttributeError, RuntimeError):
        return False


def _make(group: dist.ProcessGroup) -> SharedGroup | None:
    ranks = tuple(dist.get_process_group_ranks(group))
    if len(ranks) == 1 or not _goes_over_gloo(group):
        return None
    wanted = os.environ.get("STEPC_SHARED_MEMORY", "1") != "0"
    rank = dist.get_rank(group)
    own = _join(ranks, 0) if wanted and rank == 0 else None
    place = gathered(own.place if own else None, _MAKING, group, _CPU)[0]
    if wanted and place and rank:
        own = _join(ranks, rank, place)
    if all(gathered(own is not None, _MAKING, group, _CPU)):
        return own
    if own is not None:
        own.close()
    return None


def _join(ranks: Ranks, rank: int, place: str | None = None) -> SharedGroup | None:
    try:
        return SharedGroup(ranks, rank, place)
    except errors.StepcError:
        return None
