# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters by name, and gradients of each rank whose mean is exact."""

import torch


def named_values(shapes, ranks, steps):
    """Parameters of the ``shapes``; for each step and data-parallel rank their gradients."""
    generator = torch.Generator().manual_seed(0)
    made = {n: torch.randn(s, generator=generator) for n, s in shapes.items()}
    grads = [
        [
            {n: torch.randint(-8, 9, s, generator=generator) / 16.0 for n, s in shapes.items()}
            for _ in range(ranks)
        ]
        for _ in range(steps)
    ]
    return made, grads
