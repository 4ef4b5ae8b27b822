# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether ``stepc.torch`` works here, for ``python -m stepc check``."""

from __future__ import annotations

import torch

from . import AdamW, info

_SHAPES = (33, 7), (5,)
_STEPS = 3


def distance() -> float:
    """The largest difference of a parameter after some steps of our AdamW and of torch's."""
    both = []
    for kind in (AdamW, torch.optim.AdamW):
        generator = torch.Generator("cpu").manual_seed(1)
        plain = {"device": "cpu", "dtype": torch.float32, "generator": generator}
        params = [torch.nn.Parameter(torch.randn(shape, **plain)) for shape in _SHAPES]
        optimizer = kind(params, lr=0.01)
        for _ in range(_STEPS):
            for param in params:
                param.grad = torch.randn(param.shape, **plain)
            optimizer.step()
        both.append(params)
    return max(float((a - b).detach().abs().max()) for a, b in zip(*both, strict=True))


def described() -> str:
    """The release of torch and how its parameters are read."""
    way = info()["reading"]
    slow = "" if way == "direct" else ", which is slower for thousands of tensors"
    return f"torch {torch.__version__}, parameters are read by way '{way}'{slow}"
