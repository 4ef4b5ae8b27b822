# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is kept of parameters and states, and in how many bits: ``master`` and
``state_dtype``."""

from __future__ import annotations

import torch

from ..interface import Interface
from . import _tensors

MASTERS = {"f32": "master", "remainder": "remainder"}  # the state of each form
_STATE_DTYPES = (torch.float32, torch.bfloat16)


class Precision:
    """Mix-in of :class:`CompiledStep`."""

    # Class attributes, so that copies and unpickled objects start without.
    _master: str | None = None
    _state_dtype: torch.dtype | dict[str, torch.dtype] | None = None

    def _set_precision(self, master, state_dtype) -> None:
        """Takes over the constructor's arguments; ValueError and TypeError."""
        if master is not None and master not in MASTERS:
            raise ValueError(f"master is {master!r}, expected 'f32', 'remainder' or None")
        named = state_dtype if isinstance(state_dtype, dict) else {"": state_dtype}
        for name, dtype in named.items():
            if not isinstance(name, str) or dtype not in (*_STATE_DTYPES, None):
                of = f" of {name!r}" if name else ""
                raise ValueError(
                    f"state_dtype{of} is {dtype!r}, expected torch.float32 or torch.bfloat16"
                )
        self._master, self._state_dtype = master, state_dtype

    def _precision_state(self) -> dict:
        """What pickling keeps of it."""
        return {"_master": self._master, "_state_dtype": self._state_dtype}

    def _precision_words(self) -> list[str]:
        """What was asked for that torch's own step does not do."""
        words = [f"master={self._master!r}"] if self._master else []
        return words + ([f"state_dtype={self._state_dtype}"] if self._state_dtype else [])

    def _master_state(self, param: torch.Tensor) -> str | None:
        """The state that the parameter's f32 is kept in, where it is."""
        return MASTERS.get(self._master) if param.dtype is torch.bfloat16 else None

    def _storage_request(self, dtype: torch.dtype, interface: Interface) -> list[str]:
        """What a variant of parameters of the dtype is asked for beside it. States beside
        float64 parameters are float64."""
        parts = []
        if self._master and dtype is torch.bfloat16:
            parts.append(f"master={self._master}")
        if self._state_dtype is not None and dtype is not torch.float64:
            given = self._state_dtype
            names = [name for name in interface.states if name not in self._scalar_states]
            if isinstance(given, dict):
                interface.check_states(given)
                names = [name for name in names if given.get(name)]
            for name in sorted(names):
                wanted = given[name] if isinstance(given, dict) else given
                parts.append(f"state.{name}={_tensors.STORAGE[wanted]}")
        return parts

    # --- Changes from outside -------------------------------------------------

    @property
    def _versions(self) -> dict[int, int]:
        """Of parameters with a remainder, by ``id()``: their version counters after
        the last step. Without an entry whatever is there belongs together."""
        return self.__dict__.setdefault("_known_versions", {})

    # --- Loading --------------------------------------------------------------

    def _check_masters(self, state_dict: dict) -> None:
        """ValueError where a saved master is of the other form."""
        own = MASTERS.get(self._master)
        names = {n for s in state_dict["state"].values() if isinstance(s, dict) for n in s}
        other = next((n for n in MASTERS.values() if n in names and n != own), None)
        if own is not None and other is not None and own not in names:
            raise ValueError(
                f"the loaded state has '{other}' of its parameters, this optimizer keeps "
                f"'{own}' (master={self._master!r})"
            )

    def _forgotten_states(self) -> frozenset[str]:
        """States of a checkpoint that this optimizer does not keep."""
        masters = frozenset(MASTERS.values()) - {MASTERS.get(self._master)}
        return self._transient_states | masters


class Remainders:
    """The remainders of a binding: one whose parameter was written between two steps,
    as its version counter tells, is zero again.

    The bits of a remainder say nothing of another parameter. A write that moves no
    counter is not seen; the two are then off the parameter by less than half a unit in
    its last place.
    """

    def __init__(self, versions: dict[int, int]):
        self._versions = versions  # the optimizer's: they outlive a binding
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, param: torch.Tensor, remainder: torch.Tensor) -> None:
        self._pairs.append((param, remainder))

    def refresh(self) -> None:
        """Before a step."""
        known = self._versions
        for param, remainder in self._pairs:
            version = known.get(id(param))
            if version is not None and version != param._version:
                with torch.inference_mode(False), torch.no_grad():
                    remainder.zero_()

    def note(self) -> None:
        """After a step."""
        for param, _ in self._pairs:
            self._versions[id(param)] = param._version
