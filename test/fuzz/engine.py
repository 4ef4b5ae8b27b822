# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs random programs, and says of each in what it differs from the interpreter."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from cases import make_case, make_setting
from seeds import make_program
from steps import Packages, differences, interpret, launch


@dataclass
class Failure:
    seed: int
    text: str


def write(program, folder, name=None):
    path = folder / f"{name or program.seed}.mlir"
    path.write_text(program.text())
    return path


def outcome(case, packages, interpreted):
    """What is wrong with a case that was compiled and interpreted; None: nothing."""
    compiled = launch(case, packages)
    found = {n: r for n, r in [("compiled", compiled), ("interpreted", interpreted)]
             if isinstance(r, str)}  # fmt: skip
    found = found or differences(compiled, interpreted)
    return "\n".join(f"{name}: {text}" for name, text in found.items()) or None


def run_here(seeds, folder, begin=lambda seed: None):
    """Failures of the programs of these seeds, in this process; ``begin`` is told
    whose code is about to run."""
    cases = []
    for seed in seeds:
        program = make_program(seed)
        cases.append(make_case(program, make_setting(program), write(program, folder)))
    packages = Packages(folder, jobs=1)
    packages.prepare(cases)
    results = interpret(cases, jobs=1)
    if any(isinstance(r, str) for r in results):
        # One that is refused takes the others with it: each alone.
        results = [interpret([case], jobs=1)[0] for case in cases]
    for seed, case, interpreted in zip(seeds, cases, results, strict=True):
        begin(seed)
        text = outcome(case, packages, interpreted)
        if text:
            yield Failure(seed, text)
        os.unlink(case.definition.path)


def work(run, seeds, folder, sender):
    """In a process of its own: sends seeds as they begin, and failures."""
    for failure in run(seeds, folder, sender.send):
        sender.send(failure)
    sender.send(None)


def run_part(seeds, folder, run=run_here, tally=None):
    """Failures of some programs; one whose code ends the process is one. What ``run``
    counts is added to the tally."""
    context = multiprocessing.get_context("fork")
    failures, seeds = [], list(seeds)
    while seeds:
        receiver, sender = context.Pipe(False)
        process = context.Process(target=work, args=(run, seeds, folder, sender))
        process.start()
        sender.close()
        last = None
        try:
            while (message := receiver.recv()) is not None:
                if isinstance(message, Failure):
                    failures.append(message)
                elif isinstance(message, Counter):
                    tally.update(message)
                else:
                    last = message
            seeds = []
        except EOFError:
            ended = seeds[0] if last is None else last
            failures.append(Failure(ended, f"the process ended, with seeds {seeds}"))
            seeds = seeds[seeds.index(ended) + 1 :]
        process.join()
    return failures


def run_programs(seeds, folder, jobs=None, part=25, run=run_here, tally=None):
    """Failures of the programs, some at a time in processes of their own."""
    seeds, jobs = list(seeds), jobs or os.cpu_count()
    parts = [seeds[i : i + part] for i in range(0, len(seeds), part)]
    with ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda p: run_part(p, folder, run, tally), parts)
        return [failure for failures in found for failure in failures]


def run_one(program, setting, folder, name="shrunk"):
    """What is wrong with one program; "" where it cannot be run at all."""
    path = write(program, folder, name)
    case = make_case(program, setting, path)
    if case is None:
        return ""
    packages = Packages(folder, jobs=1)
    packages.prepare([case])
    return outcome(case, packages, interpret([case], jobs=1)[0]) or ""


def save(program, setting, folder):
    """Files for stepc-run; returns the command."""
    path = write(program, folder, f"seed-{program.seed}")
    case = make_case(program, setting, path)

    class Recorder:
        lines, arrays = [], {}

        def add(self, definition, arrays, **settings):
            self.lines.append(json.dumps({"input": str(definition), **settings}))
            self.arrays.update(arrays)

    recorder = Recorder()
    case.add_to(recorder)
    batch, arrays = folder / f"seed-{program.seed}.jsonl", folder / f"seed-{program.seed}.npz"
    batch.write_text("\n".join(recorder.lines) + "\n")
    np.savez(arrays, **recorder.arrays)
    return f"stepc-run --batch={batch} --tensors={arrays} --compare", case
