# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of works.py with three axes, on eight ranks; see works_cases.py."""

import works_layouts as layouts
from on_ranks import case, main
from works_training import row


@case
@row
def hybrid():
    return layouts.Hybrid


@case
@row
def hybrid_of_zero2():
    return layouts.HybridOfZero2


@case
@row
def hybrid_of_dtensors():
    return layouts.HybridOfDtensors


@case
@row
def hybrid_of_dtensors_and_zero2():
    return layouts.HybridOfDtensorsAndZero2


if __name__ == "__main__":
    main()
