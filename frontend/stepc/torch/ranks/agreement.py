# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That the ranks of a group are about to exchange the same things.

Compared through the key-value store of the process group, with a deadline, and not by a
collective: one rank may bind anew alone, and then has nothing new to compare. Each rank
notes, one after the other, what it has not noted for the group before; the n-th note of
all ranks must be the same. A rank notes before it knows whether it will exchange anything,
and reads the notes of others when it is about to: so one that exchanges nothing, as its
layout is another, is named too.

A note is a digest, so that 1024 ranks with 10 000 tensors read tens of kilobytes each. The
text goes into the store once for each digest, by the first rank that has it, and is read
where digests differ.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass

import torch.distributed as dist

from ... import errors
from .exchanges import timeout_of

_REFUSED = ""  # in place of a digest: no group agrees on it


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
        self.digests: list[str] = []
        self.texts: dict[str, str] = {}  # of those not compared, by digest
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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _open(group) -> tuple:
    """The store, the ranks, where their notes are, and those of this one."""
    store = dist.distributed_c10d._get_default_store()
    ranks = tuple(dist.get_process_group_ranks(group))
    place = f"stepc/exchanges/{group.group_name}/{_digest(str(ranks))}"
    return store, ranks, place, _book.of(store, place)


def note(items: list[Item], axis: str, group) -> None:
    """Notes what is to be alike on the ranks along an axis. Waits for nobody."""
    store, _, place, notes = _open(group)
    text = json.dumps([item.text for item in items if item.concerns(axis)])
    digest = _digest(text)
    if digest in notes.digests:
        return
    if store.add(f"{place}/{digest}/ranks", 1) == 1:
        store.set(f"{place}/{digest}", text)
    store.set(f"{place}/{len(notes.digests)}/{dist.get_rank()}", digest)
    notes.digests.append(digest)
    notes.texts[digest] = text


def compare(group) -> None:
    """DisagreementError where a rank of the group has noted other things.

    Names the rank and the first item in which it differs; or a rank that has not come when
    the group's timeout, or the optimizer's, is over.
    """
    store, ranks, place, notes = _open(group)
    others = [rank for rank in ranks if rank != dist.get_rank()]
    for number in range(notes.compared, len(notes.digests)):
        own = notes.digests[number]
        keys = {f"{place}/{number}/{rank}": rank for rank in others}
        for rank, theirs in zip(others, _read(store, keys, group), strict=True):
            if theirs != own:
                # What is refused is none that the group has agreed on: every rank refuses it.
                notes.digests[number:] = [_REFUSED] * (len(notes.digests) - number)
                notes.compared = len(notes.digests)
                text = notes.texts[own]
                notes.texts.clear()
                # The rank that was to write it may have ended before it did.
                store.set(f"{place}/{own}", text)
                raise _told_apart(store, f"{place}/{theirs}", text, rank, group)
    notes.compared = len(notes.digests)
    notes.texts.clear()


def _told_apart(store, key: str, own: str, rank: int, group) -> errors.CommunicationError:
    """The error of a digest that differs."""
    try:
        (theirs,) = _read(store, {key: rank}, group)
    except errors.CommunicationError:
        words = (
            f"rank {rank} exchanges other things than rank {dist.get_rank()}, and has not said what"
        )
        return errors.DisagreementError(words, "STEPC_COMMUNICATION_ERROR")
    return difference(json.loads(own), json.loads(theirs), [rank])


def _read(store, keys: dict[str, int], group) -> list[str]:
    """What ranks have noted under keys, waited for; CommunicationError."""
    deadline, began = timeout_of(group), time.monotonic()
    wanted = list(keys)
    try:
        store.wait(wanted, deadline)
        many = store.has_extended_api()
        found = store.multi_get(wanted) if many else [store.get(key) for key in wanted]
        return [text.decode() for text in found]
    except (dist.DistStoreError, RuntimeError) as error:
        waited = time.monotonic() - began
        rank = _missing(store, keys)
        words = f"rank {rank} has not come to its step in {deadline.total_seconds():g} s"
        # Stores round a deadline, and have no error of their own for one that is over.
        if waited < 0.9 * deadline.total_seconds():
            words = (
                f"the store of the process group failed after {waited:.1f} s, while rank {rank} "
            )
            words += f"was waited for: {error}"
        raise errors.CommunicationError(words, "STEPC_COMMUNICATION_ERROR") from None


def _missing(store, keys: dict[str, int]) -> int:
    """The first rank whose note is not there, as far as the store can tell."""
    first = next(iter(keys.values()))
    try:
        return next((rank for key, rank in keys.items() if not store.check([key])), first)
    except (dist.DistStoreError, RuntimeError):
        return first


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
