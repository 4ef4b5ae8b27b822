# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.amp.GradScaler`` for optimizers whose gradients lie on several ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ._layouts import DISTINCT


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


class GradScaler(torch.amp.GradScaler):
    """As torch's, whose state dict it has; an overflow on one rank is one on all.

    torch's looks at the gradients of its own rank: with states or parameters that are
    sharded over ranks one would skip a step that others wait in, and the scales would go
    different ways. For optimizers of :mod:`stepc.torch` with ``zero=1`` or ``layouts``;
    with others it is torch's.

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
            found = {torch.device("cpu"): found_inf.clone().cpu()}
        for _, tensor in sorted(found.items(), key=lambda item: str(item[0])):
            for group in groups:
                dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
        return found

    def step(self, optimizer, *args, **kwargs):
        """As torch's ``step``."""
        shown = getattr(optimizer, "_step_supports_amp_scaling", False)
        if not _groups_of(optimizer):
            return super().step(optimizer, *args, **kwargs)
        optimizer._step_supports_amp_scaling = False
        try:
            return super().step(optimizer, *args, **kwargs)
        finally:
            optimizer._step_supports_amp_scaling = shown
