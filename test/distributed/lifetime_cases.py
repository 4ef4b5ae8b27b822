# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer over ranks has goes with it, without the collector: parts, buckets and
states, whose memory is most of what a rank has."""

import gc
import weakref

import torch
from on_ranks import case, main
from scaling_cases import SHAPES, WAYS, plain
from zoo import ALL

MORE = {
    "zero=1, flattened": plain(zero=1, gradients="local", flatten_parameters=True),
    "zero=2": plain(zero=2, gradients="local"),
}


def stepped(way, name):
    """Weak references to what there is after some steps, a state that was loaded, and another
    learning rate."""
    spread, arguments = {**WAYS, **MORE}[way]
    params = {k: torch.nn.Parameter(spread(k, torch.ones(s))) for k, s in SHAPES.items()}
    optimizer = ALL[name](list(params.items()), **arguments())
    for step in range(3):
        torch.stack([p.sum() for p in params.values()]).sum().backward()
        optimizer.param_groups[0]["lr"] *= 0.5
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            optimizer.load_state_dict(optimizer.state_dict())
    optimizer.full_state_dict()
    kept = [optimizer, optimizer._binding, optimizer._binding.plan, *params.values()]
    kept += [p.grad for p in params.values() if p.grad is not None]
    kept += [value for state in optimizer.state.values() for value in state.values()]
    return [(type(value).__name__, weakref.ref(value)) for value in kept]


@case
def nothing_stays_without_the_collector():
    for way in {**WAYS, **MORE}:
        for name in ("AdamW", "Adafactor", "AdamW, clipped"):
            stepped(way, name)  # what torch makes once is no part of it
            gc.collect()
            gc.disable()
            try:
                stay = [kind for kind, reference in stepped(way, name) if reference() is not None]
            finally:
                gc.enable()
            assert not stay, (way, name, stay)


if __name__ == "__main__":
    main()
