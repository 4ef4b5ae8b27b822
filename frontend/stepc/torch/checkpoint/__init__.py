# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizer checkpoints from one layout into another, and into any optimizer of Stepc.

``load(optimizer, path)`` takes what another library saved, ``save`` writes what another reads,
``convert`` goes from file to file with one tensor in memory at a time. No file runs code.
"""

from ...errors import CheckpointError
from .form import Checkpoint, Stored
from .layouts import LAYOUTS, convert, layout_of, read, write
from .loading import checkpoint_of, load, save

__all__ = [
    "LAYOUTS",
    "Checkpoint",
    "CheckpointError",
    "Stored",
    "checkpoint_of",
    "convert",
    "layout_of",
    "load",
    "read",
    "save",
    "write",
]
