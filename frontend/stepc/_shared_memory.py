# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are processes of one host: ``stepc/shared_memory.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_int64, c_void_p

from . import _library
from ._mesh import CommunicatorStruct, ReduceCall, Transfer

_PLACE_BYTES = 128
_MESSAGE_BYTES = 1024


class SharedGroup:
    """Processes that exchange through memory which they share: ``StepcSharedGroup``.

    ``names``: a number for each rank by which messages call it. ``place``: that of the memory
    which rank 0 has made; None: this is rank 0, and makes it. An error of :mod:`stepc.errors`
    where that cannot be. Exchanges that fail raise RuntimeError, as those of torch do.
    """

    def __init__(self, names: Sequence[int], rank: int, place: str | None = None):
        self._library = _library.load_library()
        self._handle = c_void_p()
        words = (c_int64 * len(names))(*names)
        if place is None:
            create = self._library.stepcSharedGroupCreate
            status = create(len(names), words, byref(self._handle))
        else:
            join = self._library.stepcSharedGroupOpen
            status = join(place.encode(), rank, words, byref(self._handle))
        _library.check(self._library, status)
        self._calls = CommunicatorStruct(ctypes.sizeof(CommunicatorStruct))
        get = self._library.stepcSharedGroupGetCommunicator
        _library.check(self._library, get(self._handle, byref(self._calls)))
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._deadline = 0

    @property
    def place(self) -> str:
        """The words by which other ranks find it; of rank 0."""
        words = ctypes.create_string_buffer(_PLACE_BYTES)
        get = self._library.stepcSharedGroupGetPlace
        _library.check(self._library, get(self._handle, words, _PLACE_BYTES))
        return words.value.decode()

    def set_deadline(self, milliseconds: int) -> None:
        """How long each call may take from now on, at least 1."""
        if milliseconds != self._deadline:
            set_deadline = self._library.stepcSharedGroupSetDeadline
            _library.check(self._library, set_deadline(self._handle, milliseconds))
            self._deadline = milliseconds

    def reduce(self, calls: Sequence[ReduceCall]) -> None:
        """All of a round that are over the group."""
        array = (ReduceCall * len(calls))(*calls)
        self._require(
            self._calls.reduce(
                self._calls.context, array, len(array), self._message, _MESSAGE_BYTES
            )
        )

    def start(self, transfer: Transfer) -> Callable[[], None]:
        """Begins a transfer; returns what waits for it."""
        work = c_void_p()
        self._require(
            self._calls.start(
                self._calls.context, byref(transfer), byref(work), self._message, _MESSAGE_BYTES
            )
        )

        def finish() -> None:
            self._require(
                self._calls.finish(self._calls.context, work, self._message, _MESSAGE_BYTES)
            )

        return finish

    def _require(self, status: int) -> None:
        if status:
            raise RuntimeError(self._message.value.decode(errors="replace"))

    def close(self) -> None:
        """Leaves the group; again: nothing."""
        if self._handle:
            self._library.stepcSharedGroupDestroy(self._handle)
            self._handle = c_void_p()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()
