# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A failing seed, made small and printed ready to be run again."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from cases import make_setting
from engine import run_one, save
from rank_engine import run_one as run_on_ranks
from seeds import make_program
from shrink import shrink
from spread import make_sharded, spread_setting


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


def explain(seed, folder, seconds=120.0, ranks=False):
    """The shrunk program of a seed, its inputs, its failure, and how to see it again."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def fails(program, setting):
        return isolated(run_on_ranks if ranks else run_one, program, setting, folder)

    program = make_program(seed)
    setting = make_setting(program)
    if ranks:
        spread_setting(program, setting)
    program, setting, text = shrink(program, setting, fails, seconds)
    command, case = save(program, setting, folder)
    if ranks:
        # What stepc-run compares is not sharded.
        command, case = "", make_sharded(case, setting)
    option = "--ranks " if ranks else ""
    return "\n".join([
        f"--- seed {seed}: tools/fuzz/run.py {option}--seed {seed} --programs 1",
        text or "(it does not fail alone)", "", program.text(), case.describe(), "", command, "",
    ])  # fmt: skip
