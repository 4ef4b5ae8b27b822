# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where states lie between steps: ``place`` (docs/placement.md)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ... import errors
from ..._describe import SCALE, State, is_scale
from ..._store import SMALL, WINDOW_BYTES, WINDOWS, Store
from ..tensors.host_memory import HostMemory
from ..tensors.members import Member
from ..tensors.stored import StoredStates

_PLACES = ("disk", "host")


@dataclass(frozen=True)
class Place:
    """Where the states of an optimizer lie between steps.

    Args:
        states: "disk", a file of this process, or "host", the processor's memory, where those
            of parameters there are in any case.
        path: the folder in which the file is made, for "disk". Unless it is durable it has no
            name, and is gone with the optimizer: it is no checkpoint.
        fraction: of the parameters' elements, from the first parameter on, how much has its
            states there.
        buffers: windows of memory, of which one is worked on while others are read and
            written; 2 to 64.
        window_bytes: of one of them, 4096 to 2**34; larger where a tensor's states cannot be
            cut.
        threads: that read and write, 1 to 64.
        direct: pass the system's cache, where the file system can.
        durable: the file has a name and stays, and has after each step all that belongs to it,
            parameters too, whatever moment the process or the machine ends at; see ``recover``.
            It has twice the size.
        name: of that file.

    Raises ValueError and TypeError.
    """

    states: str = "disk"
    path: str | os.PathLike | None = None
    fraction: float = 1.0
    buffers: int = WINDOWS
    window_bytes: int = WINDOW_BYTES
    threads: int = 4
    direct: bool = True
    durable: bool = False
    name: str = "states.stepc"

    def __post_init__(self):
        if self.states not in _PLACES:
            raise ValueError(f"states is {self.states!r}, expected 'disk' or 'host'")
        if self.states == "disk" and self.path is None:
            raise ValueError("path is None, expected the folder of a disk for states='disk'")
        if self.path is not None and not isinstance(self.path, (str, os.PathLike)):
            raise TypeError(f"path is {self.path!r}, expected a path")
        if isinstance(self.fraction, bool) or not 0.0 <= self.fraction <= 1.0:
            raise ValueError(f"fraction is {self.fraction!r}, expected a number from 0 to 1")
        if self.durable and not self.on_disk:
            raise ValueError(
                f"durable=True is for states on disk, and states is {self.states!r}, fraction "
                f"{self.fraction}"
            )
        if not isinstance(self.name, str) or os.path.basename(self.name) in ("", ".", ".."):
            raise ValueError(f"name is {self.name!r}, expected the name of a file")
        if os.path.basename(self.name) != self.name:
            raise ValueError(f"name is {self.name!r}, expected one without a folder: path is that")
        for name, least, most in (
            ("buffers", 2, 64),
            ("window_bytes", 4096, 1 << 34),
            ("threads", 1, 64),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}, expected an integer")
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}, expected one from {least} to {most}")

    @property
    def on_disk(self) -> bool:
        return self.states == "disk" and self.fraction > 0


class StoreReport(NamedTuple):
    """Of the file that states lie in, bytes: of the file, and of it taken; read and written since
    it was made; of a window, and how many of these there are. ``direct``: whether the system's
    cache is passed. ``step``: of a durable file how many steps it has had, of all processes."""

    file_bytes: int
    bytes_taken: int
    bytes_read: int
    bytes_written: int
    window_bytes: int
    windows: int
    direct: bool
    step: int | None = None


class Stored:
    """Which states of a plan's tensors lie elsewhere than their parameters, and where."""

    def __init__(self, home: StoredStates | HostMemory, place: Place, groups: list[dict]):
        self.home = home
        sizes = [param.numel() for group in groups for param in group["params"]]
        self._before, total = [], 0
        for size in sizes:
            self._before.append(total)
            total += size
        self._end = place.fraction * total

    def takes(self, member: Member, state: State, known: frozenset[str]) -> bool:
        """Whether the state of a member is one; ``known``: what is read and written by others
        than steps, and so stays."""
        if member.elsewhere or member.sends_states or member.joint is not None:
            return False
        if state.name in known:
            return False
        if member.index < len(self._before) and self._before[member.index] >= self._end:
            return False
        if is_scale(state.name):  # as the codes before it
            [state] = [s for s in member.gets.states if s.name + SCALE == state.name]
        state = state.floats or state
        size = member.own.numel() if state.is_full else math.prod(state.part)
        return size > SMALL


class Placement:
    """Mix-in of :class:`CompiledStep`."""

    _placed: Place | None = None
    _store: Store | None = None

    def _set_placement(self, place: Place | None) -> None:
        if place is not None and not isinstance(place, Place):
            raise TypeError(f"place is {place!r}, expected stepc.torch.Place(...) or None")
        self._placed = place

    def _stored(self, groups: list[dict], device: torch.device) -> Stored | None:
        """Which states of a plan's tensors lie elsewhere."""
        place = self._placed
        if place is None or place.fraction == 0:
            return None
        if not place.on_disk:
            if device.type == "cpu":
                return None
            return Stored(HostMemory(device), place, groups)
        if self._store is None:
            store = self._open_store()
            if store.is_durable and store.generation:
                step, self._store = store.generation, None
                store.close()  # for others to open it
                raise errors.StoreError(
                    f"{self._file_of_states} has step {step} of an earlier optimizer: "
                    "recover() goes on with it; a file that nobody needs is to be removed",
                    "STEPC_STORE_ERROR",
                )
        self._store.device = device
        return Stored(StoredStates(self._store), place, groups)

    @property
    def _file_of_states(self) -> str:
        return f"the file of states '{os.path.join(self._placed.path, self._name_of_file)}'"

    def _open_store(self) -> Store:
        place = self._placed
        self._store = Store(
            os.fspath(place.path),
            place.window_bytes,
            place.buffers,
            place.threads,
            not place.direct,
            self._name_of_file if place.durable else None,
        )
        return self._store

    def stored(self) -> StoreReport | None:
        """Of the file that states lie in; None where none does, as before the first step."""
        if self._store is None:
            return None
        info = self._store.info()
        return StoreReport(
            info.fileBytes,
            info.takenBytes,
            info.bytesRead,
            info.bytesWritten,
            info.windowBytes,
            info.numWindows,
            bool(info.direct),
            self._store.generation if self._store.is_durable else None,
        )

    @property
    def _is_on_host(self) -> bool:
        """Whether states of parameters on devices lie in the host's memory."""
        place = self._placed
        return place is not None and not place.on_disk and place.fraction > 0

    @property
    def _copies_in(self) -> str | None:
        """The folder of files that copies of states are, where states are in one."""
        place = self._placed
        return os.fspath(place.path) if place is not None and place.on_disk else None
