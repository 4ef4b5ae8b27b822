# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ties a torch optimizer to a plan of the runtime.

A :class:`Binding` is made at a step, from what the optimizer then looks like,
and serves as long as that stays: the same groups, options, parameter objects,
dtypes, shapes and state tensors. :meth:`Binding.run` finds out, in time that
does not depend on the number of parameters save for one call of the
extension, and says so; the optimizer then makes another Binding. Floats, and
where gradients and parameters lie, may change at any step.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable

import torch

from ... import _runtime, errors
from ..._store import Piece
from ...interface import Interface, Scalar
from ..tensors import devices as _devices
from ..tensors import walk as _walk
from ..tensors.members import (
    Member,
    ObstacleError,
    members_at,
    members_of,
    runtime_bindings,
    trainable_members,
)
from ..tensors.partitions import check_partitions
from ..tensors.stored import StoredState, StoredStates
from . import memory as _states
from .codes import drop_scales
from .exclusive_writes import WatchedParameters
from .features import states_of
from .groups import bound_groups, exchanges, get_package, may_skip, owned_state, settings_of
from .hypers import HyperReader
from .in_parts import InParts
from .precision import MASTERS, SEED, Remainders
from .preparation import Preparation
from .rules import Variants
from .subgroups import Subgroups


class Binding(InParts):
    """One plan, the tensors it reads and writes, and what they looked like.

    ``optimizer`` is a :class:`~stepc.torch.step.compiled.CompiledStep`. A ``previous``
    binding knows counts beyond what a float32 holds. ``ahead``: all parameters
    that may get a gradient are bound now, not only those that have one.

    The optimizer has the binding, which does not keep the optimizer: both go, with all
    states, when the last who uses the optimizer does, and not when the collector runs.
    """

    def __init__(self, optimizer, previous: Binding | None = None, *, ahead: bool = False):
        self._keeps_step = optimizer._keeps_step
        self._static = optimizer._static_grads
        self.has_scaler = optimizer._grad_scale is not None
        self._state = owned_state(optimizer)
        self._epoch = self._state.epoch
        definition = optimizer._get_definition()
        interface = self.interface = definition.interface()
        self._reader = HyperReader(optimizer, interface)
        self._groups = bound_groups(optimizer, interface, self._reader)
        groups = optimizer.param_groups
        self._mesh = optimizer._mesh
        members = _placed(optimizer, trainable_members(optimizer) if ahead else members_of(groups))
        resolved = [interface.resolve(bound.options, bound.hypers) for bound in self._groups]
        device = _devices.device_of(members)
        if self._mesh is not None:  # on which ranks agree, also where one has nothing yet
            device = self._mesh.device
        targets = _devices.target_flags(device)
        package = get_package(optimizer, definition, resolved, members, targets)
        check_partitions(optimizer, package.manifest)
        own = Interface.from_json(package.manifest, package.text)
        stored = optimizer._stored(groups, device)
        self._preparation = Preparation(
            self._state,
            interface,
            package.manifest,
            Variants(
                own,
                resolved,
                optimizer._kept,
                [bound.of_shape for bound in self._groups],
                optimizer._dropped_dims,
            ),
            optimizer._dropped_dims,
            sum(len(group["params"]) for group in groups),
            previous._exact_count if previous else None,
            states_of(optimizer._features),
            stored,
        )
        rounds = any(hyper["name"] == SEED for hyper in package.manifest["hypers"])
        self._seed = (float(optimizer.seed),) if rounds else ()  # behind the definition's
        self._counters = self._preparation.counters
        self._owners = self._preparation.owners
        self.may_skip = may_skip(package.manifest)
        self.exchanges = self._mesh is not None and exchanges(package.manifest)
        self.rounds = [[c["function"] for c in r["calls"]] for r in package.manifest["rounds"]]
        # Whether tensors may be stepped one after the other.
        variants = package.manifest["variants"]
        self.in_parts = not any(self.rounds) and all(v["subsets"] for v in variants)
        # Whether what crosses ranks may be, as it arrives.
        self.as_they_land = self.in_parts and not self.rounds
        self.plan = _runtime.Plan(package, huge_pages=_states.wants_huge_pages())
        self._place = _devices.Place(self.plan, device)
        if stored is not None and isinstance(stored.home, StoredStates):
            self.plan.set_store(stored.home.store)
        if self._mesh is not None:
            self._mesh.enter(self.plan)
        if optimizer._buckets is not None:
            self.plan.set_buckets(*optimizer._buckets)
        if optimizer._shares_sums:
            self.plan.share_sums()
        for bound in self._groups:
            self.plan.add_group(bound.options, bound.hypers + self._seed)
        self._subgroups = Subgroups(self.plan, self._groups, self._seed, optimizer)
        self._set_scalars(optimizer._initial_scalars(interface))
        self._walk = _walk.walk(tuple(bound.params for bound in self._groups), self.plan)
        self._ids: dict[int, int] = {}  # index of a parameter to its id
        self._steps: list[tuple[torch.Tensor, int]] = []  # counters that the user sees
        self._by_param: dict[int, int] = {}  # id() of a parameter to its id
        self._storages: dict[int, torch.UntypedStorage] = {}  # of all that is written
        self._pieces: list[Piece] = []  # of a file, of all that is written
        self._pending: list[Member] = []
        self._held: list[tuple] = []  # static gradients
        self._noted = 0  # steps of the plan
        self._turn = 0
        self._remainders = Remainders(optimizer._versions)
        self._watched = WatchedParameters(self.plan, package.manifest)
        self._attach(optimizer, members)
        # It would keep the old plan, and what that knows, for nothing.
        self._preparation.forget_counts()

    def __repr__(self):
        return f"<Binding of {len(self._ids)} tensors>"

    # --- A step ---------------------------------------------------------------

    def run(self, optimizer) -> bool:
        """One step; False, with nothing done, when another Binding is needed."""
        self._place.follow()
        if not (self.is_current(optimizer) and self._refresh(optimizer)):
            return False
        self._remainders.refresh()
        self._watched.refresh()
        # Those bound ahead of their first gradient stay. Now: others may drop gradients meanwhile.
        brought = optimizer._brought
        taken = [m for m in self._pending if m.param.grad is not None or id(m.param) in brought]
        try:
            self.plan.step()
        except BaseException as error:
            if isinstance(error, errors.StoreError):
                error.torn = self.plan.is_poisoned()
            # It was made where it ends with word of stale statistics, or with an interrupt that
            # came while the library computed.
            if self.plan.info().steps != self._noted:
                self._note_step(taken)
            else:
                self._walk.forget()
            raise
        self._note_step(taken)
        if self._place.is_capturing() and self not in optimizer._captured:
            # Graphs use the plan's memory for as long as they are launched.
            optimizer._captured = (*optimizer._captured, self)
        return True

    def _note_step(self, taken: list[Member]) -> None:
        """What follows from a step that was made, the first one of ``taken``."""
        self._noted += 1
        if taken:
            indices = {member.index for member in taken}
            self._pending = [m for m in self._pending if m.index not in indices]
            self._commit(taken)
        self._bump()
        self.note_versions()

    def note_versions(self) -> None:
        """What is written to parameters from now on is not the step's."""
        self._remainders.note()
        self._watched.note()

    def prepare(self) -> None:
        """Nothing: the plan is made with the binding."""

    def is_current(self, optimizer) -> bool:
        """Whether it is of the optimizer as that is now."""
        groups = optimizer.param_groups
        if (
            self._walk.moved()
            or optimizer.state is not self._state
            or (optimizer._grad_scale is not None) != self.has_scaler
            or self._state.epoch != self._epoch
            or len(groups) != len(self._groups)
        ):
            return False
        if any(counters.is_written() for counters in self._counters):
            return False
        for number, (bound, group) in enumerate(zip(self._groups, groups, strict=True)):
            if (
                group is not bound.group
                or group["params"] is not bound.params
                or settings_of(optimizer, group) != bound.settings
            ):
                return False
            hypers = self._reader.read(optimizer, number, group)
            if hypers != bound.hypers:
                try:
                    self.plan.set_hypers(number, hypers + self._seed)
                    self._subgroups.set_hypers(number, hypers + self._seed)
                except errors.NeedsBindError:
                    return False
                bound.hypers = hypers
        return True

    def _refresh(self, optimizer) -> bool:
        """Tells the plan where everything is; binds first gradients."""
        if self._static:
            self._check_promise()
            attention = self._walk.waking()
        else:
            # While the plan reads gradients, other threads and what it calls may drop them.
            hold = self.plan.calls_back or len(sys._current_frames()) > 1
            attention = self._walk.refresh(hold)
        if not attention:
            return attention is not False
        if any(index in self._ids for index in attention):
            return False
        groups = [bound.group for bound in self._groups]
        members = _placed(optimizer, members_at(groups, attention, self._by_param))
        if not self._place.has(members):
            return False
        if not self._preparation.have_variants(members):
            return False
        self._attach(optimizer, members)
        return True

    def _bump(self) -> None:
        """Moves the version counters of all that was written."""
        if not self._walk.bump():
            torch._C._increment_version(self._walk.live())
        self._bump_states()

    def _bump_states(self) -> None:
        if self._owners:
            torch._C._increment_version(self._owners)
        for counters in self._counters:
            counters.note()

    def _check_promise(self) -> None:
        """Looks at one gradient a step: that it is still the same tensor."""
        if not self._held:
            return
        self._turn = (self._turn + 1) % len(self._held)
        name, param, grad, _ = self._held[self._turn]
        if param.grad is not grad:
            raise errors.StaticGradientsError(
                f"the gradient of {name} is another tensor than at the first step; "
                "static_grads=True promises that it stays the same "
                "(zero_grad of this optimizer keeps it)"
            )

    def has(self, param: torch.Tensor) -> bool:
        """Whether the parameter is bound."""
        return id(param) in self._by_param

    def compare(self, optimizer) -> None:
        """Compares with other ranks what is stepped with, where that is due."""
        optimizer._compare_plain(self)

    # --- On a device ----------------------------------------------------------

    def check_capture(self, optimizer) -> None:
        """Nothing: what a graph cannot have, the plan refuses."""

    def upload(self, optimizer) -> bool:
        """Brings hyper-parameters to the device, for a graph that is to be launched.
        False where another Binding is needed."""
        if not self.is_current(optimizer):
            return False
        self._place.upload()
        return True

    def used(self) -> list[tuple[dict, int, int]]:
        """See :meth:`Preparation.used`."""
        return self._preparation.used()

    def refresh_counts(self) -> None:
        """Notes the counts that the device alone knows, after skipped steps and graphs,
        where the user sees them; waits for it."""
        if not self._place.is_device:
            return
        self._place.follow()
        for step, tensor in self._steps:
            step.fill_(self.plan.count(tensor))
        for counters in self._counters:
            counters.note()

    # --- What is inside -------------------------------------------------------

    def count(self, param: torch.Tensor) -> int:
        """The steps that a parameter has taken; 0 of one that is not bound."""
        return self._exact_count(param) or 0

    def waiting(self) -> set[int]:
        """The ``id()`` of each parameter that is bound and has taken no step since: its states in
        ``optimizer.state``, loaded ones say, are not yet those that the plan writes."""
        return {id(member.param) for member in self._pending}

    def slots_of(self, part, tensor: torch.Tensor, layout) -> list:
        """The states that the plan has beside a tensor of an
        :class:`~stepc.torch.ranks.owned_part.OwnedPart`, on every rank, whether it owns it or
        not."""
        member = Member(0, part.group, part.name, part.name, tensor.detach(), None)
        member.layout = layout
        return self._preparation.slots(member)

    def shown_states(self, param: torch.Tensor) -> dict[str, torch.Tensor]:
        """Those of a parameter by name, also before its first step is done."""
        for member in self._pending:
            if member.param is param:
                return dict(zip(member.names, member.shown, strict=True))
        return self._state.get(param) or {}

    def was_skipped(self) -> bool:
        """Whether the last step changed nothing, as an overflow asked for."""
        self._place.follow()
        return self.may_skip and bool(self.plan.last_step().skipped)

    def scalars(self) -> dict[str, float | list[float]]:
        """What the plan keeps between steps; of each group where that is its scope."""
        return {s.name: self._read_scoped(s, self.plan.scalar) for s in self.interface.scalars}

    def reports(self) -> dict[str, float | list[float]]:
        """What the last step reported; likewise."""
        return {r.name: self._read_scoped(r, self.plan.report) for r in self.interface.reports}

    def _read_scoped(self, scalar: Scalar, read: Callable) -> float | list[float]:
        self._place.follow()
        if scalar.scope == "model":
            return read(scalar.name)
        return [read(scalar.name, number) for number in range(len(self._groups))]

    def _set_scalars(self, given: dict[str, float | list[float]]) -> None:
        """Sets those that are given; others keep the definition's defaults."""
        for scalar in self.interface.scalars:
            value = given.get(scalar.name)
            if value is None:
                continue
            if scalar.scope == "model":
                self.plan.set_scalar(scalar.name, value)
                continue
            for number, of_group in enumerate(value[: len(self._groups)]):
                self.plan.set_scalar(scalar.name, of_group, number)

    def _exact_count(self, param: torch.Tensor) -> int | None:
        self._place.follow()
        tensor = self._by_param.get(id(param))
        return None if tensor is None else self.plan.count(tensor)

    # --- Binding --------------------------------------------------------------

    def _attach(self, optimizer, members: list[Member]) -> None:
        """Binds parameters; their states are made known after the step."""
        if not members:
            return
        self._preparation.prepare(members, counts=self._keeps_step)
        for together in optimizer._calls_of(members):
            self._bind(together)
        self._pending.extend(members)
        self._preparation.note(members)
        self._hold_memory(members)
        for tensor in itertools.chain.from_iterable(m.shown for m in members):
            if not isinstance(tensor, StoredState):
                self._preparation.own(tensor)

    def _bind(self, members: list[Member]) -> None:
        """By one call."""
        self._subgroups.place(members)
        array, keep = runtime_bindings(members, self._mesh.mesh if self._mesh else None)
        try:
            ids = self.plan.bind(array)
        except errors.TensorError as error:
            if error.status != "STEPC_OVERLAP" or not self._have_memory_in_common():
                raise
            # torch steps one after the other.
            raise ObstacleError(str(error), True, error.status) from None
        del keep
        for member, tensor in zip(members, ids, strict=True):
            if member.entry is not None and self.plan.part(tensor) != member.elements:
                raise errors.StepcError(
                    f"{member.name} has states of its elements {member.elements}, and the plan "
                    f"steps {self.plan.part(tensor)}"
                )
            self._ids[member.index] = tensor
            self._by_param[id(member.param)] = tensor
            self._watched.add(member.param)
            if member.step is not None:
                self._steps.append((member.step, tensor))
            self._walk.set_id(member.index, tensor, True)
            if self._static and member.grad is not None:
                held = (member.name, member.param, member.grad, member.param.detach())
                self._held.append(held)
            for name, state in zip(member.names, member.states, strict=True):
                if name in MASTERS.values():
                    self._watched.add(state)
            if "remainder" in member.names:
                remainder = member.states[member.names.index("remainder")]
                self._remainders.add(member.param, remainder)

    def _have_memory_in_common(self) -> bool:
        """Whether two parameters are in one storage, and not one in itself or its gradient."""
        params = itertools.chain.from_iterable(bound.params for bound in self._groups)
        places = [p.untyped_storage().data_ptr() for p in params if p.grad is not None]
        return len(set(places)) < len(places)

    def _hold_memory(self, members: list[Member]) -> None:
        """Keeps what the plan writes from being freed while it may be written, and
        has it watched: ``.data = ...`` on a state gives it other memory."""
        tensors = list(itertools.chain.from_iterable(m.shown for m in members))
        stored = [tensor for tensor in tensors if isinstance(tensor, StoredState)]
        self._pieces.extend(tensor.piece for tensor in stored)
        if stored:
            tensors = [tensor for tensor in tensors if not isinstance(tensor, StoredState)]
        tensors += [member.step for member in members if member.step is not None]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._storages[storage._cdata] = storage
        self._walk.watch(tensors)

    def _commit(self, taken: list[Member]) -> None:
        """Puts new states of these where the user sees them, as their step has been made;
        a skipped one makes none, and of one in a graph nobody knows."""
        if not taken:
            return
        if self._place.is_capturing() or self.was_skipped():
            self._pending = taken + self._pending
            return
        for member in taken:
            if not member.items:
                continue
            if member.param not in self._state:
                self._state.put_quietly(member.param, member.items)
            else:
                self._state[member.param].put_quietly(member.items)
                drop_scales(self._state[member.param], member.names)


def _placed(optimizer, members: Iterable[Member]) -> list[Member]:
    """The members with their layouts."""
    found = list(members)
    for member in found:
        optimizer._place(member)
    return found
