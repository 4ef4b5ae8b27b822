# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A failing seed, made small and printed ready to be run again."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from cases import make_setting
from engine import run_one, save
from generate import make_program
from shrink import shrink


def isolated(function, *arguments):
    """The result of a function in a process of its own; a message where that ends."""
    receiver, sender = multiprocessing.get_context("fork").Pipe(False)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: sender.send(function(*arguments))
    )
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return "compiled: the process ended"
    finally:
        process.join()


def explain(seed, folder, seconds=120.0):
    """The shrunk program of a seed, its inputs, its failure, and how to see it again."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def fails(program, setting):
        return isolated(run_one, program, setting, folder)

    program = make_program(seed)
    program, setting, text = shrink(program, make_setting(program), fails, seconds)
    command, case = save(program, setting, folder)
    return "\n".join([
        f"--- seed {seed}: tools/fuzz/run.py --seed {seed} --programs 1",
        text or "(it does not fail alone)", "", program.text(), case.describe(), "", command, "",
    ])  # fmt: skip
