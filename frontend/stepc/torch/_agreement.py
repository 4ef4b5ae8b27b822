# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That the ranks of a group are about to exchange the same things.

Compared through the key-value store of the process group, with a deadline, and not by a
collective: one rank may bind anew alone, and then has nothing new to compare. Each rank
notes, one after the other, what it has not noted for the group before; the n-th note of
all ranks must be the same. A rank notes before it knows whether it will exchange anything,
and reads the notes of others when it is about to: so one that exchanges nothing, as its
layout is another, is named too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import torch.distributed as dist

from .. import errors
from ._exchanges import timeout_of


@dataclass(frozen=True)
class Item:
    """A tensor that crosses ranks, or what all ranks have alike: what is compared."""

    text: str
    name: str = ""  # of the tensor
    axes: frozenset[str] | None = None  # along which ranks have it alike; None: all

    def concerns(self, axis: str) -> bool:
        """Whether the ranks along the axis have it alike."""
        return self.axes is None or axis in self.axes


class _Notes:
    """What this process has noted in a store for one group, and how much is compared."""

    def __init__(self):
        self.texts: list[str] = []
        self.compared = 0


class _Book:
    """The notes for each group, by its name and ranks."""

    def __init__(self):
        self._store = None
        self._notes: dict[str, _Notes] = {}

    def of(self, store, key: str) -> _Notes:
        if store is not self._store:  # torch.distributed has been started anew
            self._store, self._notes = store, {}
        return self._notes.setdefault(key, _Notes())


_book = _Book()


def _open(group) -> tuple:
    """The store, the ranks, where their notes are, and those of this one."""
    store = dist.distributed_c10d._get_default_store()
    ranks = tuple(dist.get_process_group_ranks(group))
    place = f"stepc/exchanges/{group.group_name}/{'-'.join(map(str, ranks))}"
    return store, ranks, place, _book.of(store, place)


def note(items: list[Item], axis: str, group) -> None:
    """Notes what is to be alike on the ranks along an axis. Waits for nobody."""
    store, _, place, notes = _open(group)
    text = json.dumps([item.text for item in items if item.concerns(axis)])
    if text not in notes.texts:
        store.set(f"{place}/{len(notes.texts)}/{dist.get_rank()}", text)
        notes.texts.append(text)


def compare(group) -> None:
    """DisagreementError where a rank of the group has noted other things.

    Names the rank and the first item in which it differs; or a rank that has not come when
    the group's timeout, or the optimizer's, is over.
    """
    store, ranks, place, notes = _open(group)
    for number in range(notes.compared, len(notes.texts)):
        own = notes.texts[number]
        for rank in ranks:
            if rank == dist.get_rank():
                continue
            theirs = _read(store, f"{place}/{number}/{rank}", rank, group)
            if theirs != own:
                # What is refused is none that the group has agreed on: every rank refuses it.
                notes.texts[number:] = [""] * (len(notes.texts) - number)
                notes.compared = len(notes.texts)
                raise difference(json.loads(own), json.loads(theirs), [rank])
    notes.compared = len(notes.texts)


def _read(store, key: str, rank: int, group) -> str:
    """What another rank has noted, waited for; CommunicationError."""
    deadline, began = timeout_of(group), time.monotonic()
    try:
        store.wait([key], deadline)
        return store.get(key).decode()
    except (dist.DistStoreError, RuntimeError) as error:
        waited = time.monotonic() - began
        words = f"rank {rank} has not come to its step in {deadline.total_seconds():g} s"
        # Stores round a deadline, and have no error of their own for one that is over.
        if waited < 0.9 * deadline.total_seconds():
            words = (
                f"the store of the process group failed after {waited:.1f} s, while rank {rank} "
            )
            words += f"was waited for: {error}"
        raise errors.CommunicationError(words, "STEPC_COMMUNICATION_ERROR") from None


def difference(
    own: list[str], other: list[str], ranks: list[int], kind=None
) -> errors.CommunicationError:
    """``other`` is what these ranks have. ``kind`` of error, by default DisagreementError."""
    for number, mine in enumerate(own):
        theirs = other[number] if number < len(other) else "nothing"
        if mine != theirs:
            words = f"here {mine}, there {theirs}"
            break
    else:
        words = f"here nothing after {len(own)} items, there {other[len(own)]}"
    who = f"rank {ranks[0]} exchanges"
    if len(ranks) > 1:
        who = f"ranks {', '.join(map(str, ranks))} exchange"
    return (kind or errors.DisagreementError)(
        f"{who} other things than rank {dist.get_rank()}: {words}", "STEPC_COMMUNICATION_ERROR"
    )
