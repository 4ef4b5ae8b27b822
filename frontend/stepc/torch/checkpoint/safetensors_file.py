# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A file of safetensors: ``PARAMETER.STATE`` for each state and ``PARAMETER`` for parameters that
are there, with groups and names as JSON in its metadata. The format is eight bytes, a header of
JSON and the tensors; it is read and written here so that one tensor is in memory at a time."""

from __future__ import annotations

import json
import math
import os
import struct

import torch

from ...errors import CheckpointError
from .archives import bytes_of, reading, writing
from .form import Checkpoint, Stored, in_file, is_shape, open_file

SUFFIX = ".safetensors"
_LARGEST = 100_000_000  # bytes of a header, as safetensors has it
_KEY = "stepc"
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def read_tensors(path: str) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of a file, of which none is read, and its metadata."""
    with reading(path), open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, _LARGEST):
            raise CheckpointError(path, f"has {size} bytes, and says that its header has {length}")
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        return {n: _tensor(path, n, own, 8 + length, size) for n, own in header.items()}, metadata


def _tensor(path: str, name: str, own: dict, first: int, size: int) -> Stored:
    dtype, shape, (begin, end) = _DTYPES.get(own["dtype"]), own["shape"], own["data_offsets"]
    if not is_shape(shape) or not is_shape((begin, end)):
        raise CheckpointError(path, f"has '{name}' of shape {shape} at bytes {begin} to {end}")
    if dtype is None:
        raise CheckpointError(path, f"has '{name}' of dtype {own['dtype']}, which is not read")
    numel = math.prod(shape)
    if not begin <= end <= size - first:
        raise CheckpointError(path, f"ends within '{name}'")
    if numel * dtype.itemsize != end - begin:
        raise CheckpointError(path, f"has {end - begin} bytes for '{name}' of shape {shape}")
    return in_file(path, first + begin, dtype, numel).viewed(shape)


def recognizes(path: str) -> bool:
    """By its name, or how it begins: a length, and JSON of it."""
    if not os.path.isfile(path):
        return False
    with open_file(path) as file:
        head = file.read(9)
    return path.endswith(SUFFIX) or (
        head[8:] == b"{" and struct.unpack("<Q", head[:8])[0] <= _LARGEST
    )


def read(path: str) -> Checkpoint:
    tensors, metadata = read_tensors(path)
    if _KEY not in metadata:
        raise CheckpointError(
            path, "has no groups in its metadata: no state of an optimizer that Stepc wrote"
        )
    with reading(path):
        said = json.loads(metadata[_KEY])
        made = Checkpoint(path, "safetensors", {}, [_tuples(g) for g in said["groups"]])
        made.named = said["named"]
        for name in said["empty"]:
            made.states[name] = {}
        for key, (name, state) in said["tensors"].items():
            if key not in tensors:
                raise CheckpointError(path, f"lacks tensor '{key}'")
            if state:
                made.states.setdefault(name, {})[state] = tensors[key]
            else:
                made.parameters[name] = tensors[key]
        return made.check()


def _tuples(group: dict) -> dict:
    """JSON knows lists only."""
    return {
        key: tuple(value) if isinstance(value, list) and key != "params" else value
        for key, value in group.items()
    }


def write(checkpoint: Checkpoint, path: str, each=lambda _: None) -> None:
    """CheckpointError for a hyper-parameter that JSON has no words for, too."""
    header, kept, offset, tensors = {}, {}, 0, list(checkpoint.tensors())
    for name, state, stored in tensors:
        key = f"{name}.{state}" if state else name
        if key in header:
            raise CheckpointError(checkpoint.path, f"has '{key}' twice: a parameter and a state")
        end = offset + stored.nbytes
        header[key] = {
            "dtype": _NAMES[stored.dtype], "shape": list(stored.shape),
            "data_offsets": [offset, end],
        }  # fmt: skip
        kept[key], offset = (name, state), end
    empty = [name for name, own in checkpoint.states.items() if not own]
    said = {"groups": checkpoint.groups, "named": checkpoint.named, "tensors": kept,
            "empty": empty}  # fmt: skip
    try:
        header["__metadata__"] = {"format": "pt", _KEY: json.dumps(said)}
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(checkpoint.path, f"has a hyper-parameter: {error}") from None
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LARGEST:
        raise CheckpointError(path, f"would have a header of {len(text)} bytes, more than allowed")
    with writing(path) as beside, open(beside, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, stored in tensors:
            file.write(bytes_of(stored.read()))
            each(stored.nbytes)
