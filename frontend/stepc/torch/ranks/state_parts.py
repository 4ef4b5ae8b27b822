# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank's part of a state as ``state_dict`` has it: a tensor that knows which part it is
of which whole, and that ``torch.distributed.checkpoint`` saves and loads as that part of
the whole, whatever layout the other side has."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from .exchanges import exchanging, gathered, host_group

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes in the whole tensor


def boxes_of_range(shape: tuple[int, ...], begin: int, end: int) -> tuple[Box, ...]:
    """The elements [begin, end) of a tensor in row-major order as boxes, in their order.

    At most two for each dim but the last: the rest of the first row, whole rows between,
    and the start of the last. Each is one run of the elements.
    """
    if begin >= end:
        return ()
    if not shape:
        return (((), ()),)
    row = math.prod(shape[1:])
    first, last = begin // row, (end - 1) // row
    if first == last:
        return _in_row(first, shape, begin - first * row, end - first * row)
    found: tuple[Box, ...] = ()
    if begin % row:
        found += _in_row(first, shape, begin % row, row)
        first += 1
    whole = end // row - first
    if whole:
        found += (((first, *(0 for _ in shape[1:])), (whole, *shape[1:])),)
    if end % row:
        found += _in_row(end // row, shape, 0, end % row)
    return found


def _in_row(row: int, shape: tuple[int, ...], begin: int, end: int) -> tuple[Box, ...]:
    inner = boxes_of_range(shape[1:], begin, end)
    return tuple(((row, *offsets), (1, *sizes)) for offsets, sizes in inner)


class StatePart(torch.Tensor):
    """A part of a state; what is computed from it is an ordinary tensor.

    ``whole`` is the shape of the whole state, ``place`` says in words which part of it
    this is, ``boxes`` are its boxes, whose elements it has one after the other; None where
    other ranks alone know where they begin. It pickles with them, also for
    ``torch.load(weights_only=True)``.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    whole: tuple[int, ...]
    place: str
    boxes: tuple[Box, ...] | None

    @staticmethod
    def of(tensor: torch.Tensor, whole, place: str, boxes: tuple[Box, ...] | None) -> StatePart:
        """The same memory, with what is to be known of it."""
        part = torch.Tensor._make_subclass(StatePart, tensor.detach())
        part.whole, part.place, part.boxes = tuple(whole), place, boxes
        return part

    def plain(self) -> torch.Tensor:
        """The same memory as an ordinary tensor."""
        return self.as_subclass(torch.Tensor)

    def __repr__(self, **_):
        return f"StatePart({self.place}: {self.plain()!r})"

    def __deepcopy__(self, memo):
        copy = StatePart.of(self.plain().clone(), self.whole, self.place, self.boxes)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return _restored, (self.plain(), self.whole, self.place, self.boxes)

    # --- As torch.distributed.checkpoint asks ----------------------------------

    def size(self, dim: int | None = None):
        """Of the whole state, which a checkpoint compares; ``shape`` is the part's."""
        whole = torch.Size(self.whole)
        return whole if dim is None else whole[dim]

    def _known(self) -> tuple[Box, ...]:
        if self.boxes is None:
            raise ValueError(
                f"where {self.place} begins is not known before the first step; a checkpoint of "
                "parts needs it"
            )
        return self.boxes

    def __create_write_items__(self, fqn: str, _object) -> list:
        from torch.distributed.checkpoint import metadata, planner

        properties = metadata.TensorProperties.create_from_tensor(self.plain())
        size = torch.Size(self.whole)
        return [
            planner.WriteItem(
                index=metadata.MetadataIndex(fqn, chunk.offsets),
                type=planner.WriteItemType.SHARD,
                tensor_data=planner.TensorWriteData(chunk=chunk, properties=properties, size=size),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        return [
            ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(sizes))
            for offsets, sizes in self._known()
        ]

    def __get_tensor_shard__(self, index) -> torch.Tensor:
        """The box at an index, a view."""
        boxes = self._known()
        if len(boxes) == 1:
            return self.plain().view(boxes[0][1])
        line, start = self.plain(), 0
        for offsets, sizes in boxes:
            size = math.prod(sizes)
            if offsets == tuple(index.offset):
                return line[start : start + size].view(sizes)
            start += size
        raise ValueError(f"{self.place} has no box at {tuple(index.offset)}")


def _restored(tensor: torch.Tensor, whole, place: str, boxes) -> StatePart:
    return StatePart.of(tensor, whole, place, boxes)


torch.serialization.add_safe_globals([_restored])


# --- Parts of dims --------------------------------------------------------------


def box_part(state: torch.Tensor, whole, first: tuple[int, ...] | None, place: str) -> torch.Tensor:
    """A state beside a parameter of which this rank has a box that begins at ``first``.

    ``whole``: the state's :class:`~stepc.torch.binding.rules.WholeState`. A state of none of the
    dims that are cut is whole.
    """
    if tuple(state.shape) == whole.shape:
        return state
    boxes = None
    if first is not None:
        offsets = offsets_of(whole, first)
        boxes = ((offsets, tuple(state.shape)),) if state.numel() else ()
    return StatePart.of(state, whole.shape, place, boxes)


def unresolved(state: torch.Tensor, own, place: str) -> torch.Tensor:
    """A state of which only ``place`` is known yet. ``own``: what it would be beside a whole
    parameter of the shape of this rank's part; another shape is that of the whole."""
    if own is None or tuple(state.shape) != own.shape:
        return state
    return StatePart.of(state, (), place, None)


def offsets_of(whole, first: tuple[int, ...]) -> tuple[int, ...]:
    """Where a state begins beside a parameter's box that begins at ``first``."""
    found = [0 if dim is None else first[dim] for dim in whole.of_param]
    if found:
        found[-1] //= whole.per
    return tuple(found)


def state_sizes(whole, sizes) -> tuple[int, ...]:
    """The shape of a state beside a parameter's box of ``sizes``."""
    pairs = zip(whole.of_param, whole.shape, strict=True)
    found = [own if dim is None else sizes[dim] for dim, own in pairs]
    if whole.per > 1 and whole.of_param[-1] is not None:
        found[-1] = -(-found[-1] // whole.per)
    return tuple(found)


_ANY_DEVICE = torch.device("cuda")
TOGETHER = "the states could not be put together"


def broadcast(state: torch.Tensor, rank: int, group: dist.ProcessGroup) -> None:
    """Sends a dense state from the rank of that number in the group to the others, in place."""
    if state.device.type == "cpu":  # which a group of devices alone cannot send
        group = host_group(group, _ANY_DEVICE)
    line = state.detach().view(-1).view(torch.uint8)
    with exchanging(TOGETHER, group):
        dist.broadcast(line, dist.get_global_rank(group, rank), group=group)


def assemble(state: torch.Tensor, shape, offsets: tuple[int, ...], group) -> torch.Tensor:
    """The whole of the boxes that the ranks of a group have: all ranks together."""
    device = state.device
    boxes = gathered((tuple(offsets), tuple(state.shape)), TOGETHER, group, _ANY_DEVICE)
    whole, done = torch.empty(shape, dtype=state.dtype, device=device), set()
    for rank, (first, sizes) in enumerate(boxes):
        if (first, sizes) in done or not math.prod(sizes):
            continue
        done.add((first, sizes))
        own = dist.get_rank(group) == rank
        piece = state if own else torch.empty(sizes, dtype=state.dtype, device=device)
        piece = piece.contiguous()
        broadcast(piece, rank, group)
        at = tuple(slice(f, f + s) for f, s in zip(first, sizes, strict=True))
        whole[at] = piece
    return whole
