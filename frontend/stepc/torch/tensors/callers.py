# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Who has called into Stepc: what warnings point at."""

from __future__ import annotations

import os
import sys

import torch


def level_of_caller() -> int:
    """The ``stacklevel`` that names the code which called into Stepc and torch."""
    inner = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(torch.__file__))
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(inner):
        level, frame = level + 1, frame.f_back
    return level
