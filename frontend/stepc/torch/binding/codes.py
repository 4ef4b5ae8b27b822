# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that are kept as codes: two tensors of a parameter's state, the codes under the state's
name and their scales under that with ``.scale``."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ... import _codes, errors
from ..._describe import SCALE, State


def encode(values: torch.Tensor, scales: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of values, and their scales, of that shape. A part has to begin and end where
    blocks of the whole do."""
    values = values.detach().to(dtype=torch.float32, device="cpu").contiguous()
    codes = torch.empty(values.shape, dtype=torch.uint8, device="cpu")
    of = torch.empty(scales, dtype=torch.float32, device="cpu")
    _codes.encode(values.shape, values.data_ptr(), codes.data_ptr(), of.data_ptr())
    return codes, of


def decode(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What they stand for, in float32."""
    codes = codes.detach().to(device="cpu").contiguous()
    scales = scales.detach().to(dtype=torch.float32, device="cpu").contiguous()
    values = torch.empty(codes.shape, dtype=torch.float32, device="cpu")
    _codes.decode(codes.shape, codes.data_ptr(), scales.data_ptr(), values.data_ptr())
    return values


def recoded(state: dict, wanted: Iterable[State], name: str) -> dict:
    """What of a parameter's state is wanted otherwise: floats, as loaded ones are, become codes,
    and codes floats. TensorError for codes without their scales; ``name``: of the parameter."""
    changed = {}
    wanted = {one.name: one for one in wanted}
    for own, one in wanted.items():
        given = state.get(own)
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            continue
        is_coded = given.dtype is torch.uint8
        if one.storage == "u8" and not is_coded and given.shape == one.part:
            codes = encode(given, wanted[own + SCALE].part)
            changed[own], changed[own + SCALE] = codes
        elif is_coded and own + SCALE not in state:
            raise errors.TensorError(
                f"state '{own}' of {name} is of codes, without '{own}{SCALE}'",
                "STEPC_INVALID_ARGUMENT",
            )
        elif is_coded and one.storage != "u8":
            changed[own] = decode(given, state[own + SCALE])
    return changed
