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
    other ranks alone know where they begin. ``saved``: the box that a checkpoint gets of the one
    that there is, where other ranks have the rest as well; None: all. It pickles with them, also
    for ``torch.load(weights_only=True)``.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl
    whole: tuple[int, ...]
    place: str
    boxes: tuple[Box, ...] | None
    saved: Box | None

    @staticmethod
    def of(
        tensor: torch.Tensor,
        whole,
        place: str,
        boxes: tuple[Box, ...] | None,
        saved: Box | None = None,
    ) -> StatePart:
        """The same memory, with what is to be known of it."""
        part = torch.Tensor._make_subclass(StatePart, tensor.detach())
        part.whole, part.place, part.boxes, part.saved = tuple(whole), place, boxes, saved
        return part

    def plain(self) -> torch.Tensor:
        """The same memory as an ordinary tensor."""
        return self.as_subclass(torch.Tensor)

    def __repr__(self, **_):
        return f"StatePart({self.place}: {self.plain()!r})"

    def __deepcopy__(self, memo):
        copy = StatePart.of(self.plain().clone(), self.whole, self.place, self.boxes, self.saved)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return _restored, (self.plain(), self.whole, self.place, self.boxes, self.saved)

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
            for chunk in (self.__create_chunk_list__() if self.saved is None else self._saved())
        ]

    def _saved(self) -> list:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        offsets, sizes = map(torch.Size, self.saved)
        return [ChunkStorageMetadata(offsets=offsets, sizes=sizes)] if math.prod(sizes) else []

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
            (first, sizes), own = boxes[0], self.plain()
            if tuple(index.offset) != first:  # what of it is saved
                sizes = self.saved[1]
                own = own.view(boxes[0][1])[
                    tuple(
                        slice(at - f, at - f + size)
                        for at, f, size in zip(index.offset, first, sizes, strict=True)
                    )
                ]
            return own.view(sizes) if own.is_contiguous() else own
        line, start = self.plain(), 0
        for offsets, sizes in boxes:
            size = math.prod(sizes)
            if offsets == tuple(index.offset):
                return line[start : start + size].view(sizes)
            start += size
        raise ValueError(f"{self.place} has no box at {tuple(index.offset)}")


def _restored(tensor: torch.Tensor, whole, place: str, boxes, saved=None) -> StatePart:
    return StatePart.of(tensor, whole, place, boxes, saved)


torch.serialization.add_safe_globals([_restored])


# --- Parts of dims --------------------------------------------------------------


def box_part(
    state: torch.Tensor, whole, first: tuple[int, ...] | None, sizes, shape, place: str
) -> torch.Tensor:
    """A state beside a parameter of ``shape`` of which this rank has a box of ``sizes`` that
    begins at ``first``.

    ``whole``: the state's :class:`~stepc.torch.binding.rules.WholeState`. A state of none of the
    dims that are cut is whole; scales may be all, of blocks that others have parts of.
    """
    if tuple(state.shape) == whole.shape:
        dim = whole.of_param[-1] if whole.per > 1 else None
        if dim is None or shape is None or sizes[dim] == shape[dim]:
            return state
    boxes, saved = None, None
    if first is not None:
        offsets = offsets_of(whole, first)
        boxes = ((offsets, tuple(state.shape)),) if state.numel() else ()
        if whole.per > 1 and boxes:
            saved = _begun(whole, first, offsets, tuple(state.shape))
    return StatePart.of(state, whole.shape, place, boxes, saved)


def _begun(whole, first, offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Box | None:
    """Of scales those of blocks that begin in this rank's part; None where all do. So each is
    saved by one of the ranks that share its block."""
    dim = whole.of_param[-1]
    if dim is None or first[dim] * whole.inner % whole.per == 0:
        return None
    *before, at = offsets
    *rows, size = sizes
    return (*before, at + 1), (*rows, size - 1)


def unresolved(state: torch.Tensor, own, place: str) -> torch.Tensor:
    """A state of which only ``place`` is known yet. ``own``: what it would be beside a whole
    parameter of the shape of this rank's part; another shape is that of the whole."""
    if own is None or tuple(state.shape) != own.shape:
        return state
    return StatePart.of(state, (), place, None)


def cuts_blocks(whole, first: tuple[int, ...], sizes, shape) -> bool:
    """Whether a box of ``sizes`` from ``first`` on cuts blocks of scales beside a parameter of
    ``shape``."""
    if whole.per == 1 or (dim := whole.of_param[-1]) is None:
        return False
    ends = first[dim], (first[dim] + sizes[dim]) % shape[dim]
    return any(end * whole.inner % whole.per for end in ends)


def offsets_of(whole, first: tuple[int, ...]) -> tuple[int, ...]:
    """Where a state begins beside a parameter's box that begins at ``first``."""
    found = [0 if dim is None else first[dim] for dim in whole.of_param]
    if found:
        found[-1] = found[-1] * whole.inner // whole.per
    return tuple(found)


def state_sizes(whole, first, sizes) -> tuple[int, ...]:
    """The shape of a state beside a parameter's box of ``sizes`` that begins at ``first``."""
    pairs = zip(whole.of_param, whole.shape, strict=True)
    found = [own if dim is None else sizes[dim] for dim, own in pairs]
    if whole.per > 1 and (dim := whole.of_param[-1]) is not None:
        found[-1] = len(whole.blocks(first[dim], first[dim] + sizes[dim]))
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
