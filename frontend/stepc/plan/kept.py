# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How states and parameters are kept between steps: what ``--state`` and ``--master`` say."""

from __future__ import annotations

from dataclasses import dataclass

from .._codes import FORMATS, Codes, as_codes
from ..interface import Interface
from .failure import PlanError
from .models import BYTES

STORAGES = (*BYTES, *FORMATS)
MASTERS = {"f32": "master", "remainder": "remainder"}  # the state of each form
_OF_16_BITS = {"f32": ("bf16", "f16"), "remainder": ("bf16",)}
AVERAGES = frozenset({"ema", "swa", "param_copy"})  # of fragments, which are read: no codes


@dataclass(frozen=True)
class Kept:
    """``states``: the storage of each by its name, of all by "", a format or :class:`Codes` of
    those that are codes; those that are not named are float32, or float64 beside parameters of
    it. ``master``: of 16-bit parameters."""

    states: tuple[tuple[str, str | Codes], ...] = ()
    master: str | None = None

    @classmethod
    def parse(cls, states: str | None, master: str | None) -> Kept:
        """Of ``T`` or ``NAME:T,...``, where T of codes may be ``q8:N``, those of N elements and
        more, and a key of :data:`MASTERS`; PlanError for others."""
        if master is not None and master not in MASTERS:
            raise PlanError(f"master is '{master}', known: {', '.join(MASTERS)}")
        found = {}
        for word in states.split(",") if states else ():
            *names, storage = word.split(":")
            least = None
            if names and names[-1] in FORMATS:
                storage, least = names.pop(), storage
            name = ":".join(names)
            if storage not in STORAGES:
                of = f" of '{name}'" if name else ""
                raise PlanError(f"state{of} is '{storage}', known: {', '.join(STORAGES)}")
            if name in found or (found and "" in (name, *found)):
                raise PlanError(f"states are '{states}', expected T or NAME:T,NAME:T")
            found[name] = storage if least is None else _codes(storage, least)
        return cls(tuple(found.items()), master)

    @property
    def compiled(self) -> str | None:
        """What the compiler's ``--state`` is; codes are of float32, and of the binding."""
        own = [(name, storage) for name, storage in self.states if not as_codes(storage)]
        return ",".join(f"{name}:{s}" if name else s for name, s in own) or None

    @property
    def keeps_codes(self) -> bool:
        return any(as_codes(storage) for _, storage in self.states)

    def coded(self, interface: Interface, dtype: str) -> tuple[tuple[str, Codes], ...]:
        """The states beside a parameter that are to be codes, and how."""
        if dtype == "f64":
            return ()
        kinds = {name: own for name, storage in self.states if (own := as_codes(storage))}
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


def _codes(format: str, least: str) -> Codes:
    """Those of so many elements and more; PlanError for what is no such number."""
    try:
        return Codes(format, min_size=int(least))
    except ValueError:
        words = f"'{format}:{least}': elements are '{least}', expected a number from 1 on"
        raise PlanError(f"state is {words}") from None
