# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a binding does as gradients come: steps in parts, and passes ahead of a step."""

from __future__ import annotations

import torch

from ... import errors
from ..tensors import views as _tensors
from ..tensors.members import trainable_members


class InParts:
    """Mix-in of :class:`~stepc.torch.binding.binding.Binding`."""

    # --- A step in parts ------------------------------------------------------

    def begin(self, optimizer) -> bool:
        """Begins a step whose gradients come one by one.

        False, with nothing done, when another Binding is needed. StatusError where the
        definition needs all gradients at once.
        """
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
        self.plan.step_begin()
        return True

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

    def end(self, stepped: set[int]) -> None:
        """Ends it. ``stepped``: ids of the tensors that took part; their gradients
        may be gone."""
        self._place.follow(ordered=True)
        self.plan.step_end()
        self._noted += 1
        for tensor in stepped:
            self.plan.set_grad(tensor, None)
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

    def bring(self, params: list[torch.Tensor]) -> None:
        """Brings the gradients of parameters, which may be freed then; that of one without counts
        as zero."""
        self._place.follow(ordered=True)
        held = [param.grad for param in params]  # which other threads may drop meanwhile
        own = self.set_grads([param for param in params if param.grad is not None])
        self.plan.grad_ready([self._by_param[id(param)] for param in params])
        for tensor in own:
            self.plan.set_grad(tensor, None)
        del held

    def end_pass(self) -> None:
        self._place.follow(ordered=True)
        self.plan.pass_end()
