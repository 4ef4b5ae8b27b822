# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which gradients there are to be summed over ranks by the step, where they lie on devices.

In the processor's memory a gradient says so itself: one element more crosses with it. To read
that from a device would be to wait for all that is on its stream.
"""

from __future__ import annotations

from . import alike as _alike
from .layouts import PlainPart


def note_presence(parts: list, mesh, facts: _alike.Facts) -> None:
    """Tells each part whose gradient the step sums whether any of the ranks has one: all ranks
    together, which are to have the same ``facts``. ``parts`` in the order in which all of them
    are summed. DisagreementError.

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
            own_facts = _alike.frozen(facts, members)
            own_words = [present[id(part)] for part in members]
            what = "the gradients could not be compared before the step"
            found, same = _alike.maxima(own_words, own_facts, mesh.host(group), what)
            if not same:
                _alike.refuse(own_facts, [group], mesh.device)
            present.update(zip(map(id, members), found, strict=True))
    for part in own:
        part.has_grad = bool(present[id(part)])
