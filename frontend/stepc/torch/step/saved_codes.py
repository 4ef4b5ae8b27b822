# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Saved states that are codes, as floats (docs/states.md)."""

from __future__ import annotations

import torch

from ... import errors
from ..._describe import SCALE
from ..binding.codes import RangeRows, decode, format_of
from ..ranks.state_parts import StatePart
from ..tensors.stored import in_memory


def decode_state(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """A state that ``state_dtype="q8"`` or another format keeps as codes, in float32.

    Args:
        codes: ``optimizer.state[param][name]``, of the state's shape: the whole
            of it, or what a rank has, which may be a DTensor.
        scales: ``optimizer.state[param][name + ".scale"]``.

    Returns:
        A new tensor of the shape of ``codes``, a DTensor where they are one, and a rank's part
        where ``state_dict`` of one with ``zero`` has a part. A checkpoint with it
        in place of both loads into this optimizer, which makes the same codes of it, and into
        one with states of float32.
    """
    codes, scales = in_memory(codes), in_memory(scales)
    if isinstance(codes, StatePart):
        return _decoded_part(codes, scales)
    if not hasattr(codes, "to_local"):
        return decode(codes, scales)
    values = decode(codes.to_local(), scales.to_local())
    return type(codes).from_local(
        values, codes.device_mesh, codes.placements, run_check=False, shape=codes.shape,
        stride=codes.stride(),
    )  # fmt: skip


def _decoded_part(codes: StatePart, scales: StatePart) -> StatePart:
    """Of what a rank of zero has: rows, or a range of elements, which lies in boxes."""
    own, of = codes.plain(), scales.plain()
    if own.dim() > 1 or len(codes.whole) < 2:
        values = decode(own, of)
    elif not own.numel():
        values = own.to(torch.float32)
    else:
        if codes.boxes is None:
            raise errors.TensorError(
                f"where {codes.place} of codes begins is not known before the first step",
                "STEPC_INVALID_ARGUMENT",
            )
        begin = 0
        for at, extent in zip(codes.boxes[0][0], codes.whole, strict=True):
            begin = begin * extent + at
        values = RangeRows(begin, own.numel(), codes.whole, tuple(scales.whole)).decode(own, of)
    return StatePart.of(values, codes.whole, codes.place, codes.boxes)


def decoded(state: dict, kept: dict[str, str]) -> dict:
    """A saved state of a parameter with floats in place of codes that are not ``kept`` in their
    format."""
    made = dict(state)
    names = [n for n in state if f"{n}{SCALE}" in state and isinstance(state[n], torch.Tensor)]
    for name in [n for n in names if n not in kept or format_of(state[n]) != kept[n]]:
        made[name] = decode_state(made[name], made.pop(f"{name}{SCALE}"))
    return made
