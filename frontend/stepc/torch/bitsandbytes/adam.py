# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adam and AdamW of bitsandbytes, which are one but for the default of ``weight_decay``."""

from __future__ import annotations

import torch

from ..binding.hypers import BETAS, named
from .bits import OfBits, constructor


def _numbers(betas) -> tuple:
    """Also of a text, "(0.9, 0.999)"."""
    if not isinstance(betas, str):
        return betas
    return tuple(float(beta) for beta in betas.strip().strip("()").split(","))


class Adam(OfBits, torch.optim.Optimizer):
    """Adam as in ``bitsandbytes.optim.Adam``; definition ``adamw.mlir``: the decay is decoupled,
    in bitsandbytes' Adam too.

    It comes before the update, as in bitsandbytes on the processor and with Triton; its CUDA
    kernels multiply by ``1 - lr * weight_decay`` behind it. ``state`` has ``step``, ``exp_avg``
    and ``exp_avg_sq``: float32, or float64 beside float64 parameters.

    Where ``optim_bits`` is 8 they are of 8 bits, as with ``state_dtype="q8"``, of parameters of at
    least ``min_8bit_size`` elements in rows of at least 32, whatever ranks have of them. These
    codes are not those of bitsandbytes, in which small second moments beside large ones become
    0; here none does. A gradient that is NaN makes its element NaN; bitsandbytes' CUDA kernels of
    8 bits leave it out.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the gradient and of its square; also as a text.
        eps: added to the root of the latter.
        weight_decay: decoupled, times ``lr``.
        amsgrad: must be False (bitsandbytes ignores it with states of 32 bits).
        optim_bits: of a state's elements, 8 or 32.
        args: None, or an object with ``optim_bits``, ``min_8bit_size``, ``max_unorm`` (0) and
            ``skip_zeros`` (False), in place of arguments.
        min_8bit_size: the least number of elements of a parameter whose states have 8 bits.
        is_paged: makes no difference, which is said once: states stay in memory.
        percentile_clipping: below 100 a parameter's gradient is made no longer than so many of
            its last 100 gradients were, in percent; an argument before 0.50. Not with
            ``loss_scale``, ``accumulation_steps``, ``fused_backward``, ``static_grads``,
            ``layouts`` and ``zero`` with local gradients.
        block_wise: must be True; likewise.
        features: what every class takes, see :class:`stepc.torch.Optimizer`; with
            ``optim_bits=8`` not ``state_dtype``.

    Raises ValueError for values out of range, NotImplementedError for another ``optim_bits``.
    """

    _zoo_name = "adamw"
    _hypers = named("lr", "eps", "weight_decay", **BETAS)
    _options = {"amsgrad": lambda group: False, "maximize": lambda group: False}
    _of_theirs = {"state1": "exp_avg", "state2": "exp_avg_sq"}

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        optim_bits: int = 32,
        args=None,
        min_8bit_size: int = 4096,
        is_paged: bool = False,
        *,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        **features,
    ) -> None:
        betas = _numbers(betas)
        self._begin_bits(Adam, locals())


class Adam8bit(Adam):
    """:class:`Adam` with states of 8 bits; ``optim_bits`` must be 32, as in bitsandbytes."""

    _bits = 8


class Adam32bit(Adam):
    """:class:`Adam` with states of 32 bits; ``optim_bits`` must be 32."""

    _bits = 32


class PagedAdam(Adam):
    """:class:`Adam`; states stay in memory."""

    _paged = True


class PagedAdam8bit(PagedAdam):
    """:class:`Adam8bit`; states stay in memory."""

    _bits = 8


class PagedAdam32bit(PagedAdam):
    """:class:`Adam32bit`; states stay in memory."""

    _bits = 32


class AdamW(Adam):
    """:class:`Adam` with another default of ``weight_decay``; all else is as there."""

    __init__ = constructor(Adam, weight_decay=1e-2)


class AdamW8bit(AdamW):
    """:class:`AdamW` with states of 8 bits; ``optim_bits`` must be 32, as in bitsandbytes."""

    _bits = 8


class AdamW32bit(AdamW):
    """:class:`AdamW` with states of 32 bits; ``optim_bits`` must be 32."""

    _bits = 32


class PagedAdamW(AdamW):
    """:class:`AdamW`, without the argument ``is_paged``; states stay in memory."""

    _paged = True

    __init__ = constructor(AdamW, without=("is_paged",))


class PagedAdamW8bit(PagedAdamW):
    """:class:`AdamW8bit`, without the argument ``is_paged``; states stay in memory."""

    _bits = 8


class PagedAdamW32bit(PagedAdamW):
    """:class:`AdamW32bit`, without the argument ``is_paged``; states stay in memory."""

    _bits = 32
