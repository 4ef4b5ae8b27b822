# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a checkpoint is, whatever its layout: states by parameter's and state's name, each read
when it is asked for."""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import math
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from ...errors import CheckpointError

_LARGE = 2**17  # bytes from which on memory is taken from the system


@dataclass(frozen=True)
class Stored:
    """A tensor that is read when asked for. ``elements(begin, end)``: those of a range, in
    row-major order, as a tensor of one dim; a new one, unless it is ``of_others``. ``chunks``:
    offsets and sizes of ranks' parts, where it was saved as such. ``in_shape``: of codes that do
    not say what shape their floats have, these in one that they can have, or None; ``shape`` is
    then that of rows which fill their elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    elements: Callable[[int, int], torch.Tensor]
    of_others: bool = False
    chunks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    in_shape: Callable[[tuple[int, ...]], Stored | None] | None = None

    def shaped(self, shape: Sequence[int]) -> Stored:
        """In this shape, where nobody else says it and it can be."""
        made = None if self.in_shape is None else self.in_shape(tuple(shape))
        return self if made is None else made

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def read(self) -> torch.Tensor:
        """All of it, contiguous."""
        return self.elements(0, self.numel).view(self.shape)

    def viewed(self, shape: Sequence[int]) -> Stored:
        """The same elements in another shape."""
        return Stored(tuple(shape), self.dtype, self.elements, self.of_others)

    @staticmethod
    def of(tensor: torch.Tensor) -> Stored:
        """Of a tensor in memory, which is not copied."""
        flat = tensor.detach().reshape(-1)
        return Stored(tuple(tensor.shape), tensor.dtype, lambda begin, end: flat[begin:end], True)

    @staticmethod
    def number(value: float) -> Stored:
        """Of a count, as torch keeps it, or of another number."""
        if isinstance(value, float):
            return Stored.of(torch.tensor(value, dtype=torch.float64, device="cpu"))
        count = torch.tensor(float(value), dtype=torch.float32, device="cpu")
        return Stored.of(
            count if int(count) == value else torch.tensor(value, dtype=torch.int64, device="cpu")
        )

    @staticmethod
    def made(
        shape: Sequence[int], dtype: torch.dtype, make: Callable[[], torch.Tensor], chunks=()
    ) -> Stored:
        """What ``make`` gives, asked anew for each range; of a range the whole does not stay."""

        def elements(begin: int, end: int) -> torch.Tensor:
            whole = make().reshape(-1)
            return whole if end - begin == len(whole) else whole[begin:end].clone()

        return Stored(tuple(shape), dtype, elements, chunks=tuple(chunks))


def room(numel: int, dtype: torch.dtype) -> torch.Tensor:
    """A vector without values. Large ones are maps of their own, which go back to the system with
    the tensor: what is freed between small objects, malloc keeps."""
    size = numel * dtype.itemsize
    if size < _LARGE:
        return torch.empty(numel, dtype=dtype, device="cpu")
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=dtype)


def in_file(path: str, offset: int, dtype: torch.dtype, numel: int) -> Stored:
    """A vector whose bytes lie in a file from ``offset`` on. It is read, and not mapped: a file
    that becomes shorter is an error, and what is not needed again is no memory of the process."""

    def elements(begin: int, end: int) -> torch.Tensor:
        made = room(max(end - begin, 0), dtype)
        size = made.numel() * dtype.itemsize
        if size:
            into = memoryview((ctypes.c_char * size).from_address(made.data_ptr())).cast("B")
            _read_into(path, offset + begin * dtype.itemsize, into)
        return made

    return Stored((numel,), dtype, elements)


def _read_into(path: str, at: int, into: memoryview) -> None:
    with open_file(path) as file:
        file.seek(at)
        while into:
            count = file.readinto(into)
            if not count:
                raise CheckpointError(path, f"ends {len(into)} bytes before a tensor in it does")
            into = into[count:]


@contextlib.contextmanager
def open_file(path: str):
    """For reading, without a buffer; CheckpointError where it cannot be."""
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror}") from None
    with file:
        yield file


def joined(pieces: Sequence[tuple[Stored, int, int]], shape: Sequence[int]) -> Stored:
    """Ranges ``(source, begin, end)`` of elements, one behind the other, in a shape of as many."""

    def elements(begin: int, end: int) -> torch.Tensor:
        made, at = room(max(end - begin, 0), pieces[0][0].dtype), 0
        for source, first, last in pieces:
            low, high = max(begin, at), min(end, at + last - first)
            if low < high:
                made[low - begin : high - begin] = source.elements(first + low - at,
                                                                   first + high - at)  # fmt: skip
            at += last - first
        return made

    return Stored(tuple(shape), pieces[0][0].dtype, elements)


@dataclass
class Checkpoint:
    """An optimizer's state, of whole tensors.

    ``states``: by parameter, then by state; counts of steps are the state ``step``. ``groups``:
    dicts of hyper-parameters, whose ``params`` are names. ``parameters``: those of the model, in
    float32 where the checkpoint keeps that, or none. ``named``: whether names are the model's, or
    places ("0", "1", ...) in the order of the groups. ``layout``: the name of what it was read as.
    """

    path: str
    layout: str
    states: dict[str, dict[str, Stored]]
    groups: list[dict]
    parameters: dict[str, Stored] = field(default_factory=dict)
    named: bool = True

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of the groups."""
        return [name for group in self.groups for name in group["params"]]

    def tensors(self) -> Iterator[tuple[str, str, Stored]]:
        """Of each tensor the parameter's name, the state's ("" of the parameter itself), and it."""
        for name in self.names:
            if name in self.parameters:
                yield name, "", self.parameters[name]
            for state, stored in self.states.get(name, {}).items():
                yield name, state, stored

    def check(self) -> Checkpoint:
        """Itself; CheckpointError where a name is of no group, or of two."""
        known = set(self.names)
        if len(known) != len(self.names):
            twice = next(n for n in known if self.names.count(n) > 1)
            raise CheckpointError(self.path, f"has parameter '{twice}' in its groups twice")
        strange = [n for n in self.states if n not in known]
        if strange:
            raise CheckpointError(self.path, f"has states of '{strange[0]}', which is in no group")
        return self


_LARGEST_EXTENT, _MOST_DIMS = 2**63 - 1, 64  # of a tensor of torch


def is_shape(value) -> bool:
    """Whether it can be a tensor's: no product of more numbers than that is made."""
    return (
        isinstance(value, (tuple, list))
        and len(value) <= _MOST_DIMS
        and all(type(n) is int and 0 <= n <= _LARGEST_EXTENT for n in value)
    )


def nearest(name: str, among: Iterable[str]) -> str:
    """A hint behind a message of a name that is not there."""
    found = difflib.get_close_matches(name, list(among), 1)
    return f"; did you mean '{found[0]}'?" if found else ""


def inside(folder: str, name: str, holder: str) -> str:
    """The path of a file that ``holder`` names, which has to lie in the folder."""
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.isabs(name) or not path.startswith(os.path.join(os.path.normpath(folder), "")):
        raise CheckpointError(holder, f"names '{name}', which does not lie in its folder")
    if not os.path.isfile(path):
        raise CheckpointError(path, f"is missing; '{os.path.basename(holder)}' names it")
    return path
