# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that the kit runs, what it compares them with, and what they must move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import stepc.torch as st
import torch
from stepc.definition import _zoo_text

BF16 = torch.bfloat16
# Of parameters and gradients, and whether there is a float32 master behind them.
STORAGES = {"f32": (torch.float32, None), "bf16": (BF16, None), "bf16+f32": (BF16, "f32")}
REMAINDER = {"bf16+i16": (BF16, "remainder")}  # the exact master in 4 bytes
ALL_STORAGES = STORAGES | REMAINDER


@dataclass(frozen=True)
class Case:
    """An optimizer: ``make(params, **keywords)``; the same of torch, if it has it; the
    number of its states that are as large as the parameter; whether these are codes, or
    vectors of a basis, which nothing in float64 is near; and whether it takes matrices alone."""

    make: Callable
    states: int
    reference: Callable | None = None
    coded: bool = False
    matrices: bool = False

    def keywords(self, storage: str) -> dict:
        master = ALL_STORAGES[storage][1]
        return {} if master is None else {"master": master}

    def least_bytes(self, storage: str) -> int:
        """Of an element, in the fewest passes: the gradient is read; all else is read and
        written, but for a parameter that is written only, from its master."""
        dtype, master = ALL_STORAGES[storage]
        size = dtype.itemsize
        parameter = {None: 2 * size, "f32": size + 8, "remainder": 2 * size + 4}[master]
        return size + parameter + 8 * self.states


def _of(ours: Callable, states: int, theirs: Callable | None = None, **options) -> Case:
    def make(params, **keywords):
        return ours(params, **options, **keywords)

    reference = theirs and (lambda params, **keywords: theirs(params, **options, **keywords))
    return Case(make, states, reference)


def _coded(ours: Callable, states: int, state_dtype: str, **options) -> Case:
    def make(params, **keywords):
        return ours(params, state_dtype=state_dtype, **options, **keywords)

    return Case(make, states, coded=True)


def _of_matrices(ours: Callable, states: int, **options) -> Case:
    def make(params, **keywords):
        return ours(params, **options, **keywords)

    return Case(make, states, coded=True, matrices=True)


def _of_zoo(name: str, states: int) -> Case:
    definition, _ = _zoo_text(name)
    return Case(lambda params, **keywords: st.Optimizer(params, definition, **keywords), states)


def _galore(params, **options):
    group = {"params": list(params), "rank": 8, "update_proj_gap": 2, "scale": 1.0}
    return st.GaLoreAdamW([group], **options)


_optim = torch.optim
CASES = {
    "AdamW": _of(st.AdamW, 2, _optim.AdamW, lr=1e-3, weight_decay=0.1),
    "Adam": _of(st.Adam, 3, _optim.Adam, lr=1e-3, amsgrad=True),
    "SGD": _of(st.SGD, 1, _optim.SGD, lr=1e-2, momentum=0.9, nesterov=True),
    "NAdam": _of(st.NAdam, 2, _optim.NAdam, lr=1e-3),
    "RAdam": _of(st.RAdam, 2, _optim.RAdam, lr=1e-3),
    "Adamax": _of(st.Adamax, 2, _optim.Adamax, lr=1e-3),
    "Adagrad": _of(st.Adagrad, 1, _optim.Adagrad, lr=1e-2),
    "Adadelta": _of(st.Adadelta, 2, _optim.Adadelta),
    "RMSprop": _of(st.RMSprop, 3, _optim.RMSprop, lr=1e-3, momentum=0.9, centered=True),
    "Rprop": _of(st.Rprop, 2, _optim.Rprop, lr=1e-3),
    "ASGD": _of(st.ASGD, 1, _optim.ASGD, lr=1e-2),
    "Adafactor": _of(st.Adafactor, 0, _optim.Adafactor, lr=1e-2),
    "hf.Adafactor": _of(st.hf.Adafactor, 0),
    "CAME": _of(st.came.CAME, 1, lr=1e-3),
    "LAMB": _of(st.deepspeed.FusedLamb, 2, lr=1e-3),
    "LARS": _of(st.LARS, 1, lr=1e-2),
    "Lion": _of(st.Lion, 1, lr=1e-4),
    "FusedAdam": _of(st.deepspeed.FusedAdam, 2, _optim.AdamW, lr=1e-3, weight_decay=0.0),
    "CPUAdam": _of(st.deepspeed.DeepSpeedCPUAdam, 2, _optim.AdamW, lr=1e-3, weight_decay=0.0),
    "FusedLAMB": _of(st.apex.FusedLAMB, 2, lr=1e-3, max_grad_norm=1.0),
    # Products of matrices, and decompositions, which the host does.
    "Muon": _of_matrices(st.Muon, 1, lr=1e-2),
    "SOAP": _of_matrices(st.SOAP, 2, lr=1e-3, precondition_frequency=2),
    "Shampoo": _of_matrices(st.Shampoo, 1, lr=1e-2),
    "GaLoreAdamW": _of_matrices(_galore, 2, lr=1e-2),
    "Dion": _of_matrices(st.Dion, 1, lr=1e-2, rank=8),
    # Of the zoo, without a class of their own.
    "lamb": _of_zoo("lamb", 2),
    "adalomo": _of_zoo("adalomo", 0),
    "lomo": _of_zoo("lomo", 0),
    "dadapt_adam": _of_zoo("dadapt_adam", 3),
    "dadapt_sgd": _of_zoo("dadapt_sgd", 2),
    # Five sums in the place of one.
    "LAMB, reproducible": _of(st.deepspeed.FusedLamb, 2, lr=1e-3, reproducible=True),
    "hf.Adafactor, reproducible": _of(st.hf.Adafactor, 0, reproducible=True),
    # States as codes of 8 bits: by elements, and whole tensors.
    "AdamW, q8": _coded(st.AdamW, 2, "q8", lr=1e-3, weight_decay=0.1),
    "AdamW, f8_e4m3": _coded(st.AdamW, 2, "f8_e4m3", lr=1e-3, weight_decay=0.1),
    "AdamW, q4": _coded(st.AdamW, 2, "q4", lr=1e-3, weight_decay=0.1),
    "LAMB, q8": _coded(st.deepspeed.FusedLamb, 2, "q8", lr=1e-3),
    "AdamW, norm clipped": Case(
        lambda params, **keywords: st.AdamW(
            params,
            lr=1e-3,
            clip=st.ClipByNorm(1.0),
            loss_scale=st.DynamicLossScale(2.0),
            **keywords,
        ),
        2,
    ),
}
# Which are timed, beside torch's: fused, for each tensor, and compiled.
TIMED = {
    "AdamW": _optim.AdamW,
    "SGD": _optim.SGD,
    "hf.Adafactor": None,
    "CAME": None,
    "LAMB": None,
    "AdamW, norm clipped": None,
}
PEERS = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}}
