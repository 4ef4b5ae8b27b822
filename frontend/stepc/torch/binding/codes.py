# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes: two tensors of a parameter's state, the codes under the state's
name and their scales under that with ``.scale``."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Sequence

import torch

from ... import _codes, errors
from ..._describe import BLOCK, SCALE, State, count_blocks, is_scale
from ..tensors import dlpack as _tensors
from ..tensors.members import Member
from ..tensors.stored import in_memory
from .state_map import ParamState


@functools.cache
def dtypes() -> dict[torch.dtype, str]:
    """Of which dtype codes of each format are."""
    return {_tensors.DTYPE[own.words.storage]: name for name, own in _codes.FORMATS.items()}


def format_of(codes: torch.Tensor) -> str | None:
    """The format that a tensor's dtype tells of, or None where it is none of codes."""
    return dtypes().get(codes.dtype)


def per_word(codes: torch.Tensor) -> int:
    """How many codes an element of it is."""
    return _codes.FORMATS[format_of(codes)].words.per_word


def code_shape(format: str, shape: Sequence[int], before: int) -> tuple[int, ...]:
    """Of codes of values of the shape, which have so many dims before a row."""
    words = _codes.FORMATS[format].words
    if words.per_word == 1:
        return tuple(shape)
    return (*shape[:before], words.count(math.prod(shape[before:])))


def value_shape(
    codes: torch.Tensor, scales: torch.Tensor, like: Sequence[int] = ()
) -> tuple[int, ...]:
    """Of what codes stand for, where nobody says it: ``like`` where they can be of that, else
    rows that fill the elements of codes."""
    # Of a part the whole's, which its size() is.
    shapes = (own.size() if isinstance(own, torch.Tensor) else own.shape for own in (codes, scales))
    whole, before = tuple(next(shapes)), len(next(shapes)) - 1
    if not whole:
        return ()
    if whole == code_shape(format_of(codes), like, before) and len(like) > before:
        return tuple(like)
    *dims, words = whole
    return (*dims, words * per_word(codes))


def encode(
    values: torch.Tensor, format: str, scales: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of values, and their scales, of that shape. A part has to begin and end where
    blocks of the whole do."""
    values = values.detach().to(dtype=torch.float32, device="cpu").contiguous()
    shape = code_shape(format, values.shape, len(scales) - 1)
    dtype = _tensors.DTYPE[_codes.FORMATS[format].words.storage]
    codes = torch.empty(shape, dtype=dtype, device="cpu")
    of = torch.empty(scales, dtype=torch.float32, device="cpu")
    rows = _rows(format, codes, of, values.shape)
    _codes.encode(format, rows, values.data_ptr(), codes.data_ptr(), of.data_ptr())
    return codes, of


def decode(
    codes: torch.Tensor,
    scales: torch.Tensor,
    shape: Sequence[int] | None = None,
    phase: int = 0,
) -> torch.Tensor:
    """What they stand for, in float32, of that shape or that of :func:`value_shape`. ``phase``: how
    many elements of a block are before each row, which is a part of one. TensorError where they do
    not belong together."""
    format = format_of(codes)
    if format is None:
        known = " or ".join(map(str, dtypes()))
        raise errors.TensorError(
            f"codes have dtype {codes.dtype}, expected {known}", "STEPC_DTYPE_MISMATCH"
        )
    codes = codes.detach().to(device="cpu").contiguous()
    scales = scales.detach().to(dtype=torch.float32, device="cpu").contiguous()
    if shape is None:
        shape = value_shape(codes, scales)
    if phase and codes.numel():
        rows = _rows(format, codes, scales, shape, phase)
        before = codes.new_zeros(rows)
        before[:, phase:] = codes.view(rows[0], -1)
        values = decode(before, scales.view(rows[0], -1))[:, phase:]
        return values.reshape(tuple(shape))
    values = torch.empty(tuple(shape), dtype=torch.float32, device="cpu")
    rows = _rows(format, codes, scales, values.shape)
    _codes.decode(format, rows, *(one.data_ptr() for one in (codes, scales, values)))
    return values


def phase_of(shape: Sequence[int], first: Sequence[int], scales: torch.Tensor) -> int:
    """How many elements of a block are before each row of a part of codes: ``shape`` is the
    whole's, ``first`` where the part begins in it."""
    row = scales.dim() - 1
    return first[row] * math.prod(shape[row + 1 :]) % BLOCK


def _rows(
    format: str,
    codes: torch.Tensor,
    scales: torch.Tensor,
    shape: Sequence[int],
    phase: int = 0,
) -> tuple[int, int]:
    """How many rows values of the shape have and the elements of one, with those before it: as
    many dims are before them as scales have before their last. TensorError where these are scales
    of other codes, or codes of other values."""
    before = scales.dim() - 1
    row = phase + math.prod(shape[before:])
    if before >= 0 and tuple(codes.shape) != code_shape(format, shape, before):
        raise errors.TensorError(
            f"codes of shape {tuple(codes.shape)} and format {format} are none of shape "
            f"{tuple(shape)}",
            "STEPC_SHAPE_MISMATCH",
        )
    if (
        before < 0
        or codes.shape[:before] != scales.shape[:before]
        or (codes.numel() and scales.shape[-1] != -(-row // BLOCK))
    ):
        raise errors.TensorError(
            f"codes of shape {tuple(codes.shape)} have scales of shape {tuple(scales.shape)}, not "
            f"one for each {BLOCK} elements of a row",
            "STEPC_SHAPE_MISMATCH",
        )
    return math.prod(shape[:before]), row


class RangeRows:
    """The rows that elements [begin, begin + size) of a state touch, in which its blocks lie:
    ``shape`` has them, ``elements`` are where the range lies in them, ``blocks`` its scales.
    ``whole``: of what codes stand for."""

    def __init__(self, begin: int, size: int, whole: tuple[int, ...], scales: tuple[int, ...]):
        row = math.prod(whole[len(scales) - 1 :])
        first, last = begin // row, -(-(begin + size) // row)
        ends = [at - first * row for at in (begin, begin + size)]
        # A range of floats may cut blocks.
        at, end = ends
        blocks = count_blocks(at - at % row % BLOCK, row), count_blocks(end, row)
        # Of two dims, as rows are of the whole: the last of them is one row.
        self.shape, self.scales = (last - first, row), (last - first, scales[-1])
        self.elements, self.blocks = slice(*ends), slice(*blocks)

    def _words(self, format: str) -> slice:
        """Where its codes lie in those of the rows."""
        ends, row = (self.elements.start, self.elements.stop), self.shape[1]
        per = _codes.FORMATS[format].words.per_word
        first = ends[0] - ends[0] % row % per
        return slice(count_blocks(first, row, per), count_blocks(ends[1], row, per))

    def has(self, codes: torch.Tensor, scales: torch.Tensor) -> bool:
        """Whether there are as many as the range has."""
        sizes = (own.stop - own.start for own in (self._words(format_of(codes)), self.blocks))
        return (codes.numel(), scales.numel()) == tuple(sizes)

    def encode(self, values: torch.Tensor, format: str) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.zeros(self.shape, dtype=torch.float32, device="cpu").view(-1)
        rows[self.elements] = values.detach().to(torch.float32)
        codes, scales = encode(rows.view(self.shape), format, self.scales)
        codes, scales = codes.view(-1)[self._words(format)], scales.view(-1)[self.blocks]
        return codes.clone(), scales.clone()

    def decode(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        format = format_of(codes)
        shape = code_shape(format, self.shape, 1)
        rows = torch.zeros(shape, dtype=codes.dtype, device="cpu").view(-1)
        of = torch.zeros(self.scales, dtype=torch.float32, device="cpu").view(-1)
        rows[self._words(format)], of[self.blocks] = codes, scales
        values = decode(rows.view(shape), of.view(self.scales), self.shape)
        return values.view(-1)[self.elements].clone()


def recoded(state: dict, wanted: Iterable[State], member: Member) -> dict:
    """What of a member's state is wanted otherwise: floats, as loaded ones are, become codes, codes
    floats, and those of another format the wanted ones. TensorError for codes without their
    scales."""
    changed = {}
    wanted = {one.name: one for one in wanted}
    for name, one in wanted.items():
        given, scale = state.get(name), wanted.get(name + SCALE)
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            continue
        floats = one.floats or one
        format, begin = format_of(given), _begin(member) if floats.is_full else None
        if format is not None and state.get(name + SCALE) is None:
            raise errors.TensorError(
                f"state '{name}' of {member.name} is of codes, without '{name}{SCALE}'",
                "STEPC_INVALID_ARGUMENT",
            )
        if format is not None and format != one.format:
            given, scales = in_memory(given), in_memory(state[name + SCALE])
            if begin is None or scale is None:
                given = decode(given, scales, floats.part, _phase(floats, scales, member))
            else:
                rows = RangeRows(begin, math.prod(floats.part), floats.shape, scale.shape)
                given = rows.decode(given, scales)
            changed[name] = given
        if scale is not None and given.is_floating_point() and tuple(given.shape) == floats.part:
            given = in_memory(given)
            if begin is None:
                _refuse_cut(name, scale, member)
                codes = encode(given, one.format, scale.part)
            else:
                rows = RangeRows(begin, given.numel(), floats.shape, scale.shape)
                codes = rows.encode(given, one.format)
            changed[name], changed[scale.name] = codes
    return changed


def in_whole_codes(part, items: dict) -> dict:
    """A state as loaded into a part that shares blocks with other ranks: what is to become codes
    does so as a whole, as these need the largest number of a block. A DTensor is put together,
    by all ranks; TensorError for a part of floats that cannot be."""
    made = dict(items)
    for name, whole in part.whole.items():
        scale, given = part.whole.get(name + SCALE), items.get(name)
        if (
            not whole.format
            or scale is None
            or not isinstance(given, torch.Tensor)
            or not part.shares_blocks(scale)
            or format_of(given) == whole.format
        ):
            continue
        given, scales = (_put_together(part, own, made.get(own)) for own in (name, name + SCALE))
        shape = (whole.floats or whole).shape
        own = format_of(given)
        if tuple(given.shape) != (code_shape(own, shape, scales.dim() - 1) if own else shape):
            raise _cut(name, part.name)
        values = given if own is None else decode(given, scales, shape)
        made[name], made[name + SCALE] = encode(values, whole.format, scale.shape)
    return made


def _put_together(part, name: str, state) -> torch.Tensor | None:
    if not hasattr(state, "to_local"):
        return state
    # Of what zero shares out, it is of the parameter that all of zero's ranks have.
    return getattr(part, "inner", part).full(name, in_memory(state), None)


def _cut(name: str, called: str) -> errors.TensorError:
    return errors.TensorError(
        f"state '{name}' of {called} is kept as codes, in blocks of {BLOCK} of which other ranks "
        "have parts, and this rank has a part of its floats; full_state_dict() has the whole",
        "STEPC_LAYOUT_UNSUPPORTED",
    )


def _phase(one: State, scales: torch.Tensor, member: Member) -> int:
    if not one.is_full or member.layout is None or member.layout.start is None:
        return 0
    return phase_of(member.layout.shape, member.layout.start, scales)


def _refuse_cut(name: str, scale: State, member: Member) -> None:
    """Refuses to encode a part whose blocks other ranks have parts of."""
    dim = scale.of_param[-1]
    if member.layout is None or member.layout.start is None or dim is None:
        return
    begin = member.layout.start[dim]
    end = begin + member.own.shape[dim]
    if begin * scale.inner % BLOCK or (
        end != member.layout.shape[dim] and end * scale.inner % BLOCK
    ):
        raise _cut(name, member.name)


def _begin(member: Member) -> int | None:
    """Where the elements begin that the rank has a range of, or None."""
    if member.layout is None or not member.layout.flat:
        return None
    return member.layout.begin if member.entry is None else member.elements[0]


def drop_scales(state: ParamState, names: Collection[str]) -> None:
    """Takes those out of a parameter's state whose codes have become floats; ``names`` are its
    states."""
    for name in [name for name in state if is_scale(str(name)) and name not in names]:
        state.drop_quietly(name)
