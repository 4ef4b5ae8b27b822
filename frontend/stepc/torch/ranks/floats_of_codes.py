# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of a rank's parts that are loaded as codes where floats are kept."""

from __future__ import annotations

import math

import torch

from ... import errors
from ..._describe import BLOCK, SCALE
from ..binding.codes import RangeRows, code_shape, decode, format_of, phase_of
from ..binding.rules import WholeState
from ..tensors.stored import in_memory
from .saved_codes import decode_state
from .state_parts import StatePart, offsets_of, state_sizes


def in_kept_floats(part, items: dict) -> dict:
    """A resolved part's states with floats in place of codes that only an optimizer of another
    least size keeps: ``load_state_dict`` knows formats, and not yet what a whole's size is."""
    made = dict(items)
    for name, whole in part.whole.items():
        codes, scales = items.get(name), items.get(name + SCALE)
        if (
            not whole.format
            and isinstance(codes, torch.Tensor)
            and isinstance(scales, torch.Tensor)
            and format_of(codes) is not None
        ):
            made[name] = _decoded(part, name, whole, in_memory(codes), in_memory(scales))
            del made[name + SCALE]
    return made


def _decoded(part, name: str, whole: WholeState, codes, scales) -> torch.Tensor:
    """Of codes of the whole, or of what the rank has of them, the same of floats."""
    if hasattr(codes, "to_local"):
        if not hasattr(scales, "to_local") and not isinstance(scales, StatePart):
            # Ranks have parts of its blocks: no placement says which.
            scales = StatePart.of(scales, (), "", None)
        return decode_state(codes, scales, whole.shape)
    codes, scales = (s.plain() if isinstance(s, StatePart) else s for s in (codes, scales))
    shape, format = _seen_shape(part, name, whole), format_of(codes)
    row = scales.dim() - 1  # of the whole
    if row >= 0:
        of_codes = code_shape(format, shape, row)
        of_scales = (*shape[:row], -(-math.prod(shape[row:]) // BLOCK))
        if tuple(scales.shape) == of_scales and codes.numel() == math.prod(of_codes):
            return decode(codes.reshape(of_codes), scales, shape).view(whole.shape)
    inner = getattr(part, "inner", part)
    if inner is not part and not part.by_rows:
        return _decoded_range(part, name, shape, codes, scales)
    first, sizes = part.box
    if first is None:
        return decode(codes, scales, whole.shape)
    phase = phase_of(whole.shape, offsets_of(whole, first), scales)
    return decode(codes, scales, state_sizes(whole, first, sizes), phase)


def _seen_shape(part, name: str, whole: WholeState) -> tuple[int, ...]:
    """Of a whole state, as its rows lie: a view's where the parameter has one."""
    seen, shape = getattr(part, "inner", part).seen, part.whole_shape
    if seen is None or shape is None or not whole.is_full(len(shape)):
        return whole.shape
    return seen.states_of(seen.shape(shape))[name].shape


def _decoded_range(part, name: str, shape, codes, scales) -> torch.Tensor:
    """Of those of the elements that zero gives the rank."""
    row = _first_of_row(shape)
    of_scales = (*shape[:row], -(-math.prod(shape[row:]) // BLOCK))
    rows = RangeRows(part.begin, part.end - part.begin, shape, of_scales)
    if not rows.has(codes, scales):
        raise errors.TensorError(
            f"state '{name}' of {part.name} has {codes.numel()} elements of codes and "
            f"{scales.numel()} scales, which are none of {part.place}",
            "STEPC_SHAPE_MISMATCH",
        )
    return rows.decode(codes.view(-1), scales.view(-1))


def _first_of_row(shape: tuple[int, ...]) -> int:
    """The first of the last dims that are a row (docs/states.md): getRowDim of the runtime."""
    dim = len(shape) - 1
    while dim > 1 and math.prod(shape[dim:]) < BLOCK:
        dim -= 1
    return dim
