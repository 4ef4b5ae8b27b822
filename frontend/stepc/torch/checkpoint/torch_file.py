# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A file of ``torch.save``: ``optimizer.state_dict()`` by itself or in a dict with others, that of
FSDP with names in the place of numbers, flattened ones, and what bitsandbytes saved."""

from __future__ import annotations

import os

from .archives import is_archive, read_archive, reading, write_archive
from .form import Checkpoint
from .state_dicts import add_parameters, find_states, from_state_dict, to_state_dict

SUFFIX = ".pt"
_SUFFIXES = (".pt", ".pth", ".bin")


def recognizes(path: str) -> bool:
    """A file that is a zip, or is called as one of torch is."""
    return os.path.isfile(path) and (is_archive(path) or path.endswith(_SUFFIXES))


def read(path: str) -> Checkpoint:
    tree = read_archive(path)
    with reading(path):
        made = from_state_dict(find_states(tree, path), path, "torch")
        add_parameters(made, tree)
    return made


def write(checkpoint: Checkpoint, path: str, each=lambda _: None) -> None:
    """``torch.load`` reads it: the state_dict under ``optimizer``, and parameters, where there are
    any, under ``model``. Without parameters the state_dict alone."""
    tree = to_state_dict(checkpoint)
    if checkpoint.parameters:
        tree = {"model": dict(checkpoint.parameters), "optimizer": tree}
    write_archive(path, tree, each)
