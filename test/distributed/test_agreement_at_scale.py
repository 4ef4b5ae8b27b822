# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What 1024 ranks with 10 000 tensors ask of the store before their first step."""

import datetime
import functools
import json
import types

import pytest
import torch.distributed as dist
from stepc import errors
from stepc.torch.ranks import agreement as _agreement

RANKS, TENSORS = 1024, 10_000
ITEMS = [
    _agreement.Item(f"parameter 'layers.{n}.weight' of (4096, 4096), float32, flat over dp")
    for n in range(TENSORS)
]


class CountedStore:
    """Bytes that a rank sends to the store and gets from it, keys and values."""

    def __init__(self):
        self.store, self.bytes, self.calls = dist.HashStore(), 0, 0

    def __getattr__(self, name):
        def call(first, *more):
            self.calls += 1
            result = getattr(self.store, name)(first, *more)
            sent = [*(first if isinstance(first, list) else [first]), *more]
            got = result if isinstance(result, list) else [result]
            self.bytes += sum(len(part) for part in [*sent, *got] if isinstance(part, (str, bytes)))
            return result

        return call

    def has_extended_api(self):
        return True


@pytest.fixture
def world(monkeypatch):
    """One store, and ``enter(rank)``: this process is that rank from now on."""
    store, at = CountedStore(), types.SimpleNamespace(rank=0)
    books = {}
    fake = types.SimpleNamespace(
        DistStoreError=dist.DistStoreError,
        distributed_c10d=types.SimpleNamespace(_get_default_store=lambda: store),
        get_process_group_ranks=lambda group: list(range(RANKS)),
        get_rank=lambda: at.rank,
    )

    def enter(rank):
        at.rank = rank
        monkeypatch.setattr(_agreement, "_book", books.setdefault(rank, _agreement._Book()))
        store.bytes = store.calls = 0

    # One text for all ranks that have as many items: to write it takes long.
    dumps = functools.lru_cache(lambda size: json.dumps([item.text for item in ITEMS[:size]]))
    cached = types.SimpleNamespace(dumps=lambda texts: dumps(len(texts)), loads=json.loads)
    monkeypatch.setattr(_agreement, "json", cached)
    monkeypatch.setattr(_agreement, "dist", fake)
    monkeypatch.setattr(_agreement, "timeout_of", lambda group: datetime.timedelta(seconds=1))
    return store, enter


GROUP = types.SimpleNamespace(group_name="0")


def test_bytes_of_a_rank(world):
    store, enter = world
    enter(0)
    _agreement.note(ITEMS, "dp", GROUP)
    assert store.bytes < 1_000_000  # with the text
    for rank in range(1, RANKS):
        enter(rank)
        _agreement.note(ITEMS, "dp", GROUP)
        assert store.bytes < 500
    for rank in (0, 511, 1023):
        enter(rank)
        _agreement.compare(GROUP)
        assert store.bytes < 200_000 and store.calls <= 2
        enter(rank)
        _agreement.compare(GROUP)
        assert store.bytes == 0  # nothing new


def test_one_that_differs_is_named_by_all(world):
    store, enter = world
    for rank in range(RANKS):
        enter(rank)
        _agreement.note(ITEMS[: 99 if rank == 700 else 100], "dp", GROUP)
    for rank in (0, 1023):
        enter(rank)
        words = rf"rank 700 exchanges other things than rank {rank}: .*layers.99.*nothing"
        with pytest.raises(errors.DisagreementError, match=words):
            _agreement.compare(GROUP)
        assert store.bytes < 250_000  # both texts, once
    enter(700)
    with pytest.raises(errors.DisagreementError, match="rank 0 exchanges"):
        _agreement.compare(GROUP)


def test_one_that_does_not_come_is_named(world):
    store, enter = world
    for rank in range(RANKS - 1):
        enter(rank)
        _agreement.note(ITEMS[:10], "dp", GROUP)
    enter(5)
    with pytest.raises(errors.CommunicationError, match="rank 1023 has not come to its step in 1"):
        _agreement.compare(GROUP)


def test_a_text_that_never_came_is_a_difference_all_the_same(world):
    """The first rank with a digest ends between counting itself and writing the text."""
    store, enter = world
    digest = _agreement._digest(_agreement.json.dumps(ITEMS[:9]))
    for rank in range(RANKS):
        enter(rank)
        if rank == 700:
            ranks = _agreement._digest(str(tuple(range(RANKS))))
            store.add(f"stepc/exchanges/0/{ranks}/{digest}/ranks", 1)
        _agreement.note(ITEMS[: 9 if rank == 700 else 10], "dp", GROUP)
    enter(3)
    with pytest.raises(errors.DisagreementError, match="rank 700 .* and has not said what"):
        _agreement.compare(GROUP)
    enter(700)
    with pytest.raises(errors.DisagreementError, match="rank 0 exchanges .*layers.9.*"):
        _agreement.compare(GROUP)  # and says it now
