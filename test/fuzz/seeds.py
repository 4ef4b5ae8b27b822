# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The program of a seed."""

from counted import CountedMaker
from generate import Maker

EVERY = 4  # program is one whose sums are exact


def make_program(seed):
    return (CountedMaker if seed % EVERY == EVERY - 1 else Maker)(seed).program
