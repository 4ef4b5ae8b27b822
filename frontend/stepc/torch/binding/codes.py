# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes: two tensors of a parameter's state, the codes under the state's
name and their scales under that with ``.scale``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import torch

from ... import _codes, errors
from ..._describe import BLOCK, SCALE, State, count_blocks, is_scale
from ..tensors import dlpack as _tensors
from ..tensors.members import Member
from ..tensors.stored import in_memory
from .state_map import ParamState

DTYPES = {name: _tensors.DTYPE[own.storage] for name, own in _codes.FORMATS.items()}
_FORMATS = {dtype: name for name, dtype in DTYPES.items()}


def format_of(codes: torch.Tensor) -> str | None:
    """The format that a tensor's dtype tells of, or None where it is none of codes."""
    return _FORMATS.get(codes.dtype)


def encode(
    values: torch.Tensor, format: str, scales: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of values, and their scales, of that shape. A part has to begin and end where
    blocks of the whole do."""
    values = values.detach().to(dtype=torch.float32, device="cpu").contiguous()
    codes = torch.empty(values.shape, dtype=DTYPES[format], device="cpu")
    of = torch.empty(scales, dtype=torch.float32, device="cpu")
    rows = _rows(codes, of)
    _codes.encode(format, rows, values.data_ptr(), codes.data_ptr(), of.data_ptr())
    return codes, of


def decode(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What they stand for, in float32. TensorError where they do not belong together."""
    format = format_of(codes)
    if format is None:
        known = " or ".join(str(dtype) for dtype in DTYPES.values())
        raise errors.TensorError(
            f"codes have dtype {codes.dtype}, expected {known}", "STEPC_DTYPE_MISMATCH"
        )
    codes = codes.detach().to(device="cpu").contiguous()
    scales = scales.detach().to(dtype=torch.float32, device="cpu").contiguous()
    values = torch.empty(codes.shape, dtype=torch.float32, device="cpu")
    addresses = (one.data_ptr() for one in (codes, scales, values))
    _codes.decode(format, _rows(codes, scales), *addresses)
    return values


def _rows(codes: torch.Tensor, scales: torch.Tensor) -> tuple[int, int]:
    """How many rows there are and the elements of one: as many dims are before them as scales
    have before their last. TensorError where these are scales of other codes."""
    before = scales.dim() - 1
    row = math.prod(codes.shape[before:])
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
    return math.prod(codes.shape[:before]), row


class RangeRows:
    """The rows that elements [begin, begin + size) of a state touch, in which its blocks lie:
    ``shape`` has them, ``elements`` are where the range lies in them, ``blocks`` its scales."""

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

    def encode(self, values: torch.Tensor, format: str) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.zeros(self.shape, dtype=torch.float32, device="cpu").view(-1)
        rows[self.elements] = values.detach().to(torch.float32)
        codes, scales = encode(rows.view(self.shape), format, self.scales)
        return codes.view(-1)[self.elements].clone(), scales.view(-1)[self.blocks].clone()

    def decode(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(self.shape, dtype=codes.dtype, device="cpu").view(-1)
        of = torch.zeros(self.scales, dtype=torch.float32, device="cpu").view(-1)
        rows[self.elements], of[self.blocks] = codes, scales
        return decode(rows.view(self.shape), of.view(self.scales)).view(-1)[self.elements].clone()


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
        format, begin = format_of(given), _begin(member) if one.is_full else None
        if format is not None and state.get(name + SCALE) is None:
            raise errors.TensorError(
                f"state '{name}' of {member.name} is of codes, without '{name}{SCALE}'",
                "STEPC_INVALID_ARGUMENT",
            )
        if format is not None and format != one.format:
            given, scales = in_memory(given), in_memory(state[name + SCALE])
            if begin is None or scale is None:
                given = decode(given, scales)
            else:
                given = RangeRows(begin, given.numel(), one.shape, scale.shape).decode(
                    given, scales
                )
            changed[name] = given
        if scale is not None and given.is_floating_point() and tuple(given.shape) == one.part:
            given = in_memory(given)
            if begin is None:
                codes = encode(given, one.format, scale.part)
            else:
                rows = RangeRows(begin, given.numel(), one.shape, scale.shape)
                codes = rows.encode(given, one.format)
            changed[name], changed[scale.name] = codes
    return changed


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
