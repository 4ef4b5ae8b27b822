# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of any size that cut blocks of codes where equal shares of the tensor would not."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from ... import errors
from ..._describe import BLOCK, SCALE, is_scale, shares_cut_blocks


class Shares(NamedTuple):
    """How large the parts along a dim are that ranks have of it, over axes of ``sizes``."""

    dim: int
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    extents: tuple[int, ...]


def refuse_cut_blocks(parts: list, owned: list) -> None:
    """TensorError, on all ranks of a tensor alike, where one of them cuts a block and equal shares
    would not: only where these do it, ranks exchange such blocks. Of what an owner steps, whole,
    parts may cut them anywhere. ``parts``: resolved."""
    by_owners = {id(part.inner) for part in owned}
    for part in parts:
        own = getattr(part, "inner", part)
        if id(part) not in by_owners and getattr(own, "shares", ()):
            _refuse(own)


def _refuse(part) -> None:
    scales = [(name, own) for name, own in part.whole.items() if is_scale(name)]
    for (name, own), shares in itertools.product(scales, part.shares):
        dim, extent = shares.dim, part.shape[shares.dim]
        if own.of_param[-1] != dim or shares_cut_blocks(extent, shares.sizes, own.inner):
            continue
        ends = list(itertools.accumulate(shares.extents, initial=0))
        for rank, begin, end in zip(shares.ranks, ends, ends[1:], strict=False):
            inside = (at for at in (begin, end) if at != extent and at * own.inner % BLOCK)
            if begin != end and any(inside):
                raise errors.TensorError(
                    f"state '{name.removesuffix(SCALE)}' of {part.name} is kept as codes, in "
                    f"blocks of {BLOCK} elements, and rank {rank} has [{begin}, {end}) of {extent} "
                    f"in dim {dim}, which cuts a block where equal shares do not; parts have to be "
                    "of whole blocks, or the state has to stay float32 (state_dtype)",
                    "STEPC_LAYOUT_UNSUPPORTED",
                )
