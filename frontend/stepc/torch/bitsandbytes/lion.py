# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lion of bitsandbytes."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS, named
from .bits import OfBits, constructor


class Lion(OfBits, torch.optim.Optimizer):
    """Lion as in ``bitsandbytes.optim.Lion``; definition ``lion.mlir``.

    ``state`` has ``exp_avg``: float32, or float64 beside float64 parameters; of 8 bits where
    ``optim_bits`` is 8, of parameters of at least ``min_8bit_size`` elements.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: weight of the momentum in the update, and its decay.
        weight_decay: decoupled, times ``lr``, before the update (before 0.50 states of 32 bits
            had it in the gradient).
        optim_bits, args, min_8bit_size, is_paged, percentile_clipping, block_wise: see
            :class:`stepc.torch.bitsandbytes.Adam`.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, NotImplementedError for another ``optim_bits``.
    """

    _zoo_name = "lion"
    _hypers = named("lr", "weight_decay", **BETAS)
    _options = {"maximize": lambda group: False}
    _keeps_step = False
    _of_theirs = {"state1": "exp_avg"}

    def __init__(
        self,
        params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        optim_bits: int = 32,
        args=None,
        min_8bit_size: int = 4096,
        is_paged: bool = False,
        *,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        **features,
    ) -> None:
        self._begin_bits(Lion, locals(), eps=0.0)


class Lion8bit(Lion):
    """:class:`Lion` with states of 8 bits, without the argument ``optim_bits``."""

    _bits = 8

    __init__ = constructor(Lion, without=("optim_bits",))


class Lion32bit(Lion8bit):
    """:class:`Lion` with states of 32 bits, without the argument ``optim_bits``."""

    _bits = 32


class PagedLion(Lion):
    """:class:`Lion`, without the argument ``is_paged``; states stay in memory."""

    _paged = True

    __init__ = constructor(Lion, without=("is_paged",))


class PagedLion8bit(PagedLion):
    """:class:`Lion8bit`, without the argument ``is_paged``; states stay in memory."""

    _bits = 8

    __init__ = constructor(PagedLion, without=("optim_bits",))


class PagedLion32bit(PagedLion8bit):
    """:class:`Lion32bit`, without the argument ``is_paged``; states stay in memory."""

    _bits = 32
