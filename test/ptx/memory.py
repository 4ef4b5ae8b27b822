# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of this process as threads of a device see it: regions that may be accessed, and
who accessed what between two barriers.
"""

import ctypes

import numpy as np

_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_GRANULE = 2  # bytes: few accesses are narrower
_BLOCK = 256  # threads


class Fault(Exception):
    """What a device would stop for, or undefined."""


def _get_block(record):
    return np.where(record > 0, (record - 1) // _BLOCK, np.where(record < -1, -2 - record, -1))


class Memory:
    """Regions of this process that a kernel may access, each an array's.

    Races: of every granule the last thread that wrote it and the one that has read it are kept
    (its number plus 1; 0 none; of several readers -2 less the block's number, or -1 where
    they are of several blocks), each with the interval between barriers in which it did. Threads
    of one block are ordered by barriers, those of two by nothing.
    """

    def __init__(self, arrays, granule=_GRANULE):
        self.granule = granule
        self.arrays = sorted((a for a in arrays if a.nbytes), key=lambda a: a.ctypes.data)
        self.begins = np.array([a.ctypes.data for a in self.arrays], np.uint64)
        sizes = np.array([a.nbytes for a in self.arrays], np.uint64)
        self.ends = self.begins + sizes
        granules = (sizes + np.uint64(granule - 1)) // np.uint64(granule)
        self.offsets = np.concatenate([[0], np.cumsum(granules)]).astype(np.int64)
        if not self.arrays:
            return
        self.low = int(self.begins[0]) // 64 * 64
        span = (int(self.ends[-1]) - self.low + 63) // 64 * 64
        everything = (ctypes.c_uint8 * span).from_address(self.low)
        # Only what is in a region is touched.
        self.views = {size: np.frombuffer(everything, kind) for size, kind in _TYPES.items()}

    def begin_launch(self):
        count = int(self.offsets[-1])
        self.interval = 1
        self.writers = np.zeros((2, count), np.int64)
        self.readers = np.zeros((2, count), np.int64)

    def begin_interval(self):
        self.interval += 1

    def find(self, addresses, size):
        """The regions of accesses of `size` bytes."""
        odd = addresses % np.uint64(size) != 0
        if odd.any():
            raise Fault(f"address {int(addresses[odd][0]):#x} is no multiple of {size}")
        region = np.searchsorted(self.begins, addresses, "right") - 1
        outside = region < 0
        if len(self.begins):
            outside |= addresses + np.uint64(size) > self.ends[region]
        if outside.any():
            raise Fault(f"address {int(addresses[outside][0]):#x} is in no region")
        return region

    def get_granules(self, addresses, size):
        region = self.find(addresses, size)
        first = ((addresses - self.begins[region]) // np.uint64(self.granule)).astype(np.int64)
        first += self.offsets[region]
        return first[:, None] + np.arange(max(1, size // self.granule))

    def check_order(self, record, granules, numbers, what):
        """Refuses what another thread did that no barrier has ended."""
        other, when = record[0][granules], record[1][granules]
        mine = numbers[:, None] + 1
        elsewhere = _get_block(other) != _get_block(mine)
        race = (other != 0) & (other != mine) & (elsewhere | (when == self.interval))
        if race.any():
            raise Fault(f"thread {int(numbers[race.any(axis=1)][0])} {what} what another one")

    def load(self, addresses, size, count, numbers):
        """`count` arrays: elements of `size` bytes side by side."""
        granules = self.get_granules(addresses, size * count)
        self.check_order(self.writers, granules, numbers, "reads")
        mine = np.broadcast_to(numbers[:, None] + 1, granules.shape)
        block = _get_block(mine)
        known, when = self.readers[0][granules], self.readers[1][granules]
        same = _get_block(known) == block
        alone = (known == 0) | (known == mine) | (same & (when < self.interval))
        self.readers[0][granules] = np.where(alone, mine, np.where(same, -2 - block, -1))
        last = self.readers[0][granules]
        several = (last > 0) & (last != mine)
        self.readers[0][granules] = np.where(several, -2 - block, last)
        self.readers[1][granules] = self.interval
        index = ((addresses - np.uint64(self.low)) // np.uint64(size)).astype(np.int64)
        return [self.views[size][index + k].astype(np.uint64) for k in range(count)]

    def store(self, addresses, size, values, numbers):
        granules = self.get_granules(addresses, size * len(values))
        self.check_order(self.writers, granules, numbers, "writes")
        self.check_order(self.readers, granules, numbers, "writes")
        mine = np.broadcast_to(numbers[:, None] + 1, granules.shape)
        self.writers[0][granules] = mine
        if (self.writers[0][granules] != mine).any():
            raise Fault("two threads write the same address at once")
        self.writers[1][granules] = self.interval
        index = ((addresses - np.uint64(self.low)) // np.uint64(size)).astype(np.int64)
        for k, value in enumerate(values):
            self.views[size][index + k] = np.asarray(value).astype(_TYPES[size])
