# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a binding does as gradients come: steps in parts, and passes ahead of a step."""

from __future__ import annotations

import torch

from ... import errors
from ..tensors import dlpack as _tensors
from ..tensors.device_memory import bytes_at
from ..tensors.members import trainable_members


class InParts:
    """Mix-in of :class:`~stepc.torch.binding.binding.Binding`."""

    # --- A step in parts ------------------------------------------------------

    # Of gradients that cross ranks, which those of a DistributedBinding may.
    crosses = keeps_gradients = False
    _counted: dict[int, int] | None = None  # of a step in which gradients cross: see begin

    def begin(self, optimizer, *, crossing: bool = False) -> bool:
        """Begins a step whose gradients come one by one.

        False, with nothing done, when another Binding is needed. StatusError where the
        definition needs all gradients at once; but where they cross ranks (``crossing``), as this
        rank's part of their sum has its memory in any case: it is then stepped by the end.
        """
        if not crossing:
            self._refuse_rounds()
        self._place.follow()
        if not self.is_current(optimizer):
            return False
        members = list(trainable_members(optimizer))
        if any(member.index not in self._ids for member in members):
            return False
        try:
            for member in members:
                described = _tensors.describe([member.param])
                self.plan.set_param(self._ids[member.index], described[0])
        except errors.NeedsBindError:
            return False
        self._remainders.refresh()
        self._watched.refresh()
        if crossing:
            self.plan.find_unused()
            # Which first steps are made, other ranks decide, too.
            self._counted = {m.index: self.plan.count(self._ids[m.index]) for m in self._pending}
        self.plan.step_begin()
        return True

    def say_absent(self, params: list[torch.Tensor]) -> None:
        """Says that no gradients of these will come in a step in which they cross."""
        self.plan.grad_absent([self._by_param[id(param)] for param in params])

    def _refuse_rounds(self) -> None:
        if self.in_parts:
            return
        rounds = [name for names in self.rounds for name in names]
        what = f", for {', '.join(rounds)}" if rounds else ""
        raise errors.StatusError(
            f"'{self.interface.name}' computes something of all tensors together{what}: it cannot "
            "be stepped in the backward pass, one parameter after the other",
            "STEPC_WRONG_STATE",
        )

    def set_grads(self, params: list[torch.Tensor]) -> list[int]:
        """Tells the plan the gradients of parameters. Returns its ids of them. NeedsBindError
        for one that it was not made for."""
        ids = [self._by_param[id(param)] for param in params]
        for param, tensor in zip(params, ids, strict=True):
            self.plan.set_grad(tensor, _tensors.describe([param.grad])[0])
        return ids

    def step_some(self, params: list[torch.Tensor]) -> list[int]:
        """Steps parameters, which have gradients, between begin and end. Returns the plan's
        ids of them."""
        held = [param.grad for param in params]  # which other threads may drop meanwhile
        self._place.follow(ordered=True)
        ids = self.set_grads(params)
        self.plan.step_tensors(ids)
        torch._C._increment_version(params)
        self._remainders.note(params)
        del held
        return ids

    def end(self, stepped: set[int], *, abandons: bool = False) -> None:
        """Ends it. ``stepped``: ids of the tensors that took part, as far as this rank knows;
        their gradients may be gone. ``abandons``: those of others will not come."""
        self._place.follow(ordered=True)
        try:
            self.plan.step_abandon() if abandons else self.plan.step_end()
        except errors.AbandonedError:
            self._note_end(stepped)
            raise
        except BaseException:
            self._counted = None
            raise
        self._note_end(stepped)

    def _note_end(self, stepped: set[int]) -> None:
        """What follows from a step that has ended."""
        counted, self._counted = self._counted, None
        if self.plan.is_poisoned():
            return
        self._noted = self.plan.info().steps
        for tensor in stepped:
            self.plan.set_grad(tensor, None)
        if counted is not None:
            ids = {index: self._ids[index] for index in counted}
            stepped = {t for index, t in ids.items() if self.plan.count(t) != counted[index]}
        if self._pending:
            taken = [m for m in self._pending if self._ids[m.index] in stepped]
            self._pending = [m for m in self._pending if self._ids[m.index] not in stepped]
            self._commit(taken)
        self._bump_states()
        self._watched.note()  # remainders have noted each parameter as it was stepped

    # --- A backward pass ahead of the step ------------------------------------

    def begin_pass(self) -> None:
        """Begins a pass whose gradients cross ranks ahead of the step."""
        self._place.follow(ordered=True)
        self.plan.pass_begin()

    def bring(self, params: list[torch.Tensor], *, keeps: bool = False) -> list[int]:
        """Brings the gradients of parameters, which may be freed then; that of one without counts
        as zero. ``keeps``: they are read where they are, when the step ends. Returns the plan's
        ids of the parameters."""
        self._place.follow(ordered=True)
        held = [param.grad for param in params]  # which other threads may drop meanwhile
        own = self.set_grads([param for param in params if param.grad is not None])
        ids = [self._by_param[id(param)] for param in params]
        self.plan.grad_ready(ids)
        for tensor in () if keeps else own:
            self.plan.set_grad(tensor, None)
        del held
        return ids

    def brought(self, param: torch.Tensor) -> torch.Tensor:
        """What passes have brought of a parameter: this rank's part, until the next."""
        address, count, kind = self.plan.grad(self._by_param[id(param)])
        dtype = {"f32": torch.float32, "f64": torch.float64}[kind]
        return bytes_at(address, count * dtype.itemsize, param.device).view(dtype)

    def end_pass(self) -> None:
        self._place.follow(ordered=True)
        self.plan.pass_end()
