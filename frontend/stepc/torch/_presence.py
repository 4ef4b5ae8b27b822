# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which gradients there are to be summed over ranks by the step, where they lie on devices.

In the processor's memory a gradient says so itself: one element more crosses with it. To read
that from a device would be to wait for all that is on its stream.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ._exchanges import exchanging
from ._layouts import PlainPart


def note_presence(parts: list, mesh) -> None:
    """Tells each part whose gradient the step sums whether any of the ranks has one: all ranks
    together. ``parts`` in the order in which all of them are summed.

    One call for each group of ranks, in the order of their first parts: that is the same on
    all of its ranks, so no two wait for each other.
    """
    own = [getattr(part, "inner", part) for part in parts]
    own = [part for part in own if isinstance(part, PlainPart) and part.sums]
    present = {id(part): int(part.param.grad is not None) for part in own}
    for turn in range(max((len(part.sums) for part in own), default=0)):
        groups: dict[int, tuple] = {}
        for part in own:
            if turn < len(part.sums):
                group = part.sums[turn]
                groups.setdefault(id(group), (group, []))[1].append(part)
        for group, members in groups.values():
            words = torch.tensor(
                [present[id(part)] for part in members], dtype=torch.int64, device="cpu"
            )
            host = mesh.host(group)
            with exchanging("the gradients could not be compared before the step", host):
                dist.all_reduce(words, dist.ReduceOp.MAX, group=host)
            present.update(zip(map(id, members), words.tolist(), strict=True))
    for part in own:
        part.has_grad = bool(present[id(part)])
