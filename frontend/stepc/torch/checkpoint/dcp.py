# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder of ``torch.distributed.checkpoint``: FSDP's sharded states, accelerate's
``optimizer_0``, and what Stepc's optimizers save by it. Chunks of any number of ranks are put
together when a tensor is read."""

from __future__ import annotations

import mmap
import os

import torch

from ...errors import CheckpointError
from .archives import read_archive, reading, writing
from .form import Checkpoint, Stored, inside, is_shape, room
from .pickles import Inert, unpickled
from .state_dicts import add_parameters, find_states, from_state_dict, to_state_dict

SUFFIX = ""
_METADATA = ".metadata"
_OF_TENSOR, _OF_BYTES = (
    f"torch.distributed.checkpoint.metadata.{kind}StorageMetadata" for kind in ("Tensor", "Bytes")
)


def recognizes(path: str) -> bool:
    return os.path.isfile(os.path.join(path, _METADATA))


def read(path: str) -> Checkpoint:
    holder = os.path.join(path, _METADATA)
    with reading(holder):
        with open(holder, "rb") as file:
            fields = unpickled(file.read()).fields
        files = _Files(path, holder, fields["storage_data"])
        tree: dict = {}
        for key, kind in fields["state_dict_metadata"].items():
            way = (fields.get("planner_data") or {}).get(key, (key,))
            _put(tree, way, files.value(key, kind))
        tree = _lists(tree, {})
        made = from_state_dict(_numbered(find_states(tree, path)), path, "dcp")
        add_parameters(made, tree)
    return made


class _Files:
    """Where the parts of values lie."""

    def __init__(self, path: str, holder: str, storage: dict):
        self._holder, self._places, self._paths, self._sizes = holder, {}, {}, {}
        self._folder = path
        for index, info in storage.items():
            offset = index.fields.get("offset")
            key = (index.fields["fqn"], None if offset is None else tuple(offset))
            self._places[key] = info.fields

    def value(self, key: str, kind: Inert):
        """A :class:`Stored`, or an object."""
        if kind.of == _OF_BYTES:
            return self._blob(key, None)
        if kind.of != _OF_TENSOR:
            raise CheckpointError(self._holder, f"has '{key}', which is a {kind.of}")
        dtype = kind.fields["properties"].fields["state"][0]  # a tuple of its properties
        shape = tuple(kind.fields["size"])
        if not isinstance(dtype, torch.dtype):
            raise CheckpointError(self._holder, f"has no dtype of '{key}'")
        if not is_shape(shape):
            raise CheckpointError(self._holder, f"has '{key}' of shape {shape}")
        chunks = [
            (tuple(chunk.fields["offsets"]), tuple(chunk.fields["sizes"]))
            for chunk in kind.fields["chunks"]
        ]
        return self._tensor(key, dtype, shape, chunks)

    def _tensor(self, key, dtype, shape, chunks) -> Stored:
        for chunk in chunks:
            self._place(key, chunk[0])
            if any(not is_shape(own) or len(own) != len(shape) for own in chunk) or any(
                first + size > extent for first, size, extent in zip(*chunk, shape, strict=True)
            ):
                raise CheckpointError(self._holder, f"has a chunk of '{key}' outside of {shape}")
        dtype = self._kept_dtype(key, dtype, chunks)
        whole = Stored(shape, dtype, None)
        covered = sum(Stored(sizes, dtype, None).numel for _, sizes in chunks)
        if covered != whole.numel:
            raise CheckpointError(
                self._holder, f"has {covered} elements of '{key}', whose shape is {shape}"
            )

        def make() -> torch.Tensor:
            made = room(whole.numel, dtype).view(shape)
            several = len(chunks) > 1
            seen = torch.zeros(shape if several else (), dtype=torch.bool, device="cpu")
            for offsets, sizes in chunks:
                part = self._blob(key, offsets)
                if not isinstance(part, Stored) or (part.shape, part.dtype) != (sizes, dtype):
                    raise CheckpointError(self._folder, f"has no chunk of {sizes} of '{key}'")
                at = tuple(slice(f, f + n) for f, n in zip(offsets, sizes, strict=True))
                made[at] = part.read()
                seen[at if several else ()] = True
            if several and not seen.all():  # they are as many elements in all
                raise CheckpointError(self._holder, f"has elements of '{key}' in two chunks")
            return made

        return Stored.made(shape, dtype, make, sorted(chunks))

    def _kept_dtype(self, key: str, dtype: torch.dtype, chunks: list) -> torch.dtype:
        """That of the values: torchao's states say the dtype of their parameter, and what their
        codes stand for is float32, of all chunks."""
        if chunks and dtype in (torch.bfloat16, torch.float16):
            first = self._blob(key, chunks[0][0])
            if isinstance(first, Stored) and first.dtype is torch.float32:
                return torch.float32
        return dtype

    def _place(self, key: str, offsets) -> dict:
        found = self._places.get((key, offsets))
        if found is None:
            raise CheckpointError(self._holder, f"does not say where '{key}' at {offsets} lies")
        if found.get("transform_descriptors"):
            raise CheckpointError(self._holder, f"has '{key}' in a form that is not read")
        name = found["relative_path"]
        if name not in self._paths:
            path = inside(self._folder, name, self._holder)
            self._paths[name], self._sizes[name] = path, os.path.getsize(path)
        end = found["offset"] + found["length"]
        if end > self._sizes[name]:
            raise CheckpointError(
                self._paths[name], f"has {self._sizes[name]} bytes, '{key}' ends at {end}"
            )
        return found

    def _blob(self, key: str, offsets):
        own = self._place(key, offsets)
        return read_archive(self._paths[own["relative_path"]], own["offset"], own["length"])


def _put(tree: dict, way: tuple, value) -> None:
    for step in way[:-1]:
        tree = tree.setdefault(step, {})
    tree[way[-1]] = value


def _lists(tree, seen: dict):
    """Dicts of numbers from 0 on, which were lists; by the key that torch has lists under. What is
    there in several places stays one: ``seen``, by the address of what it was."""
    if not isinstance(tree, dict):
        return tree
    if id(tree) in seen:
        return seen[id(tree)]
    made = seen[id(tree)] = {}
    made.update((key, _lists(value, seen)) for key, value in tree.items())
    groups = made.get("param_groups")
    if isinstance(groups, dict):
        made["param_groups"] = [groups[number] for number in sorted(groups, key=int)]
    return made


def _numbered(tree: dict) -> dict:
    """Keys of dicts are texts in this layout, also where they were the numbers of parameters."""
    params = [key for group in tree["param_groups"] for key in group.get("params", ())]
    if not params or not all(isinstance(key, int) for key in params):
        return tree
    states = {int(k) if str(k).isdigit() else k: own for k, own in tree["state"].items()}
    return {**tree, "state": states}


# --- Writing ------------------------------------------------------------------


def write(checkpoint: Checkpoint, path: str, each=lambda _: None) -> None:
    """``torch.distributed.checkpoint.load`` reads it in any layout: ``optim`` as
    ``get_optimizer_state_dict`` has it, and ``model``, where the checkpoint has parameters."""
    import warnings

    import torch.distributed.checkpoint as dist_checkpoint

    if not checkpoint.named:
        raise CheckpointError(checkpoint.path, "has no names of parameters, which DCP needs; give "
                              "those of a model")  # fmt: skip
    saved = to_state_dict(checkpoint)
    names = dict(enumerate(checkpoint.names))
    tree = {
        "optim": {
            "state": {names[number]: own for number, own in saved["state"].items()},
            # Some optimizers' groups have the names, and torch asks for what they have.
            "param_groups": [{**g, "param_names": g["params"]} for g in checkpoint.groups],
        }
    }
    if checkpoint.parameters:
        tree["model"] = dict(checkpoint.parameters)
    with writing(path, folder=True) as beside, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of there being no ranks
        writer = dist_checkpoint.FileSystemWriter(beside, thread_count=1)
        dist_checkpoint.save(
            _standing_for(tree), storage_writer=writer, planner=_planner(tree, each), no_dist=True
        )


def _standing_for(tree):
    """The same with tensors that have no memory."""
    if isinstance(tree, Stored):
        return torch.empty(tree.shape, dtype=tree.dtype, device="meta")
    if isinstance(tree, dict):
        return {key: _standing_for(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_standing_for(value) for value in tree]
    return tree


def _planner(tree: dict, each):
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.planner import WriteItemType

    class OneByOne(DefaultSavePlanner):
        """Reads a tensor when it is about to be written. The writer keeps all that it has written,
        so these lie in maps of their own, whose memory goes back as soon as the next one comes."""

        written: mmap.mmap | None = None

        def resolve_data(self, write_item):
            if self.written is not None:
                self.written.madvise(mmap.MADV_DONTNEED)
                self.written = None
            if write_item.type == WriteItemType.BYTE_IO:
                return super().resolve_data(write_item)
            stored = tree
            for step in self.mappings[write_item.index.fqn]:
                stored = stored[step]
            each(stored.nbytes)
            value = stored.read()
            if not value.nbytes:
                return value
            self.written = mmap.mmap(-1, value.nbytes)
            return torch.frombuffer(self.written, dtype=value.dtype).view(value.shape).copy_(value)

    return OneByOne()
