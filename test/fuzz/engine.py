# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs random programs, and says of each in what it differs from the interpreter."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import dataclass

import numpy as np
from cases import make_case, make_setting
from generate import make_program
from steps import Packages, check, differences, interpret, launch


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


def run_here(seeds, folder, interpreter=interpret):
    """What is wrong with the programs of these seeds, in this process."""
    cases = []
    for seed in seeds:
        program = make_program(seed)
        cases.append(make_case(program, make_setting(program), write(program, folder)))
    packages = Packages(folder, jobs=1)
    packages.prepare(cases)
    results = interpreter(cases, jobs=1)
    if any(isinstance(r, str) for r in results):
        # One that is refused takes the others with it: each alone.
        results = [interpreter([case], jobs=1)[0] for case in cases]
    failures = []
    for seed, case, interpreted in zip(seeds, cases, results, strict=True):
        text = outcome(case, packages, interpreted)
        if text:
            failures.append(Failure(seed, text))
        os.unlink(case.definition.path)
    return failures


def work(job):
    seeds, folder = job
    try:
        return run_here(seeds, folder)
    except Exception as error:
        if len(seeds) == 1:
            return [Failure(seeds[0], f"{type(error).__name__}: {error}")]
        return [f for seed in seeds for f in work(([seed], folder))]


def run_programs(seeds, folder, jobs=None, part=25):
    """Failures of the programs, in processes of their own: compiled code that does
    what it must not ends one of these."""
    seeds, jobs = list(seeds), jobs or os.cpu_count()
    parts = [(seeds[i : i + part], folder) for i in range(0, len(seeds), part)]
    context = multiprocessing.get_context("spawn")
    found = []
    for seeds_, results in in_processes(context, parts, jobs):
        if results is None:
            results = [Failure(seeds_[0], "the process ended")]
            if len(seeds_) > 1:
                results = run_programs(seeds_, folder, jobs=1, part=max(1, len(seeds_) // 4))
        found += results
    return found


def in_processes(context, parts, jobs):
    """Pairs of a part's seeds and its failures, None where the process ended."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    waiting = list(parts)
    while waiting:
        done = []
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures = [(part, pool.submit(work, part)) for part in waiting]
            broken = []
            for part, future in futures:
                try:
                    done.append((part[0], future.result()))
                except BrokenProcessPool:
                    broken.append(part)
        yield from done
        if not broken:
            return
        # One of these ended the pool: each in a pool of its own.
        for part in broken:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                try:
                    yield part[0], pool.submit(work, part).result()
                except BrokenProcessPool:
                    yield part[0], None
        return


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


__all__ = ["Failure", "check", "run_here", "run_one", "run_programs", "save"]
