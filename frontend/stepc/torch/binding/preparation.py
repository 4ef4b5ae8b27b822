# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States and counters of parameters that are about to be bound: those that the
optimizer's ``state`` has, where the plan can write them, and new ones."""

from __future__ import annotations

import ctypes
import difflib
import logging
from collections import Counter
from collections.abc import Callable
from itertools import chain

import torch

from ... import errors
from ..._describe import SCALE
from ..._log import log, parameters
from ...interface import Interface
from ..tensors import dlpack as _tensors
from ..tensors.members import Member, ObstacleError, is_counter
from ..tensors.stored import in_memory
from . import memory as _states
from .codes import recoded
from .features import STATES
from .placement import Stored
from .precision import MASTERS
from .rules import Slot, Variants, whole_states
from .state_map import StateMap

Known = Callable[[torch.Tensor], int | None]


def known_states(interface: Interface) -> frozenset[str]:
    """The names that a parameter's state may have: of any rule, since groups change, and what
    the optimizer may have had of features and masters before."""
    scales = (name + SCALE for name in interface.states)
    return STATES.union(("step", *MASTERS.values()), interface.states, scales)


class Preparation:
    """Finds or makes what members need, and keeps the version counters that move.

    ``manifest``: of the package; ``variants``: which of them members get.
    ``dropped``: the kept dim of a state, by its name, that the user does not see.
    ``exact_count``: what another plan knows of a parameter's count, or None.
    ``of_params``: the states that begin as the parameter. ``stored``: which lie in a file.
    """

    def __init__(
        self,
        state: StateMap,
        interface: Interface,
        manifest: dict,
        variants: Variants,
        dropped: dict[str, int],
        num_params: int,
        exact_count: Known | None = None,
        of_params: frozenset[str] = frozenset(),
        stored: Stored | None = None,
    ):
        self._state = state
        self._manifest, self._variants = manifest, variants
        self._used: dict[int, list] = {}  # by the variant's index
        self._dropped = dropped
        self._num_params = num_params
        self._exact_count = exact_count
        self._of_params, self._stored = of_params, stored
        self._in_memory = STATES.union(dropped)  # what others than steps use, or see otherwise
        self._interface, self._known = interface, known_states(interface)
        self.owners: list[torch.Tensor] = []
        self._owned: set[int] = set()  # id() of each owner
        # By dtype, a counter for each parameter: what is shown, and what the plan writes.
        self._spare: dict[torch.dtype, list] = {}
        self.counters: list[_states.Counters] = []

    def have_variants(self, members: list[Member]) -> bool:
        """Whether the package can step the parameters."""
        return all(found.variant is not None for found in self._variants.of(members))

    def prepare(self, members: list[Member], *, counts: bool) -> None:
        """Gives each member its states, and where ``counts`` a counter."""
        # States are of no less use for a step that happens in inference mode.
        with torch.inference_mode(False), torch.no_grad():
            self._prepare_states(members)
            if counts:
                self._prepare_counters(members)

    def note(self, members: list[Member]) -> None:
        """Of parameters that are bound: says which rules take them, and keeps how many."""
        for member in members:
            used = self._used.setdefault(member.gets.variant, [0, 0])
            used[0] += 1
            used[1] += member.own.numel()
        if not log.isEnabledFor(logging.INFO):
            return
        taken = [member.gets.rule.name for member in members]
        for rule, number in Counter(taken).items():
            of = f"rule '{rule}' of optimizer '{self._interface.name}'"
            log.info("%s takes %s", of, parameters(number))
        self._tell_of_codes(members)
        for member, rule in zip(members, taken, strict=True):
            log.debug("%s of shape %s: rule '%s'", member.name, member.whole_shape, rule)

    @staticmethod
    def _tell_of_codes(members: list[Member]) -> None:
        """Says which states are kept as codes, in how much memory with their scales."""
        found: dict[tuple[str, str], list[int]] = {}
        here = [member for member in members if not member.elsewhere]
        for state in chain.from_iterable(member.gets.states for member in here):
            if state.format:
                found.setdefault((state.name, state.format), []).append(state.bytes)
        if found:
            said = (
                f"state '{name}' of {len(sizes)} of {parameters(len(here))} is kept as codes, "
                f"{format}, in {sum(sizes)} bytes"
                for (name, format), sizes in found.items()
            )
            log.info("%s", "; ".join(said))

    def used(self) -> list[tuple[dict, int, int]]:
        """The variants that step parameters, each with how many and their elements."""
        variants = self._manifest["variants"]
        return [(variants[index], *used) for index, used in self._used.items()]

    def forget_counts(self) -> None:
        """Asks ``exact_count`` no more."""
        self._exact_count = None

    def own(self, tensor: torch.Tensor) -> bool:
        """Notes a tensor whose version moves with each step; False if known."""
        owner = _states.owner(tensor)
        if id(owner) in self._owned:
            return False
        self._owned.add(id(owner))
        self.owners.append(owner)
        return True

    def slots(self, member: Member) -> list[Slot]:
        """The states of a whole tensor, as the user has them; TensorError where there is no
        variant."""
        [found] = self._variants.of([member])
        if found.variant is None:
            raise self._variants.missing(member, found)
        wholes = whole_states(found, self._dropped)
        return [Slot(s.name, _tensors.DTYPE[s.storage], wholes[s.name]) for s in found.states]

    # --- States ---------------------------------------------------------------

    def _prepare_states(self, members: list[Member]) -> None:
        """Finds or makes each member's state tensors, in the variant's order."""
        requests, places = [], []
        for member, member.gets in zip(members, self._variants.of(members), strict=True):
            for slot, request in self._missing_states(member):
                requests.append(request)
                places.append((member, slot))
        made = _states.allocate(requests)
        for request, (member, slot), tensor in zip(requests, places, made, strict=True):
            shown = _states.as_shown(tensor, self._dropped.get(request.name))
            member.states[slot], member.shown[slot] = tensor, shown
            member.items[request.name] = shown

    def _missing_states(self, member: Member) -> list[tuple[int, _states.Request]]:
        """Gives the member the states that it has; returns those to be made."""
        found = member.gets
        if found.variant is None:
            raise self._variants.missing(member, found)
        state = self._state.get(member.param) or {}
        self._refuse_unknown(member, state)
        wanted = () if member.elsewhere else found.states
        member.fresh = not state
        member.items = recoded(state, wanted, member)
        state = {**state, **member.items}
        member.created = [state.get(one.name) is None for one in wanted]
        member.names = [one.name for one in wanted]
        member.states = [None] * len(wanted)
        member.shown = [None] * len(wanted)
        missing = []
        for slot, one in enumerate(wanted):
            # None: the parameter's.
            name, shape = one.name, None if one.is_full else one.part
            dtype = _tensors.DTYPE[one.storage]
            given, stored = state.get(name), self._stored
            if stored is not None and not stored.takes(member, one, self._in_memory):
                stored = None
            if given is not None:
                shown, given = given, self._as_bound(given, member, name, shape)
                if stored is not None:
                    usable = stored.home.has(given) and given.dtype is dtype
                else:
                    usable = _is_usable(shown, member, dtype, shape)
                if usable and (not one.format or given.is_contiguous()):
                    member.states[slot], member.shown[slot] = given, shown
                    continue
                given = in_memory(given)
            elif name in self._of_params and shape is None:
                given = member.own.detach()
            home = None if stored is None else stored.home
            if one.format and not member.own.is_contiguous():
                shape = one.part  # codes are row-major, however the parameter lies
            request = _states.Request(
                member.own, name, dtype, one.init, given, shape, member.joint, home
            )
            request.pieces_of = member.pieces_of if shape is None else None
            missing.append((slot, request))
        return missing

    def _refuse_unknown(self, member: Member, state: dict) -> None:
        """NameNotFoundError for a state that no rule has: its name may be misspelt, and what
        the rule has begins anew beside it."""
        for name in state:
            if name not in self._known:
                words = [f"{member.name} has a state {name!r}, which optimizer"]
                words.append(f"'{self._interface.name}' does not have")
                near = difflib.get_close_matches(str(name), self._interface.states, 1)
                words.append(f"(the nearest is '{near[0]}')" if near else "")
                known = ", ".join(self._interface.states) or "none"
                raise errors.NameNotFoundError(
                    f"{' '.join(filter(None, words))}; states: {known}", "STEPC_UNKNOWN_NAME"
                )

    def _as_bound(self, given, member: Member, name: str, shape: tuple | None) -> torch.Tensor:
        """A state that the user has, in the plan's shape; TensorError."""
        if not isinstance(given, torch.Tensor):
            raise errors.TensorError(
                f"state '{name}' of {member.name} is a {type(given).__name__}, not a tensor",
                "STEPC_INVALID_ARGUMENT",
            )
        if given.layout is not torch.strided:  # as torch's own step leaves it of sparse gradients
            raise ObstacleError(
                f"{member.name} has a state '{name}' of layout {given.layout}", True
            )
        expected = tuple(member.own.shape if shape is None else shape)
        dropped = self._dropped.get(name)
        if dropped is not None:
            expected = (*expected[:dropped], *expected[len(expected) + dropped + 1 :])
        if tuple(given.shape) != expected:
            raise errors.TensorError(
                f"state '{name}' of {member.name} has shape {tuple(given.shape)}, "
                f"expected {expected}",
                "STEPC_SHAPE_MISMATCH",
            )
        return _states.as_bound(given, dropped)

    # --- Counters -------------------------------------------------------------

    def _prepare_counters(self, members: list[Member]) -> None:
        """Counts, and where the plan mirrors them: in one vector with room for
        every parameter, unless the state has counters that can serve."""
        for member in members:
            step = (self._state.get(member.param) or {}).get("step")
            member.count = self._count(member.param, step)
            if is_counter(step):
                member.step = step
                if self.own(step):
                    self.counters.append(_states.Counters(step._base, step._base))
            else:
                step, member.step = self._spare_counter(member.index, _dtype_of_count(step))
                if member.count:
                    member.step.fill_(member.count)
                member.items = {"step": step, **member.items}
            member.mirror = member.step.data_ptr()
        for counters in self.counters:
            counters.note()

    def _spare_counter(self, index: int, dtype: torch.dtype) -> tuple:
        if dtype not in self._spare:
            made = _states.Counters.zeros(self._num_params, dtype)
            self._spare[dtype] = made.elements()
            self.own(made.shown)
            self.counters.append(made)
        return self._spare[dtype][index]

    def _count(self, param: torch.Tensor, step) -> int:
        """Steps taken: as the state says, exact where another plan knows more."""
        if step is None:
            return 0
        value = float(step)
        exact = self._exact_count(param) if self._exact_count else None
        if exact is not None and ctypes.c_float(exact).value == value:
            return exact
        return int(value)


def _dtype_of_count(step) -> torch.dtype:
    """As torch has it: float32, but where float64 is the default when it is made."""
    made = step.dtype if isinstance(step, torch.Tensor) else torch.get_default_dtype()
    return torch.float64 if made is torch.float64 else torch.float32


def _is_usable(
    given: torch.Tensor, member: Member, dtype: torch.dtype, shape: tuple | None
) -> bool:
    """Whether a state can be bound as it is; else it is copied."""
    if given.dtype != dtype or given.device != member.param.device or given.is_inference():
        return False
    if given.numel() == 0:  # which has no place in a block
        return True
    if shape is None:
        if given.is_shared():  # with other processes, from before the first step
            return True
        return given._base is not None or not _states.is_small(member.own)
    return given.is_contiguous() and (given._base is not None or given.numel() > _states.SMALL)
