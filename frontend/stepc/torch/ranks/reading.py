# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is read of a binding whose parameters are spread over ranks, and shown to the user."""

from __future__ import annotations

from ..binding.codes import drop_scales
from .blocks import states_of
from .owned_part import OwnedPart
from .states_of_parts import hidden_states, read_states


class Reading:
    """Mix-in of :class:`~stepc.torch.ranks.distributed.DistributedBinding`."""

    def _show(self) -> None:
        """Puts new states where the user sees them."""
        if len(self._shown) == len(self._planned):
            return
        waiting = self._inner.waiting()
        for number, part in enumerate(self._planned):
            if number in self._shown or not any(p in self._local.state for p in part.planned_here):
                continue
            if waiting.intersection(
                map(id, part.planned_here)
            ):  # it has other states with its first step
                continue
            if isinstance(part, OwnedPart):  # which others see, too
                continue
            self._shown.add(number)
            items = {
                name: part.show(name, part.state_as_own(name, value))
                for name, value in states_of(part, self._local.state).items()
            }
            if part.param in self._state:
                self._state[part.param].put_quietly(items)
                drop_scales(self._state[part.param], items)
            else:
                self._state.put_quietly(part.param, items)

    @property
    def interface(self):
        return self._inner.interface

    @property
    def torch_mesh(self):
        return self._torch_mesh

    @property
    def plan(self):
        return self._inner.plan

    @property
    def has_scaler(self) -> bool:
        """Whether a GradScaler's work is inside of the step."""
        return self._inner is not None and self._inner.has_scaler

    def was_skipped(self) -> bool:
        return self._inner.was_skipped()

    def upload(self, optimizer) -> bool:
        """Brings hyper-parameters to the device, for a graph that is to be launched, on every
        rank. False where another Binding is needed."""
        if self._inner is None or not self._is_current(optimizer):
            return False
        self._local.follow()
        return self._inner.upload(self._local)

    def refresh_counts(self) -> None:
        """Notes the counts that the device alone knows where the user sees them."""
        if self._inner is not None:
            self._inner.refresh_counts()

    def scalars(self) -> dict:
        # Without a plan, as where its file could not be made: what one is to begin with.
        return self._local._scalars if self._inner is None else self._inner.scalars()

    def reports(self) -> dict:
        return self._inner.reports()

    @property
    def parts(self) -> list:
        """Those of all parameters, in order, resolved."""
        return self._parts

    def full_states(self) -> dict[int, dict]:
        """Whole states by ``id()`` of the parameter: all ranks together."""
        folder = self._local._copies_in
        # Of those that lie elsewhere than a device some are there, and some on the host.
        to_host = self._on_device and self._elsewhere is not None
        states = {
            id(part.param): {
                name: part.show(name, part.state_as_own(name, value.cpu() if to_host else value))
                for name, value in hidden_states(part, read_states(part, own, folder)).items()
            }
            for part in self._parts
            if (own := self._state.get(part.param)) is not None
        }
        if self._zero is not None:
            self._zero.full(states)
        for part in self._parts:
            own = states.get(id(part.param), {})
            for name, value in own.items():
                whole = part.full(name, value, self._torch_mesh)
                own[name] = whole.cpu() if to_host else whole
        return states
