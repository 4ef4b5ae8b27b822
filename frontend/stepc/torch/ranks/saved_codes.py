# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Saved states that are codes, as floats (docs/states.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ... import errors
from ..._describe import SCALE
from ..binding.codes import (
    RangeRows,
    code_shape,
    decode,
    format_of,
    per_word,
    phase_of,
    value_shape,
)
from ..tensors.stored import in_memory
from .state_parts import StatePart, boxes_of_range


def decode_state(
    codes: torch.Tensor, scales: torch.Tensor, shape: Sequence[int] | None = None
) -> torch.Tensor:
    """A state that ``state_dtype="q8"`` or another format keeps as codes, in float32.

    Args:
        codes: ``optimizer.state[param][name]``: the whole of it, or what a rank has, which may be
            a DTensor.
        scales: ``optimizer.state[param][name + ".scale"]``.
        shape: of the whole state, as ``param.shape``. Codes of ``"q8"`` and ``"f8_e4m3"`` have
            it. Of ``"q4"``, where it is not said, rows are taken to fill elements of eight codes,
            and to be one dim.

    Returns:
        A new tensor, a DTensor where they are one, and a rank's part
        where ``state_dict`` of one with ``zero`` has a part. A checkpoint with it
        in place of both loads into this optimizer, which makes the same codes of it, and into
        one with states of float32.
    """
    codes, scales = in_memory(codes), in_memory(scales)
    if isinstance(codes, StatePart):
        return _decoded_part(codes, scales, shape)
    if not hasattr(codes, "to_local"):
        return decode(codes, scales, shape)
    return _decoded_dtensor(codes, scales, shape)


def _rows_of(codes, scales, whole: Sequence[int], first: int, local: torch.Tensor) -> tuple:
    """The shape of what a part stands for that begins with element ``first`` of rows of codes."""
    before, per = len(scales.shape) - 1, per_word(local)
    if before + 1 < len(whole):
        return *local.shape[:before], *whole[before:]
    return *local.shape[:before], min(local.shape[-1] * per, whole[-1] - first * per)


def _decoded_dtensor(codes, scales, shape: Sequence[int] | None) -> torch.Tensor:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    is_shared = isinstance(scales, StatePart)  # ranks have parts of a block
    own, of = codes.to_local(), scales.plain() if is_shared else scales.to_local()
    _, first = compute_local_shape_and_global_offset(
        codes.shape, codes.device_mesh, codes.placements
    )
    if format_of(own) is None or per_word(own) == 1:
        whole = codes.shape
        phase = phase_of(whole, first, of) if is_shared else 0
        values = decode(own, of, phase=phase)
    else:
        whole = value_shape(codes, scales) if shape is None else tuple(shape)
        values = decode(own, of, _rows_of(codes, scales, whole, first[-1], own))
    stride = torch.empty(whole, dtype=torch.float32, device="meta").stride()
    return type(codes).from_local(
        values, codes.device_mesh, codes.placements, run_check=False, shape=torch.Size(whole),
        stride=stride,
    )  # fmt: skip


def _decoded_part(codes: StatePart, scales: StatePart, shape: Sequence[int] | None) -> StatePart:
    """Of what a rank of zero has: rows, or a range of elements, which lies in boxes."""
    own, of = codes.plain(), scales.plain()
    if per_word(own) > 1:
        return _unpacked_part(codes, scales, shape)
    if own.dim() > 1 or len(codes.whole) < 2:
        first = (0,) * own.dim() if not codes.boxes else codes.boxes[0][0]
        values = decode(own, of, phase=phase_of(codes.whole or own.shape, first, of))
    elif not own.numel():
        values = own.to(torch.float32)
    else:
        _require_known(codes)
        begin = _index(codes.boxes[0][0], codes.whole)
        values = RangeRows(begin, own.numel(), codes.whole, tuple(scales.whole)).decode(own, of)
    return StatePart.of(values, codes.whole, codes.place, codes.boxes)


def _unpacked_part(codes: StatePart, scales: StatePart, shape: Sequence[int] | None) -> StatePart:
    """The same where an element has several codes."""
    own, of = codes.plain(), scales.plain()
    _require_known(codes)
    dims, per = codes.whole[:-1], per_word(own)
    if shape is None:
        shape = (*dims, codes.whole[-1] * per)
    row, words = math.prod(shape[len(dims) :]), codes.whole[-1]
    if not own.numel():
        return StatePart.of(own.new_empty(0, dtype=torch.float32), shape, codes.place, ())
    first = _index(codes.boxes[0][0], codes.whole)
    if own.dim() > 1:
        column = codes.boxes[0][0][-1]
        values = decode(own, of, (*own.shape[:-1], *(
            shape[len(dims) :] if len(shape) > len(codes.whole)
            else (min(own.shape[-1] * per, row - column * per),))))  # fmt: skip
        at = (*codes.boxes[0][0][:-1], column * per, *(0 for _ in shape[len(codes.whole) :]))
        return StatePart.of(values, shape, codes.place, ((at, tuple(values.shape)),))
    ends = [at // words * row + min(at % words * per, row) for at in (first, first + own.numel())]
    rows = RangeRows(ends[0], ends[1] - ends[0], tuple(shape), tuple(scales.whole))
    boxes = boxes_of_range(tuple(shape), *ends)
    return StatePart.of(rows.decode(own, of), shape, codes.place, boxes)


def _require_known(codes: StatePart) -> None:
    if codes.boxes is None:
        raise errors.TensorError(
            f"where {codes.place} of codes begins is not known before the first step",
            "STEPC_INVALID_ARGUMENT",
        )


def _index(at: Sequence[int], whole: Sequence[int]) -> int:
    """Of an element in row-major order."""
    begin = 0
    for own, extent in zip(at, whole, strict=True):
        begin = begin * extent + own
    return begin


def decoded(
    state: dict,
    kept: dict[str, str],
    shapes: Callable[[], dict[str, tuple[tuple[int, ...], ...]]],
) -> dict:
    """A saved state of a parameter with floats in place of codes that are not ``kept`` in their
    format. ``shapes``: of the whole states that the parameter has, those in which their rows lie
    and those that the user has."""
    made, found = dict(state), None
    names = [n for n in state if f"{n}{SCALE}" in state and isinstance(state[n], torch.Tensor)]
    for name in [n for n in names if n not in kept or format_of(state[n]) != kept[n]]:
        codes, scales = made[name], made.pop(f"{name}{SCALE}")
        row = len(scales.shape) - 1
        lies_so = codes.shape[:row] == scales.shape[:row]
        if format_of(codes) is None or (lies_so and per_word(codes) == 1):
            made[name] = decode_state(codes, scales)
        else:
            found = shapes() if found is None else found
            made[name] = _decoded_as(codes, scales, *found.get(name, ((), ())))
    return made


def _decoded_as(
    codes: torch.Tensor, scales: torch.Tensor, seen: tuple[int, ...], own: tuple[int, ...]
) -> torch.Tensor:
    """Floats of the user's shape, where codes are of the whole whose rows are those of ``seen``."""
    is_plain = not isinstance(codes, StatePart) and not hasattr(codes, "to_local")
    if is_plain and seen != own and scales.dim() > 0:
        of_codes = code_shape(format_of(codes), seen, scales.dim() - 1)
        if codes.numel() == math.prod(of_codes):
            whole, of = in_memory(codes).reshape(of_codes), in_memory(scales)
            return decode_state(whole, of, seen).view(own)
    # That of a part, where layouts= say which it is, is not the whole's.
    shape = value_shape(codes, scales, seen) if per_word(codes) > 1 else None
    return decode_state(codes, scales, shape)
