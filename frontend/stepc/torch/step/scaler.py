# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.amp.GradScaler`` whose work is done inside the compiled step, and for optimizers
whose gradients lie on several ranks."""

from __future__ import annotations

import contextlib
import itertools

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import OptState

from ..binding.features import GradScale
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import exchanging, within
from ..ranks.layouts import DISTINCT
from .compiled import CompiledStep
from .eager import NeedsEagerError, why_eager


def _groups_of(optimizer) -> list[dist.ProcessGroup]:
    """The groups over which ranks have other gradients of the optimizer; those of DTensors
    torch looks after. One axis after the other on all ranks: so what one rank of a grid
    has comes to all others."""
    found = {}
    if getattr(optimizer, "_zero", None) is not None:
        found[tuple(dist.get_process_group_ranks(optimizer._zero.group))] = optimizer._zero.group
    for _, layout in getattr(optimizer, "_layouts", ()):
        if layout is None:
            continue
        for dim, placement in enumerate(layout.placements):
            if placement == DISTINCT or not placement.is_replicate():
                group = layout.mesh.get_group(dim)
                found[tuple(dist.get_process_group_ranks(group))] = group
    return list(found.values())


def _goes_inside(optimizer) -> bool:
    """Whether the optimizer's own step can unscale, look for overflows and skip."""
    return (
        isinstance(optimizer, CompiledStep)
        and not optimizer._scaling  # which would unscale again
        and not optimizer._needs_unscaled
        and not _groups_of(optimizer)
        and why_eager(optimizer) is None
        and any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
        and (_has_gone_inside(optimizer) or not _has_dtensors(optimizer))
    )


def _has_gone_inside(optimizer) -> bool:
    return optimizer._binding is not None and optimizer._binding.has_scaler


def _has_dtensors(optimizer) -> bool:
    return any(is_dtensor(p) for group in optimizer.param_groups for p in group["params"])


class GradScaler(torch.amp.GradScaler):
    """As torch's, whose state dict it has, for any optimizers, and several.

    ``step`` of an optimizer of :mod:`stepc.torch` unscales its gradients, looks for an Inf
    or NaN, clips where the optimizer does, and skips, all inside the compiled step, which
    reads each gradient once before the update, for the norm and the overflow together.
    ``.grad`` stays scaled. What the step found ``update`` uses; a skipped step changes no
    state and no count. After ``unscale_``, and for what is not compiled, it is as torch's.

    An overflow on one rank is one on all. torch's looks at the gradients of its own rank:
    with states or parameters that are sharded over ranks one would skip a step that others
    wait in, and the scales would go different ways. With ``zero=1`` and ``layouts`` this one
    unscales before the step, and asks all ranks.

    ``loss_scale=DynamicLossScale()`` of an optimizer does all of it inside the step, and is the
    way with ``zero=2``, where there are no gradients to be looked at.
    """

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        if getattr(optimizer, "_reducer", None) is not None:
            raise RuntimeError(
                "with zero=2 gradients have left when the scaler looks for them; give the "
                "optimizer loss_scale=DynamicLossScale() in place of a scaler"
            )
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        groups = _groups_of(optimizer)
        if groups and not found:  # no gradient here, but others may have some
            params = itertools.chain.from_iterable(g["params"] for g in optimizer.param_groups)
            device = next((p.device for p in params), found_inf.device)
            found = {device: found_inf.clone().to(device)}
        for _, tensor in sorted(found.items(), key=lambda item: str(item[0])):
            for group in groups:
                limit = within(getattr(optimizer, "_timeout", None))
                with limit, exchanging("overflows could not be compared", group):
                    dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        return found

    def step(self, optimizer, *args, **kwargs):
        """As torch's ``step``; RuntimeError as there: for a second one before ``update``,
        and for a closure."""
        is_ready = self._enabled and self._stage(optimizer) is OptState.READY
        if is_ready and "closure" not in kwargs and _goes_inside(optimizer):
            with contextlib.suppress(NeedsEagerError):
                return self._step_inside(optimizer, args, kwargs)
            optimizer._needs_unscaled = True
        return self._step_outside(optimizer, args, kwargs)

    def _stage(self, optimizer) -> OptState:
        return self._per_optimizer_states[id(optimizer)]["stage"]

    def _step_inside(self, optimizer, args, kwargs):
        self._check_scale_growth_tracker("step")
        optimizer._grad_scale = GradScale(float(self._get_scale_async()))
        try:
            result = optimizer.step(*args, **kwargs)
        finally:
            optimizer._grad_scale = None
        found = torch.full(
            (), float(optimizer.last_step.skipped), dtype=torch.float32, device="cpu"
        )
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = {found.device: found}
        state["stage"] = OptState.STEPPED
        return result

    def _step_outside(self, optimizer, args, kwargs):
        shown = getattr(optimizer, "_step_supports_amp_scaling", False)
        if not _groups_of(optimizer):
            return super().step(optimizer, *args, **kwargs)
        optimizer._step_supports_amp_scaling = False
        try:
            return super().step(optimizer, *args, **kwargs)
        finally:
            optimizer._step_supports_amp_scaling = shown
