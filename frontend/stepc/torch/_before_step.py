# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks tell each other before a step in which they exchange.

One call for each set of axes over which tensors lie: which of them have a gradient, and a
check of what else must be alike in each step. A gradient that any rank has counts as zero
on the others, as DistributedDataParallel has it with unused parameters; a tensor that no
rank has one for is left alone on all.
"""

from __future__ import annotations

import struct
import zlib

import torch
import torch.distributed as dist

from .. import errors
from ._agreement import difference


class BeforeStep:
    """Of the parts of an optimizer that lie on a mesh.

    ``counts``: the steps that a part has taken, by ``id()`` of its local tensor; None where
    the definition keeps no counts.
    """

    def __init__(self, mesh, parts: list, counts: dict[int, int] | None):
        self._mesh = mesh
        self._sets: dict[tuple[str, ...], list] = {}
        for part in parts:
            axes = axes_of(part)
            if axes:
                self._sets.setdefault(tuple(sorted(axes)), []).append(part)
        self._counts = counts
        self._sums = {axes: self._count(own) for axes, own in self._sets.items()}

    def _count(self, parts: list) -> int:
        return sum(self._counts[id(part.local)] for part in parts) if self._counts else 0

    @property
    def axes(self) -> set[str]:
        return {axis for axes in self._sets for axis in axes}

    def run(self, hypers: list[tuple[float, ...]]) -> None:
        """Gives every part its gradient or zeros: all ranks together.

        CommunicationError where ranks step with other hyper-parameters, or have taken
        another number of steps, which names the rank and the first that differs.
        """
        self._hypers = hypers
        packed = b"".join(struct.pack(f"{len(own)}d", *own) for own in hypers)
        calls = []
        for axes in sorted(self._sets):
            own = self._sets[axes]
            present = [int(part.local.grad is not None) for part in own]
            values = torch.tensor([*present, zlib.crc32(packed), self._sums[axes]])
            ends, group = torch.cat([values, -values]), self._mesh.group_of(axes)
            work = dist.all_reduce(ends, dist.ReduceOp.MAX, group=group, async_op=True)
            calls.append((axes, own, group, ends, work))
        for axes, own, group, ends, work in calls:
            try:
                work.wait()
            except (RuntimeError, ValueError) as error:
                raise errors.CommunicationError(
                    f"the gradients could not be compared before the step: {error}",
                    "STEPC_COMMUNICATION_ERROR",
                ) from error
            high, low = ends.view(2, -1)
            same = (high == -low).tolist()
            if not all(same[-2:]):
                self._name_difference(axes, group)
            for part, equal, any_rank in zip(own, same, high.tolist(), strict=False):
                if not equal:
                    self._complete(part)
                if any_rank and self._counts:
                    self._sums[axes] += 1

    def _complete(self, part) -> None:
        if part.layout.flat:  # zero has made them equal, or was told that they are
            raise errors.CommunicationError(
                f"{part.name} has a gradient on some ranks and none on others",
                "STEPC_COMMUNICATION_ERROR",
            )
        if part.local.grad is None:
            part.local.grad = torch.zeros_like(part.local)

    def was_skipped(self) -> None:
        """The step counted for nothing."""
        for axes, own in self._sets.items() if self._counts else ():
            self._sums[axes] -= sum(part.local.grad is not None for part in own)

    def _name_difference(self, axes: tuple[str, ...], group) -> None:
        """Raises; all ranks of the group come here, as all have seen the same."""
        own = [
            f"hyper-parameters {', '.join(f'{v:.9g}' for v in values)} of group {number}"
            for number, values in enumerate(self._hypers)
        ]
        own += [
            f"{part.name} after {self._counts[id(part.local)]} steps when it was bound"
            for part in (self._sets[axes] if self._counts else ())
        ]
        every: list = [None] * dist.get_world_size(group)
        dist.all_gather_object(every, own, group=group)
        for rank, theirs in zip(dist.get_process_group_ranks(group), every, strict=True):
            if theirs != own:
                raise difference(own, theirs, rank)
        raise errors.CommunicationError(
            f"ranks along {', '.join(axes)} have taken other numbers of steps",
            "STEPC_COMMUNICATION_ERROR",
        )


def axes_of(part) -> set[str]:
    """Those over which a part is sharded."""
    layout = part.layout
    if layout is None:
        return set()
    return {axis for _, names in layout.dims for axis in names} | set(layout.flat)
