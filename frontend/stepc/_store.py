# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory in a file, of the runtime library: ``stepc/store.h``."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_void_p

from ._library import check, load_library
from ._structures import StoreCommitted, StoreConfig, StoreInfo

# Tensors of at most this many elements are never in a file. They are carved from a common block
# of memory: they lie in the order of the parameters, and share one version counter. Each has a
# storage of its own, of its bytes alone, which is what is saved and copied with it.
SMALL = 16384
WINDOWS, WINDOW_BYTES = 4, 8 << 20  # the library's own choice


class Store:
    """A file in ``directory``, of which pieces are taken; 0: the library's own choice. It goes
    with the store; with a ``name`` it stays, and has what was committed. StoreError where no file
    can be made there, or where that of the name is in use or no such file."""

    def __init__(
        self,
        directory: str,
        window_bytes: int = 0,
        windows: int = 0,
        threads: int = 0,
        buffered: bool = False,
        name: str | None = None,
    ):
        self._lib = load_library()
        self.handle = c_void_p()
        self.device = None  # on which states are stepped, or None: the processor
        config = StoreConfig(
            ctypes.sizeof(StoreConfig),
            os.fsencode(directory),
            window_bytes,
            windows,
            threads,
            int(buffered),
        )
        self.is_durable, lib, made = name is not None, self._lib, byref(self.handle)
        if name is None:
            check(lib, lib.stepcStoreCreate(byref(config), made))
        else:
            check(lib, lib.stepcStoreOpen(byref(config), os.fsencode(name), made))

    def __del__(self):
        if getattr(self, "handle", None):
            self._lib.stepcStoreDestroy(self.handle)
            self.handle = None

    def take(self, size: int) -> Piece:
        """So many bytes, zeros; StoreError where the disk has no room."""
        address = c_void_p()
        check(self._lib, self._lib.stepcStoreTake(self.handle, size, byref(address)))
        return Piece(self, address.value, size)

    def commit(self, note: bytes) -> None:
        """Has what is in it now be what the file has, with a note; StoreError."""
        check(self._lib, self._lib.stepcStoreCommit(self.handle, note, len(note)))

    def retreat(self) -> None:
        """Undoes the last commit: opened anew the file has the one before. StoreError where
        something was written since."""
        check(self._lib, self._lib.stepcStoreRetreat(self.handle))

    def close(self) -> None:
        """Lets others open the file, whoever still has the store or a piece of it, as the frames of
        an error do: they get StoreError."""
        check(self._lib, self._lib.stepcStoreClose(self.handle))

    def unlock(self) -> None:
        """Lets others open the file, which is read and written all the same."""
        check(self._lib, self._lib.stepcStoreUnlock(self.handle))

    def lock(self) -> None:
        """Takes it back; StoreError where somebody has opened it meanwhile."""
        check(self._lib, self._lib.stepcStoreLock(self.handle))

    def _committed(self) -> StoreCommitted:
        found = StoreCommitted(ctypes.sizeof(StoreCommitted))
        check(self._lib, self._lib.stepcStoreGetCommitted(self.handle, byref(found)))
        return found

    @property
    def generation(self) -> int:
        """How often it was committed, by all who had the file."""
        return self._committed().generation

    def note(self) -> bytes:
        """Of the last commit."""
        found = self._committed()
        return ctypes.string_at(found.note, found.noteBytes)

    def piece_at(self, offset: int, size: int) -> Piece:
        """What was taken by an earlier process."""
        address, lib = c_void_p(), self._lib
        check(lib, lib.stepcStoreGetAddress(self.handle, offset, size, byref(address)))
        return Piece(self, address.value, size)

    def info(self) -> StoreInfo:
        info = StoreInfo(ctypes.sizeof(StoreInfo))
        check(self._lib, self._lib.stepcStoreGetInfo(self.handle, byref(info)))
        return info


class Piece:
    """Bytes of a store, given back with the object; ``address`` is for plans."""

    def __init__(self, store: Store, address: int, size: int):
        self.store, self.address, self.size = store, address, size

    def __del__(self):
        if self.store.handle:
            self.store._lib.stepcStoreGive(self.store.handle, self.address)

    @property
    def offset(self) -> int:
        """Where it is in the store, as ``piece_at`` takes it."""
        offset, lib = ctypes.c_int64(), self.store._lib
        check(lib, lib.stepcStoreGetOffset(self.store.handle, self.address, byref(offset)))
        return offset.value

    def read(self, to: int, size: int, first: int = 0) -> None:
        """Copies bytes, from byte ``first`` on, to memory by its address."""
        lib, handle = self.store._lib, self.store.handle
        check(lib, lib.stepcStoreRead(handle, self.address + first, size, to))

    def write(self, source: int, size: int, first: int = 0) -> None:
        lib, handle = self.store._lib, self.store.handle
        check(lib, lib.stepcStoreWrite(handle, self.address + first, size, source))
