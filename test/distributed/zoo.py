# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that cases run: elementwise ones, and ones with statistics."""

import stepc.torch as st
from samples import sample

ELEMENTWISE = {
    "AdamW": lambda params, **k: st.AdamW(params, lr=1e-2, **k),
    "SGD": lambda params, **k: st.SGD(params, lr=1e-2, momentum=0.9, nesterov=True, **k),
    "Lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "SophiaG": lambda params, **k: st.SophiaG(params, lr=1e-2, rho=1e-3, **k),
    # States of one element, for the user alone, and made of hyper-parameters.
    "NAdam": lambda params, **k: st.NAdam(params, lr=1e-2, weight_decay=0.1, **k),
    "ASGD": lambda params, **k: st.ASGD(params, lr=1e-2, lambd=0.1, t0=2, **k),
    "Adagrad": lambda params, **k: st.Adagrad(params, initial_accumulator_value=0.1, **k),
    "Rprop": lambda params, **k: st.Rprop(params, **k),
}
STATISTICS = {
    "hf.Adafactor": lambda params, **k: st.hf.Adafactor(
        params, lr=1e-2, relative_step=False, scale_parameter=True, **k
    ),
    "Adafactor": lambda params, **k: st.Adafactor(params, lr=1e-2, **k),
    "CAME": lambda params, **k: st.came.CAME(params, lr=1e-2, **k),
    "FusedLamb": lambda params, **k: st.deepspeed.FusedLamb(params, lr=1e-2, **k),
    "FusedAdam": lambda params, **k: st.deepspeed.FusedAdam(params, lr=1e-2, **k),
    "LARS": lambda params, **k: st.LARS(params, lr=1e-2, **k),
    "SM3": lambda params, **k: st.SM3(params, lr=1e-2, momentum=0.9, **k),
    "AdamW, clipped": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByNorm(0.5), loss_scale=st.DynamicLossScale(2.0), **k
    ),
    "AdamW, inf norm": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByNorm(0.5, float("inf")), **k
    ),
}
ALL = ELEMENTWISE | STATISTICS
# Some that step a parameter as its gradient comes, and need nothing else.
OF_EACH_GRADIENT = {
    "AdamW": lambda params, **k: st.AdamW(params, lr=1e-2, **k),
    "SGD": lambda params, **k: st.SGD(params, lr=1e-2, momentum=0.9, **k),
    "Lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "clipped by value": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByValue(1e-3), loss_scale=4.0, **k
    ),
}


def some(test):
    """A third of them, by name; another third in another test, all with STEPC_BREADTH=1."""
    return {name: ALL[name] for name in sample(ALL, test, 3)}
