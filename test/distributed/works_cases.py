# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of works.py, on four ranks: each function is named as its row, and returns what is trained
as the row says."""

import works_layouts as layouts
import works_libraries as libraries
import works_ways as ways
from on_ranks import case, main
from works_training import row


@case
@row
def ddp():
    return ways.Ddp


@case
@row
def zero1_over_ddp():
    return ways.Zero1OverDdp


@case
@row
def zero1():
    return ways.Zero1


@case
@row
def zero2():
    return ways.Zero2


@case
@row
def fsdp2():
    return ways.Fsdp2


@case
@row
def fsdp2_of_the_last_dim():
    return ways.Fsdp2OfTheLastDim


@case
@row
def hsdp():
    return ways.Hsdp


@case
@row
def tp_of_dim_0():
    return ways.TpOfDim0


@case
@row
def tp_of_dim_1():
    return ways.TpOfDim1


@case
@row
def tp_of_plain_parts():
    return layouts.TpOfPlainParts


@case
@row
def tp_with_fsdp2():
    return ways.TpWithFsdp2


@case
@row
def tp_with_zero1():
    return ways.TpWithZero1


@case
@row
def tp_with_zero2():
    return ways.TpWithZero2


@case
@row
def pp():
    return layouts.Pp


@case
@row
def pp_with_tp():
    return layouts.PpWithTp


@case
@row
def pp_with_tp_of_dtensors():
    return layouts.PpWithTpOfDtensors


@case
@row
def pp_with_zero1():
    return layouts.PpWithZero1


@case
@row
def pp_with_zero2():
    return layouts.PpWithZero2


@case
@row
def ep():
    return layouts.Ep


@case
@row
def ep_with_zero1():
    return layouts.EpWithZero1


@case
@row
def ep_with_zero2():
    return layouts.EpWithZero2


@case
@row
def colossal_tp():
    return libraries.ColossalTp


@case
@row
def colossal_zero():
    return libraries.ColossalZero


@case
@row
def colossal_tp_with_zero():
    return libraries.ColossalTpWithZero


@case
@row
def deepspeed_flat():
    return libraries.DeepspeedFlat


if __name__ == "__main__":
    main()
