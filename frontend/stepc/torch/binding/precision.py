# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is kept of parameters and states, in how many bits, and how it is rounded to them:
``master``, ``state_dtype`` and ``rounding``."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..._codes import FORMATS, Codes, as_codes
from ...interface import Interface
from ..tensors import dlpack as _tensors
from ..tensors.members import ObstacleError

MASTERS = {"f32": "master", "remainder": "remainder"}  # the state of each form
MAX_SEED = 2**53  # what a float64 holds exactly
SEED = "rounding_seed"  # the hyper-parameter of a package, and the key where it is saved
_STATE_DTYPES = (torch.float32, *_tensors.NARROW)


Q8 = "q8"  # of the formats of codes, with a scale for each block (docs/states.md)
_KNOWN = " or ".join(f"'{name}'" for name in FORMATS)
_Kind = torch.dtype | str | Codes
StateDtype = _Kind | dict[str, _Kind] | None


@dataclass(frozen=True)
class Kept:
    """What an optimizer was told of it, for those that must not keep the optimizer."""

    master: str | None
    state_dtype: StateDtype
    rounding: str | None

    @property
    def keeps_codes(self) -> bool:
        """Whether some states are to be codes."""
        given = self.state_dtype
        return any(map(as_codes, given.values() if isinstance(given, dict) else (given,)))

    def coded(
        self, dtype: torch.dtype, names: Sequence[str], label: str | None = None
    ) -> dict[str, Codes]:
        """Which of the states beside a parameter of the dtype are to be codes, and how;
        ``label``: the parameter's name, None: of any."""
        given = self.state_dtype
        if dtype is torch.float64 or not self.keeps_codes:
            return {}
        if not isinstance(given, dict):
            return dict.fromkeys(names, as_codes(given))
        patterns = {key: kind for key, kind in given.items() if key not in names}
        if label is None and (kinds := [*filter(None, map(as_codes, patterns.values()))]):
            return {n: as_codes(given.get(n)) or kinds[-1] for n in names}
        own = [kind for pattern, kind in patterns.items() if _matches(label or "", pattern)]
        if own and as_codes(own[-1]) is None:
            return {}
        # What is said of a state counts where a pattern does not take all codes away.
        kinds = {name: as_codes(given.get(name, own[-1] if own else None)) for name in names}
        return {name: kind for name, kind in kinds.items() if kind}

    def master_state(self, param: torch.Tensor) -> str | None:
        """The state that the parameter's f32 is kept in, where it is."""
        return MASTERS.get(self.master) if self.keeps_master(param.dtype) else None

    def keeps_master(self, dtype: torch.dtype) -> bool:
        """Whether there is an f32 behind parameters of the dtype. An f16 and 16 bits beside
        are not enough for one."""
        return self.master is not None and (
            dtype is torch.bfloat16 or (dtype is torch.float16 and self.master == "f32")
        )

    def rounds(self, dtype: torch.dtype) -> bool:
        """Whether anything beside a parameter of the dtype is rounded by random bits."""
        given = self.state_dtype
        states = given.values() if isinstance(given, dict) else (given,)
        return self.rounding is not None and (
            (dtype is torch.bfloat16 and self.master is None)
            or (dtype is not torch.float64 and torch.bfloat16 in states)
        )


def _matches(label: str, pattern: str) -> bool:
    """Whether a parameter's name, or that of the one that it is a block of, is of the pattern."""
    whole, _, number = label.rpartition("[")
    names = [label, whole] if number[:-1].isdigit() and number.endswith("]") else [label]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


class Precision:
    """Mix-in of :class:`CompiledStep`."""

    # Class attributes, so that copies and unpickled objects start without.
    _master: str | None = None
    _state_dtype: StateDtype = None
    _rounding: str | None = None
    _seed = 0

    def _set_precision(self, master, state_dtype, rounding, seed) -> None:
        """Takes over the constructor's arguments; ValueError and TypeError."""
        if master is not None and master not in MASTERS:
            raise ValueError(f"master is {master!r}, expected 'f32', 'remainder' or None")
        named = state_dtype if isinstance(state_dtype, dict) else {"": state_dtype}
        for name, dtype in named.items():
            known = isinstance(dtype, Codes) or dtype in (*_STATE_DTYPES, *FORMATS, None)
            if not isinstance(name, str) or not known:
                of = f" of {name!r}" if name else ""
                raise ValueError(
                    f"state_dtype{of} is {dtype!r}, expected torch.float32, torch.bfloat16, "
                    f"torch.float16, {_KNOWN}, or Codes of one of these"
                )
        if rounding is not None and rounding != "stochastic":
            raise ValueError(f"rounding is {rounding!r}, expected 'stochastic' or None")
        self._master, self._state_dtype, self._rounding = master, state_dtype, rounding
        self._set_seed(seed)
        if rounding:
            # Random bits are of the step count, which is saved for it.
            self._keeps_step = True

    def _set_seed(self, seed) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed is {seed!r}, expected an integer from 0 to 2**53")
        self._seed = seed

    @property
    def seed(self) -> int:
        """Of the random bits of stochastic rounding."""
        return self._seed

    def _precision_state(self) -> dict:
        """What pickling keeps of it."""
        state = {"_master": self._master, "_state_dtype": self._state_dtype}
        if self._rounding:
            state |= {"_rounding": self._rounding, "_seed": self._seed, "_keeps_step": True}
        return state

    def _precision_words(self) -> list[str]:
        """What was asked for that torch's own step does not do."""
        words = [f"master={self._master!r}"] if self._master else []
        words += [f"rounding={self._rounding!r}"] if self._rounding else []
        return words + ([f"state_dtype={self._state_dtype}"] if self._state_dtype else [])

    def _kept_precision(self) -> str:
        """What decides which states there are, and of which dtypes; "" where nothing does."""
        given = self._state_dtype
        ordered = given
        if isinstance(given, dict) and not self._kept.keeps_codes:  # of patterns the last counts
            ordered = dict(sorted(given.items()))
        return f"master={self._master!r}, state_dtype={ordered}" if self._master or given else ""

    @property
    def _kept(self) -> Kept:
        return Kept(self._master, self._state_dtype, self._rounding)

    def _check_precision(self) -> None:
        """ObstacleError where parameters cannot have what was asked for, or where there is
        nothing that could be rounded by random bits."""
        params = [param for group in self.param_groups for param in group["params"]]
        if self._master == "remainder" and any(p.dtype is torch.float16 for p in params):
            raise ObstacleError(
                "master='remainder' is for bfloat16 parameters, and there are some of "
                "torch.float16, whose f32 has more than 16 bits beside; master='f32' keeps it",
                False,
            )
        if self._rounding and params and not any(self._kept.rounds(p.dtype) for p in params):
            kept = f", with master={self._master!r}" if self._master else ""
            raise ObstacleError(
                "rounding='stochastic' is for what is stored as bfloat16, and the parameters are "
                f"{', '.join(sorted({str(p.dtype) for p in params}))}{kept}, their states not",
                False,
            )

    def _storage_request(self, dtype: torch.dtype, interface: Interface) -> list[str]:
        """What a variant of parameters of the dtype is asked for beside it. States beside
        float64 parameters are float64."""
        parts = []
        if self._kept.keeps_master(dtype):
            parts.append(f"master={self._master}")
        if self._kept.rounds(dtype):
            parts.append("rounding=stochastic")
        if self._state_dtype is not None and dtype is not torch.float64:
            given = self._state_dtype
            names = [name for name in interface.states if name not in self._scalar_states]
            if isinstance(given, dict):
                self._check_patterns(given, interface)
                names = [name for name in names if given.get(name)]
            for name in sorted(names):
                wanted = given[name] if isinstance(given, dict) else given
                # Codes are of f32.
                stored = torch.float32 if as_codes(wanted) else wanted
                parts.append(f"state.{name}={_tensors.STORAGE[stored]}")
        return parts

    def _check_patterns(self, given: dict, interface: Interface) -> None:
        """TypeError for a key of ``state_dtype`` that is no state, and no pattern of parameters'
        names: these keep codes or float32."""
        labels = None
        for key, kind in given.items():
            if key in interface.states:
                continue
            if labels is None:
                labels = [name for g in self.param_groups for name in g.get("param_names", ())]
            # A rank may have none of the parameters that a pattern is of.
            is_pattern = any(sign in key for sign in "*?[") and (labels or key == "*")
            if not is_pattern and key not in labels:
                interface.check_states({key: kind})
            if as_codes(kind) is None and kind is not torch.float32:
                raise TypeError(
                    f"state_dtype of {key!r}, a pattern of parameters' names, is {kind!r}, "
                    f"expected {_KNOWN} or torch.float32"
                )

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
        self._params: set[int] = set()

    def add(self, param: torch.Tensor, remainder: torch.Tensor) -> None:
        self._pairs.append((param, remainder))
        self._params.add(id(param))

    def refresh(self) -> None:
        """Before a step."""
        known = self._versions
        for param, remainder in self._pairs:
            version = known.get(id(param))
            if version is not None and version != param._version:
                with torch.inference_mode(False), torch.no_grad():
                    remainder.zero_()

    def note(self, params: list[torch.Tensor] | None = None) -> None:
        """After a step, of these or of all."""
        for param in [param for param, _ in self._pairs] if params is None else params:
            if id(param) in self._params:
                self._versions[id(param)] = param._version
