# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory, rounds and bytes of steps before they are run, and what fits a machine: stepc-plan."""

from __future__ import annotations

import argparse

from ..plan import command


def add(parser: argparse.ArgumentParser) -> None:
    command.add_arguments(parser)


def run(given: argparse.Namespace) -> int:
    print(command.text_of(given), end="")
    return 0
