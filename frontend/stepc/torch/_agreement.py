# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That the ranks of a group are about to exchange the same things.

Compared through the key-value store of the process group, with a deadline, and not by a
collective: one rank may bind anew alone, and then has nothing new to compare. Each rank
notes, one after the other, what it has not exchanged with the group before; the n-th note
of all ranks must be the same.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .. import errors

_DEFAULT = datetime.timedelta(minutes=30)  # torch's own


@dataclass(frozen=True)
class Item:
    """A tensor that crosses ranks, or what all ranks have alike: what is compared."""

    text: str
    name: str = ""  # of the tensor
    axes: frozenset[str] | None = None  # over which it is sharded; None: all compare it
    distinct: frozenset[str] = frozenset()  # other coordinates of these have others

    def concerns(self, axes: set[str]) -> bool:
        """Whether the ranks along these axes have it alike."""
        if self.axes is None:
            return True
        return bool(self.axes & axes) and not self.distinct & axes


class _Notes:
    """What this process has noted in a store, by the group's ranks."""

    def __init__(self):
        self._store = None
        self._noted: dict[tuple[int, ...], list[str]] = {}

    def of(self, store, ranks: tuple[int, ...]) -> list[str]:
        if store is not self._store:  # torch.distributed has been started anew
            self._store, self._noted = store, {}
        return self._noted.setdefault(ranks, [])


_notes = _Notes()


def check(items: list[Item], axes: set[str], ranks: tuple[int, ...], group) -> None:
    """CommunicationError where a rank of the group is to exchange other things.

    Names the rank and the first item in which it differs; or a rank that has not come when
    the group's timeout is over.
    """
    own = [item.text for item in items if item.concerns(axes)]
    text = json.dumps(own)
    store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
    noted = _notes.of(store, ranks)
    if text in noted:
        return
    place = f"stepc/exchanges/{'-'.join(map(str, ranks))}/{len(noted)}"
    # What is refused is none that the group has agreed on: every rank refuses it.
    noted.append("")
    store.set(f"{place}/{me}", text)
    for rank in ranks:
        if rank != me:
            theirs = _read(store, f"{place}/{rank}", rank, group)
            if theirs != text:
                raise _difference(own, json.loads(theirs), rank)
    noted[-1] = text


def _read(store, key: str, rank: int, group) -> str:
    deadline = _timeout(group)
    try:
        store.wait([key], deadline)
    except (dist.DistStoreError, RuntimeError):
        raise errors.CommunicationError(
            f"rank {rank} has not come to its step in {deadline.total_seconds():g} s",
            "STEPC_COMMUNICATION_ERROR",
        ) from None
    return store.get(key).decode()


def _timeout(group) -> datetime.timedelta:
    try:
        return group._get_backend(torch.device("cpu")).options._timeout
    except (AttributeError, RuntimeError):
        return _DEFAULT


def _difference(own: list[str], other: list[str], rank: int) -> errors.CommunicationError:
    for number, mine in enumerate(own):
        theirs = other[number] if number < len(other) else "nothing"
        if mine != theirs:
            words = f"here {mine}, there {theirs}"
            break
    else:
        words = f"here nothing after {len(own)} items, there {other[len(own)]}"
    return errors.CommunicationError(
        f"rank {rank} exchanges other things than rank {dist.get_rank()}: {words}",
        "STEPC_COMMUNICATION_ERROR",
    )
