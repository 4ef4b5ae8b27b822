# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SGD, RMSprop and Adagrad of bitsandbytes, whose decay is in the gradient."""

from __future__ import annotations

import torch

from ..binding.hypers import Part, named
from .bits import OF_BITS, OfBits, constructor


class SGD(OfBits, torch.optim.Optimizer):
    """SGD with momentum as in ``bitsandbytes.optim.SGD``; definition ``sgd.mlir``.

    ``state`` has ``momentum_buffer``: float32, or float64 beside float64 parameters; of 8 bits
    where ``optim_bits`` is 8, of parameters of at least ``min_8bit_size`` elements. Groups have
    the momentum as the first of ``betas``, as in bitsandbytes.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        momentum: decay of the momentum, more than 0 and less than 1.
        dampening: must be 0; bitsandbytes ignores it.
        weight_decay: added to the gradient, times the parameter.
        nesterov: must be False; bitsandbytes ignores it.
        optim_bits, args, min_8bit_size, percentile_clipping, block_wise: see
            :class:`stepc.torch.bitsandbytes.Adam`.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, NotImplementedError for a momentum of 0 and for
    another ``optim_bits``.
    """

    _zoo_name = "sgd"
    _hypers = named("lr", "weight_decay", momentum=Part("betas", 0), dampening=lambda group: 0.0)
    _options = {"nesterov": lambda group: False, "maximize": lambda group: False}
    _keeps_step = False
    _of_theirs = {"state1": "momentum_buffer"}
    _not_keys = (*OfBits._not_keys, "momentum")
    _only = {
        "dampening": (0, "bitsandbytes ignores it, stepc.torch.SGD has it"),
        "nesterov": (False, "bitsandbytes ignores it, stepc.torch.SGD has it"),
        **OF_BITS,
    }

    def __init__(
        self,
        params,
        lr: float,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        optim_bits: int = 32,
        args=None,
        min_8bit_size: int = 4096,
        *,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        **features,
    ) -> None:
        if momentum == 0:
            raise NotImplementedError("SGD without momentum is not supported!")
        self._begin_bits(SGD, locals(), betas=(momentum, 0), eps=0.0)


class SGD8bit(SGD):
    """:class:`SGD` with states of 8 bits, without the argument ``optim_bits``."""

    _bits = 8

    __init__ = constructor(SGD, without=("optim_bits",))


class SGD32bit(SGD8bit):
    """:class:`SGD` with states of 32 bits, without the argument ``optim_bits``."""

    _bits = 32


class RMSprop(OfBits, torch.optim.Optimizer):
    """RMSprop as in ``bitsandbytes.optim.RMSprop``; definition ``rmsprop.mlir``.

    ``state`` has ``step`` and ``square_avg``: float32, or float64 beside float64 parameters; of 8
    bits where ``optim_bits`` is 8, of parameters of at least ``min_8bit_size`` elements. Groups
    have ``alpha`` as the first of ``betas``, as in bitsandbytes. With states of 8 bits its CUDA
    kernels leave the decay out of the update and have it in the average alone; here it is in
    both, as everywhere else.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        alpha: decay of the average of the gradient's square, more than 0.
        eps: added to its root.
        weight_decay: added to the gradient, times the parameter.
        momentum: must be 0; bitsandbytes ignores it.
        centered: must be False.
        optim_bits, args, min_8bit_size, percentile_clipping, block_wise: see
            :class:`stepc.torch.bitsandbytes.Adam`.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, NotImplementedError for an ``alpha`` of 0, for
    ``centered`` and for another ``optim_bits``.
    """

    _zoo_name = "rmsprop"
    _hypers = named("lr", "eps", "weight_decay", alpha=Part("betas", 0), momentum=lambda group: 0.0)
    _options = {"centered": lambda group: False, "maximize": lambda group: False}
    _of_theirs = {"state1": "square_avg"}
    _not_keys = (*OfBits._not_keys, "alpha", "centered")
    _only = {
        "momentum": (0, "bitsandbytes ignores it, stepc.torch.RMSprop has it"),
        **OF_BITS,
    }

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        optim_bits: int = 32,
        args=None,
        min_8bit_size: int = 4096,
        *,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        **features,
    ) -> None:
        if alpha == 0:
            raise NotImplementedError("RMSprop with alpha==0.0 is not supported!")
        if centered:
            raise NotImplementedError("Centered RMSprop is not supported!")
        self._begin_bits(RMSprop, locals(), betas=(alpha, 0))


class RMSprop8bit(RMSprop):
    """:class:`RMSprop` with states of 8 bits, without the argument ``optim_bits``."""

    _bits = 8

    __init__ = constructor(RMSprop, without=("optim_bits",))


class RMSprop32bit(RMSprop8bit):
    """:class:`RMSprop` with states of 32 bits, without the argument ``optim_bits``."""

    _bits = 32


class Adagrad(OfBits, torch.optim.Optimizer):
    """Adagrad as in ``bitsandbytes.optim.Adagrad``; definition ``adagrad.mlir``.

    ``state`` has ``step`` and ``sum``: float32, or float64 beside float64 parameters; of 8 bits
    where ``optim_bits`` is 8, of parameters of at least ``min_8bit_size`` elements. Of the decay
    see :class:`RMSprop`.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        lr_decay: must be 0.
        weight_decay: added to the gradient, times the parameter.
        initial_accumulator_value: must be 0.
        eps: added to the root of the sum of squares.
        optim_bits, args, min_8bit_size, percentile_clipping, block_wise: see
            :class:`stepc.torch.bitsandbytes.Adam`.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError, in the words of bitsandbytes, for values out of range,
    NotImplementedError for another ``optim_bits``.
    """

    _zoo_name = "adagrad"
    _hypers = named(
        "lr", "eps", "weight_decay",
        lr_decay=lambda group: 0.0, initial_accumulator_value=lambda group: 0.0,
    )  # fmt: skip
    _options = {"maximize": lambda group: False}
    _of_theirs = {"state1": "sum"}
    _not_keys = (*OfBits._not_keys, "lr_decay", "initial_accumulator_value")

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        optim_bits: int = 32,
        args=None,
        min_8bit_size: int = 4096,
        *,
        percentile_clipping: int = 100,
        block_wise: bool = True,
        **features,
    ) -> None:
        if initial_accumulator_value != 0.0:
            raise ValueError("Initial accumulator value != 0.0 not supported!")
        if lr_decay != 0.0:
            raise ValueError("Lr Decay != 0.0 not supported!")
        self._begin_bits(Adagrad, locals(), betas=(0.0, 0.0))


class Adagrad8bit(Adagrad):
    """:class:`Adagrad` with states of 8 bits; ``optim_bits`` must be 8, as in bitsandbytes."""

    _bits = 8
    _named_bits = 8

    __init__ = constructor(Adagrad, optim_bits=8)


class Adagrad32bit(Adagrad):
    """:class:`Adagrad` with states of 32 bits; ``optim_bits`` must be 32."""

    _bits = 32
