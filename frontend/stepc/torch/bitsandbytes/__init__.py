# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of bitsandbytes, with a compiled step: by the names and with the arguments of
``bitsandbytes.optim`` of 0.50. What it has and is not here says so when it is asked for."""

from __future__ import annotations

from .adam import (
    Adam,
    Adam8bit,
    Adam32bit,
    AdamW,
    AdamW8bit,
    AdamW32bit,
    PagedAdam,
    PagedAdam8bit,
    PagedAdam32bit,
    PagedAdamW,
    PagedAdamW8bit,
    PagedAdamW32bit,
)
from .lion import Lion, Lion8bit, Lion32bit, PagedLion, PagedLion8bit, PagedLion32bit
from .sums import (
    SGD,
    Adagrad,
    Adagrad8bit,
    Adagrad32bit,
    RMSprop,
    RMSprop8bit,
    RMSprop32bit,
    SGD8bit,
    SGD32bit,
)

__all__ = [
    "SGD",
    "Adagrad",
    "Adagrad8bit",
    "Adagrad32bit",
    "Adam",
    "Adam8bit",
    "Adam32bit",
    "AdamW",
    "AdamW8bit",
    "AdamW32bit",
    "Lion",
    "Lion8bit",
    "Lion32bit",
    "PagedAdam",
    "PagedAdam8bit",
    "PagedAdam32bit",
    "PagedAdamW",
    "PagedAdamW8bit",
    "PagedAdamW32bit",
    "PagedLion",
    "PagedLion8bit",
    "PagedLion32bit",
    "RMSprop",
    "RMSprop8bit",
    "RMSprop32bit",
    "SGD8bit",
    "SGD32bit",
]

# What is not here, by the beginning of its name, and why.
_ABSENT = {
    "LAMB": "bitsandbytes' bounds the norm of Adam's update and has no trust ratio; "
    "stepc.torch.apex.FusedLAMB and lamb.mlir are LAMB, with state_dtype='q8' of 8 bits",
    "LARS": "bitsandbytes' bounds the norm of the momentum and has no trust ratio; "
    "stepc.torch.LARS is LARS, with state_dtype='q8' of 8 bits",
    "PytorchLARS": "bitsandbytes' bounds the norm of the momentum and has no trust ratio; "
    "stepc.torch.LARS is LARS",
    "AdEMAMix": "there is no definition of AdEMAMix",
    "PagedAdEMAMix": "there is no definition of AdEMAMix",
    "GlobalOptimManager": "parameters whose states are to have 32 bits are for an optimizer of "
    "their own, with optim_bits=32",
}


def __getattr__(name: str):
    why = _ABSENT.get(name.removesuffix("8bit").removesuffix("32bit"))
    if why is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise AttributeError(f"{__name__} has no {name}: {why}")
