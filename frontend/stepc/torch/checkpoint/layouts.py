# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layouts that are known, each a module with ``recognizes``, ``read`` and, where Stepc writes
it, ``write``."""

from __future__ import annotations

import os
from typing import Protocol

from ...errors import CheckpointError
from . import colossal, dcp, deepspeed_zero, safetensors_file, torch_file, universal
from .form import Checkpoint, nearest


class Layout(Protocol):
    """What a module of a layout has; one without ``write`` is only read."""

    SUFFIX: str

    def recognizes(self, path: str) -> bool: ...

    def read(self, path: str) -> Checkpoint: ...


# By name; a path is of the first that recognizes it.
LAYOUTS: dict[str, Layout] = {
    "colossal": colossal,
    "safetensors": safetensors_file,
    "universal": universal,
    "deepspeed": deepspeed_zero,
    "dcp": dcp,
    "torch": torch_file,
}


def _known(layout: str, path: str) -> Layout:
    if layout not in LAYOUTS:
        raise CheckpointError(path, f"cannot be of layout {layout!r}; layouts are "
                              f"{', '.join(LAYOUTS)}{nearest(str(layout), LAYOUTS)}")  # fmt: skip
    return LAYOUTS[layout]


def layout_of(path: str) -> str:
    """Which it is of. CheckpointError where there is nothing, or nothing that is known."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise CheckpointError(path, "does not exist")
    for name, layout in LAYOUTS.items():
        if layout.recognizes(path):
            return name
    what = "a folder" if os.path.isdir(path) else "a file"
    raise CheckpointError(path, f"is {what} of no layout that is known: {', '.join(LAYOUTS)}")


def read(path: str, layout: str | None = None) -> Checkpoint:
    """What is saved there; tensors are read when they are asked for.

    Args:
        path: a file or folder.
        layout: its layout, a key of :data:`LAYOUTS`; None: whichever it is.

    Raises :class:`stepc.errors.CheckpointError`, which names the file and what is wrong with it.
    """
    path = os.fspath(path)
    found = _known(layout or layout_of(path), path)
    if not os.path.exists(path):
        raise CheckpointError(path, "does not exist")
    return found.read(path)


def write(checkpoint: Checkpoint, path: str, layout: str, each=lambda _: None) -> None:
    """Writes it, one tensor after the other.

    Args:
        checkpoint: of ``read``, or of an optimizer.
        path: where nothing is yet. It is there when all of it has been written.
        layout: a key of :data:`LAYOUTS` that is written.
        each: called with the number of bytes behind each tensor.
    """
    path = os.fspath(path)
    found = _known(layout, path)
    if not hasattr(found, "write"):
        written = [name for name, own in LAYOUTS.items() if hasattr(own, "write")]
        raise CheckpointError(path, f"cannot be written as '{layout}', which is only read; "
                              f"{', '.join(written)} are written")  # fmt: skip
    found.write(checkpoint, path, each)


def convert(source: str, path: str, layout: str, *, source_layout: str | None = None,
            each=lambda _: None) -> Checkpoint:  # fmt: skip
    """Reads ``source`` and writes it to ``path`` in another layout, with at most one tensor in
    memory; returns what was read."""
    checkpoint = read(source, source_layout)
    write(checkpoint, path, layout, each)
    return checkpoint
