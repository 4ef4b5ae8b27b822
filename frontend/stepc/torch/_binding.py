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

import ctypes
import itertools
from dataclasses import dataclass

import torch

from .. import _runtime, errors
from ..definition import describe_options
from . import _states, _tensors, _walk
from ._members import (
    Member,
    is_counter,
    is_usable,
    members_at,
    members_of,
    runtime_bindings,
    variant_specs,
)
from ._state import StateMap


@dataclass
class _Group:
    """A parameter group as it was bound."""

    group: dict
    params: list
    settings: tuple
    options: dict[str, bool]
    hypers: tuple[float, ...]
    resolved: frozenset  # of all options, derived ones too


class Binding:
    """One plan, the tensors it reads and writes, and what they looked like.

    ``optimizer`` offers ``_read_settings``, ``_read_options`` and
    ``_read_hypers`` of a group, ``_get_definition()`` and ``_keeps_step``. A
    ``previous`` binding knows counts beyond what a float32 holds.
    """

    def __init__(self, optimizer, previous: Binding | None = None):
        self._keeps_step = optimizer._keeps_step
        self._static = optimizer._static_grads
        self._state = _owned_state(optimizer)
        self._epoch = self._state.epoch
        self._previous = previous
        definition = optimizer._get_definition()
        members = list(members_of(optimizer.param_groups))
        self._specs = variant_specs(optimizer, members)
        self._package = definition.package(self._specs)
        self._groups = _bound_groups(optimizer, self._package.manifest)
        self._variants = _variants_of(self._package.manifest)
        self.plan = _runtime.Plan(self._package, huge_pages=_states.wants_huge_pages())
        for bound in self._groups:
            self.plan.add_group(bound.options, bound.hypers)
        self._walk = _walk.walk(tuple(bound.params for bound in self._groups), self.plan)
        self._ids: dict[int, int] = {}  # index of a parameter to its id
        self._by_param: dict[int, int] = {}  # id() of a parameter to its id
        self._owners: list[torch.Tensor] = []
        self._owned: set[int] = set()  # id() of each owner
        self._spare: list = []  # a counter for each parameter, by its index
        self._storages: dict[int, torch.UntypedStorage] = {}  # of all that is written
        self._counters: list[list] = []  # [vector, its version after our step]
        self._pending: list[Member] = []
        self._held: list[tuple] = []  # static gradients
        self._turn = 0
        self._attach(members)
        self._previous = None

    def __repr__(self):
        return f"<Binding of {len(self._ids)} tensors>"

    # --- A step ---------------------------------------------------------------

    def run(self, optimizer) -> bool:
        """One step; False, with nothing done, when another Binding is needed."""
        if self._walk.moved() or not (self._is_current(optimizer) and self._refresh()):
            return False
        self.plan.step()
        if self._pending:
            self._commit()
        self._bump()
        return True

    def _is_current(self, optimizer) -> bool:
        groups = optimizer.param_groups
        if (
            optimizer.state is not self._state
            or self._state.epoch != self._epoch
            or len(groups) != len(self._groups)
        ):
            return False
        for vector, version in self._counters:
            if vector._version != version:
                return False
        for number, (bound, group) in enumerate(zip(self._groups, groups, strict=True)):
            if (
                group is not bound.group
                or group["params"] is not bound.params
                or optimizer._read_settings(group) != bound.settings
            ):
                return False
            hypers = optimizer._hypers_of(number, group)
            if hypers != bound.hypers:
                try:
                    self.plan.set_hypers(number, hypers)
                except errors.NeedsBindError:
                    return False
                bound.hypers = hypers
        return True

    def _refresh(self) -> bool:
        """Tells the plan where everything is; binds first gradients."""
        if self._static:
            self._check_promise()
            attention = self._walk.waking()
        else:
            attention = self._walk.refresh()
        if not attention:
            return attention is not False
        if any(index in self._ids for index in attention):
            return False
        groups = [bound.group for bound in self._groups]
        members = list(members_at(groups, attention, self._by_param))
        if any(self._variant(member) is None for member in members):
            return False
        self._attach(members)
        return True

    def _bump(self) -> None:
        """Moves the version counters of all that was written."""
        if not self._walk.bump():
            torch._C._increment_version(self._walk.live())
        if self._owners:
            torch._C._increment_version(self._owners)
        for counter in self._counters:
            counter[1] = counter[0]._version

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

    # --- Binding --------------------------------------------------------------

    def _variant(self, member: Member) -> dict | None:
        return self._variants.get(
            (
                self._groups[member.group].resolved,
                _tensors.STORAGE[member.param.dtype],
                _tensors.STORAGE[member.grad.dtype],
            )
        )

    def _attach(self, members: list[Member]) -> None:
        """Binds parameters; their states are made known after the step."""
        if not members:
            return
        # States are of no less use for a step that happens in inference mode.
        with torch.inference_mode(False), torch.no_grad():
            self._prepare_states(members)
            if self._keeps_step:
                self._prepare_counters(members)
        array, keep = runtime_bindings(members)
        ids = self.plan.bind(array)
        del keep
        for member, tensor in zip(members, ids, strict=True):
            self._ids[member.index] = tensor
            self._by_param[id(member.param)] = tensor
            self._walk.set_id(member.index, tensor, True)
            if self._static:
                held = (member.name, member.param, member.grad, member.param.detach())
                self._held.append(held)
        self._pending.extend(members)
        self._hold_memory(members)
        for tensor in itertools.chain.from_iterable(m.states for m in members):
            self._own(_states.owner(tensor))

    def _own(self, owner: torch.Tensor) -> bool:
        """Notes a tensor whose version moves with each step; False if known."""
        if id(owner) in self._owned:
            return False
        self._owned.add(id(owner))
        self._owners.append(owner)
        return True

    def _hold_memory(self, members: list[Member]) -> None:
        """Keeps what the plan writes from being freed while it may be written, and
        has it watched: ``.data = ...`` on a state gives it other memory."""
        tensors = list(itertools.chain.from_iterable(m.states for m in members))
        tensors += [member.step for member in members if member.step is not None]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._storages[storage._cdata] = storage
        self._walk.watch(tensors)

    def _prepare_states(self, members: list[Member]) -> None:
        """Finds or makes each member's state tensors, in the variant's order."""
        requests, places = [], []
        for member in members:
            variant = self._variant(member)
            if variant is None:
                raise _no_variant(member, self._groups[member.group], self._package)
            state = self._state.get(member.param) or {}
            operands = [o for o in variant["operands"] if o["role"] == "state"]
            member.fresh = bool(operands) or not state
            member.states = [None] * len(operands)
            for slot, operand in enumerate(operands):
                given = state.get(operand["name"])
                dtype = _tensors.DTYPE[operand["storage"]]
                if given is not None:
                    member.fresh = False
                    if is_usable(given, member, operand["name"], dtype):
                        member.states[slot] = given
                        continue
                request = _states.Request(
                    member.param, operand["name"], dtype, float(operand.get("init", 0.0)), given
                )
                requests.append(request)
                places.append((member, slot))
        for request, place, tensor in zip(
            requests, places, _states.allocate(requests), strict=True
        ):
            member, slot = place
            member.states[slot] = tensor
            member.items[request.name] = tensor

    def _prepare_counters(self, members: list[Member]) -> None:
        """Counts, and where the plan mirrors them: in one vector with room for
        every parameter, unless the state has counters that can serve."""
        for member in members:
            step = (self._state.get(member.param) or {}).get("step")
            member.count = self._count(member.param, step)
            if is_counter(step):
                if self._own(step._base):
                    self._counters.append([step._base, step._base._version])
            else:
                step = self._spare_counter(member.index)
                if member.count:
                    step.fill_(member.count)
                member.items = {"step": step, **member.items}
            member.mirror, member.step = step.data_ptr(), step
        for counter in self._counters:
            counter[1] = counter[0]._version

    def _spare_counter(self, index: int) -> torch.Tensor:
        if not self._spare:
            vector, self._spare = _states.counters(sum(len(b.params) for b in self._groups))
            self._own(vector)
            self._counters.append([vector, vector._version])
        step, self._spare[index] = self._spare[index], None
        return step

    def _count(self, param: torch.Tensor, step) -> int:
        """Steps taken: as the state says, exact where the old plan knows more."""
        if step is None:
            return 0
        value = float(step)
        previous = self._previous
        if previous is not None and id(param) in previous._by_param:
            exact = previous.plan.count(previous._by_param[id(param)])
            if ctypes.c_float(exact).value == value:
                return exact
        return int(value)

    def _commit(self) -> None:
        """Puts new states where the user sees them, as the step has been made."""
        for member in self._pending:
            if not member.items:
                continue
            if member.param not in self._state:
                self._state.put_quietly(member.param, member.items)
            else:
                self._state[member.param].put_quietly(member.items)
        self._pending = []


# --- Looking at the optimizer -------------------------------------------------


def _owned_state(optimizer) -> StateMap:
    """The optimizer's state as a StateMap all of whose dicts are its own."""
    state = optimizer.state
    if type(state) is not StateMap:
        state = optimizer.state = StateMap(state)
    for key, value in list(state.items()):
        state.put_quietly(key, value)
    return state


def _bound_groups(optimizer, manifest: dict) -> list[_Group]:
    interface = optimizer._check_interface(manifest)
    bound = []
    for number, group in enumerate(optimizer.param_groups):
        options = optimizer._read_options(group)
        hypers = optimizer._hypers_of(number, group)
        resolved = frozenset(interface.resolve(options, hypers).items())
        settings = optimizer._read_settings(group)
        bound.append(_Group(group, group["params"], settings, options, hypers, resolved))
    return bound


def _variants_of(manifest: dict) -> dict[tuple, dict]:
    """The package's variants by options and storage of parameter and gradient."""
    found = {}
    for variant in manifest["variants"]:
        storage = {o["role"]: o["storage"] for o in variant["operands"] if o["role"] != "state"}
        options = frozenset(variant["options"].items())
        found.setdefault((options, storage["param"], storage["grad"]), variant)
    return found


def _no_variant(member: Member, group: _Group, package) -> errors.TensorError:
    options = describe_options(dict(group.resolved))
    return errors.TensorError(
        f"the package of optimizer '{package.manifest['optimizer']}' has no variant for "
        f"{member.name}: {member.param.dtype} with a gradient of {member.grad.dtype}"
        + (f", {options}" if options else ""),
        "STEPC_DTYPE_MISMATCH",
    )
