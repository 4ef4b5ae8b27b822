# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How states and parameters are kept between steps: what ``--state`` and ``--master`` say."""

from __future__ import annotations

from dataclasses import dataclass

from .._codes import FORMATS
from ..interface import Interface
from .failure import PlanError
from .models import BYTES

STORAGES = (*BYTES, *FORMATS)
MASTERS = {"f32": "master", "remainder": "remainder"}  # the state of each form
_OF_16_BITS = {"f32": ("bf16", "f16"), "remainder": ("bf16",)}
AVERAGES = frozenset({"ema", "swa", "param_copy"})  # of fragments, which are read: no codes


@dataclass(frozen=True)
class Kept:
    """``states``: the storage of each by its name, of all by ""; those that are not named are
    float32, or float64 beside parameters of it. ``master``: of 16-bit parameters."""

    states: tuple[tuple[str, str], ...] = ()
    master: str | None = None

    @classmethod
    def parse(cls, states: str | None, master: str | None) -> Kept:
        """Of ``T`` or ``NAME:T,...``, and a key of :data:`MASTERS`; PlanError for others."""
        if master is not None and master not in MASTERS:
            raise PlanError(f"master is '{master}', known: {', '.join(MASTERS)}")
        found = {}
        for word in states.split(",") if states else ():
            name, _, storage = word.rpartition(":")
            if storage not in STORAGES:
                of = f" of '{name}'" if name else ""
                raise PlanError(f"state{of} is '{storage}', known: {', '.join(STORAGES)}")
            if name in found or (found and "" in (name, *found)):
                raise PlanError(f"states are '{states}', expected T or NAME:T,NAME:T")
            found[name] = storage
        return cls(tuple(found.items()), master)

    @property
    def compiled(self) -> str | None:
        """What the compiler's ``--state`` is; codes are of float32, and of the binding."""
        own = [(name, storage) for name, storage in self.states if storage not in FORMATS]
        return ",".join(f"{name}:{s}" if name else s for name, s in own) or None

    @property
    def keeps_codes(self) -> bool:
        return any(storage in FORMATS for _, storage in self.states)

    def coded(self, interface: Interface, dtype: str) -> tuple[tuple[str, str], ...]:
        """The states beside a parameter that are to be codes, with their formats."""
        if dtype == "f64":
            return ()
        kinds = {name: storage for name, storage in self.states if storage in FORMATS}
        known = [name for name in interface.states if name not in AVERAGES]
        return tuple((n, kinds.get(n) or kinds[""]) for n in known if "" in kinds or n in kinds)

    def check(self, interface: Interface) -> None:
        """PlanError for a name that is no state."""
        for name, _ in self.states:
            if name and name not in interface.states:
                known = ", ".join(interface.states) or "none"
                raise PlanError(f"'{interface.name}' has no state '{name}', it has: {known}")

    def form_of(self, dtype: str) -> str | None:
        """The master of parameters of the dtype."""
        return self.master if dtype in _OF_16_BITS.get(self.master, ()) else None
