# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refuses to be imported where there is no torch, or one that is too old. Imported before the
modules that use it."""

from __future__ import annotations

import re

OLDEST = (2, 6)
_NEEDS = f"stepc.torch needs torch {OLDEST[0]}.{OLDEST[1]} or newer"

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    words = f"{_NEEDS}, which is not installed: pip install torch"
    raise ModuleNotFoundError(words, name="torch") from None

_numbers = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
if _numbers and tuple(map(int, _numbers.groups())) < OLDEST:
    raise ImportError(f"{_NEEDS}; this is {torch.__version__}: pip install --upgrade torch")


def has_muon() -> bool:
    """Whether torch has Muon: from 2.9 on."""
    return hasattr(torch.optim, "Muon")
