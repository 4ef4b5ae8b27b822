# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ColossalAI's checkpoint plugins write of an optimizer: an index with shards of torch or of
safetensors, or one file of safetensors. Objects lie pickled in tensors of bytes there
(colossalai/checkpoint_io/utils.py, utils/safetensors.py of 0.5)."""

from __future__ import annotations

import contextlib
import json
import os

from ...errors import CheckpointError
from . import safetensors_file
from .archives import read_archive, reading
from .form import Checkpoint, Stored, inside
from .pickles import unpickled
from .state_dicts import from_state_dict

SUFFIX = ""
_INDICES = ("pytorch_optim.bin.index.json", "optimizer.safetensors.index.json")


def _index(path: str) -> str | None:
    """The index: the file itself, or the one that the folder has, which may have a prefix."""
    if os.path.isfile(path):
        return path if path.endswith(_INDICES) else None
    found = [name for name in sorted(os.listdir(path)) if name.endswith(_INDICES)]
    if len(found) > 1:
        raise CheckpointError(path, f"has {len(found)} indices: {', '.join(found)}; name one")
    return os.path.join(path, found[0]) if found else None


def recognizes(path: str) -> bool:
    if _index(path) is not None:
        return True
    if not safetensors_file.recognizes(path):
        return False
    with contextlib.suppress(CheckpointError):
        tensors, metadata = safetensors_file.read_tensors(path)
        return "non_tensor_keys" in metadata and "param_groups" in tensors
    return False


def read(path: str) -> Checkpoint:
    index = _index(path)
    if index is None:
        tree = _nested(path)
        with reading(path):
            return from_state_dict(tree, path, "colossal")
    with reading(index):
        with open(index, encoding="utf-8") as file:
            said = json.load(file)
        folder, weights = os.path.dirname(index), said["weight_map"]
        group_file = said["metadata"]["param_groups"]
        groups = read_archive(inside(folder, group_file, index))
        if not isinstance(groups, list):
            raise CheckpointError(os.path.join(folder, group_file), "has no list of groups")
        states = {}
        for name in sorted(set(weights.values())):
            shard = inside(folder, name, index)
            own = _nested(shard) if name.endswith(".safetensors") else read_archive(shard)
            for key, value in own.items():
                if weights.get(str(key)) != name:
                    raise CheckpointError(shard, f"has parameter {key}, which the index has "
                                          f"{_elsewhere(weights.get(str(key)))}")  # fmt: skip
                states[int(key) if isinstance(key, str) and key.isdigit() else key] = value
        for key, name in weights.items():
            if (int(key) if key.isdigit() else key) not in states:
                raise CheckpointError(os.path.join(folder, name), f"lacks parameter {key}, which "
                                      "the index says that it has")  # fmt: skip
        return from_state_dict({"state": states, "param_groups": groups}, path, "colossal")


def _elsewhere(name: str | None) -> str:
    return f"in '{name}'" if name else "not"


def _nested(path: str) -> dict:
    """A file of safetensors with keys ``state.NUMBER.STATE``: states by number, or, where
    ``param_groups`` is in it, both."""
    tensors, metadata = safetensors_file.read_tensors(path)
    with reading(path):
        pickled = json.loads(metadata.get("non_tensor_keys", "[]"))
        states, groups = {}, None
        for key, stored in tensors.items():
            value = _object(stored) if key in pickled else stored
            if key == "param_groups":
                groups = value
                continue
            kind, number, state = key.split(".", 2)
            if kind != "state" or not number.isdigit():
                raise CheckpointError(path, f"has '{key}', expected 'state.NUMBER.STATE'")
            states.setdefault(int(number), {})[state] = value
        return states if groups is None else {"state": states, "param_groups": groups}


def _object(stored: Stored):
    return unpickled(bytes(stored.read().tolist()))
