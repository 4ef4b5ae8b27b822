# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each row of works.py, on four ranks: every optimizer of the table under the layout, against
the same steps of the whole in one process, or refused as the row says.

Three steps with other learning rates, of one micro-batch, of two, and of two of which the
gradients of the first are left out of the reduction.
"""

import contextlib
import itertools

import stepc.torch as st
import torch
import works_layouts as layouts
import works_libraries as libraries
import works_ways as ways
from named_values import named_values
from on_ranks import case, main
from stepc import errors
from works import OPTIMIZERS, ROWS
from zoo import ALL

PASSES = (1, 2, 2)
MAKES = {
    "AdamW": ALL["AdamW"],
    "Adafactor": ALL["hf.Adafactor"],
    "CAME": ALL["CAME"],
    "Lamb": lambda params, **k: st.colossal.Lamb(params, lr=1e-2, weight_decay=0.1, **k),
}


def train(kind, make, what):
    made, grads = named_values(ways.SHAPES, 4, sum(PASSES))
    plain = {name: torch.nn.Parameter(value.clone()) for name, value in made.items()}
    reference, way = make(list(plain.items())), kind(make, made)
    passes = iter(grads)
    for step, number in enumerate(PASSES):
        for group in (*reference.param_groups, *way.optimizer.param_groups):
            group["lr"] *= 0.5
        way.zero_grad()
        own = list(itertools.islice(passes, number))
        for place, of_pass in enumerate(own, 1):
            synced = step < 2 or place == number
            with contextlib.nullcontext() if synced else way.without_sync():
                way.backward(of_pass)
        for name, param in plain.items():
            param.grad = sum(way.mean(name, of_pass) for of_pass in own)
        reference.step()
        way.step()
        way.same_as(plain, f"{what}, step {step}")


def check(key, kind):
    row = ROWS[key]
    assert set(MAKES) == set(OPTIMIZERS)
    assert bool(row.no_sync) == (kind.without_sync is not ways.Way.without_sync), key
    for name in OPTIMIZERS:
        if name not in row.refused:
            train(kind, MAKES[name], f"{row.name}, {name}")
            continue
        try:
            train(kind, MAKES[name], f"{row.name}, {name}")
        except errors.TensorError as error:
            assert row.refused[name] in str(error), error
        else:
            raise AssertionError(f"{row.name}, {name}: it was not refused")


@case
def ddp():
    check("ddp", ways.Ddp)


@case
def zero1_over_ddp():
    check("zero1_over_ddp", ways.Zero1OverDdp)


@case
def zero1():
    check("zero1", ways.Zero1)


@case
def zero2():
    check("zero2", ways.Zero2)


@case
def fsdp2():
    check("fsdp2", ways.Fsdp2)


@case
def fsdp2_of_the_last_dim():
    check("fsdp2_of_the_last_dim", ways.Fsdp2OfTheLastDim)


@case
def hsdp():
    check("hsdp", ways.Hsdp)


@case
def tp_of_dim_0():
    check("tp_of_dim_0", ways.TpOfDim0)


@case
def tp_of_dim_1():
    check("tp_of_dim_1", ways.TpOfDim1)


@case
def tp_of_plain_parts():
    check("tp_of_plain_parts", layouts.TpOfPlainParts)


@case
def tp_with_fsdp2():
    check("tp_with_fsdp2", ways.TpWithFsdp2)


@case
def tp_with_zero1():
    check("tp_with_zero1", ways.TpWithZero1)


@case
def tp_with_zero2():
    check("tp_with_zero2", ways.TpWithZero2)


@case
def pp():
    check("pp", layouts.Pp)


@case
def pp_with_tp():
    check("pp_with_tp", layouts.PpWithTp)


@case
def pp_with_zero1():
    check("pp_with_zero1", layouts.PpWithZero1)


@case
def pp_with_zero2():
    check("pp_with_zero2", layouts.PpWithZero2)


@case
def ep():
    check("ep", layouts.Ep)


@case
def ep_with_zero1():
    check("ep_with_zero1", layouts.EpWithZero1)


@case
def ep_with_zero2():
    check("ep_with_zero2", layouts.EpWithZero2)


@case
def colossal_zero():
    check("colossal_zero", libraries.ColossalZero)


@case
def colossal_tp_with_zero():
    check("colossal_tp_with_zero", libraries.ColossalTpWithZero)


@case
def deepspeed_flat():
    check("deepspeed_flat", libraries.DeepspeedFlat)


if __name__ == "__main__":
    main()
