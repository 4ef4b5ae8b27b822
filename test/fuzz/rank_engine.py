# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs random programs on simulated ranks, and says of each in what it differs from the
unsharded run.

Where nothing is added up over ranks, or by sums that do not depend on the order, every
bit is the same. Else one step lies within
the interpreter's bound; how much of it has the unsharded bits all the same is counted,
as it is of several steps, which no bound is for. Replicated parts and a second run have
the same bits in any case.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from dataclasses import dataclass

import numpy as np
from cases import make_case, make_setting
from engine import Failure, write
from oracle import widen
from ranks import Sharded, WholeLaunch, gather, run_ranks
from seeds import make_program
from spread import make_sharded, names_twice, spread_setting, without_dims
from stepc import errors
from steps import Packages, interpret
from stepwise import is_rerun
from test_bounds import outside

WIDE = 1e-3  # an interval wider than this, relative to its ends, says little


@dataclass
class Trial:
    """A program on a model and a mesh, and how it is judged."""

    program: object
    sharded: Sharded
    judged: str  # by "bits", "bound", "both", all steps of these by "again", or "reruns"
    refused: int = 0  # tensors that the compiler does not cut so

    @property
    def definition(self):
        return self.sharded.case.definition

    def variants(self):
        return self.sharded.variants()


def adds_up(program):
    """Whether a result may depend on the order of additions."""
    if program.exact:
        return False
    ops = [op.name for block in program.blocks() for op in block]
    kinds = [kind for _, kind, _ in program.statistics]
    return bool({"sum", "mean"} & set(ops)) or "sum" in kinds


def make_trials(program, setting, path):
    """What is run of a program: one step with a bound, or all steps; both if need be."""

    # A third of those that add up does it by sums of any order.
    reproducible = adds_up(program) and program.seed % 3 == 1
    flags = ["--reproducible"] if reproducible else None

    def trial(own, judged):
        case = make_case(program, own, path, flags)
        return None if case is None else Trial(program, make_sharded(case, own), judged)

    if not adds_up(program):
        return [trial(setting, "bits")]
    one = copy.deepcopy(setting)
    one.steps = 1
    for tensor in one.tensors:
        tensor.own_gradients = False
    first, all_steps = ("both", "again") if reproducible else ("bound", "reruns")
    return [trial(one, first)] + ([trial(setting, all_steps)] if setting.steps > 1 else [])


def is_refused(trial, package):
    """Whether a tensor is cut along a dim that its rule does not let ranks share."""
    try:
        with np.errstate(all="ignore"):
            run_ranks(trial.sharded, package)
    except AssertionError as error:
        return ", which rule '" in str(error) and " does not permit; " in str(error)
    return False


def prepare(program, setting, path, packages):
    """The trials of a program, compiled. Tensors that may not be cut by their dims, for two
    have one name, are then whole, which is counted."""
    trials = make_trials(program, setting, path)
    if None in trials:
        return []
    packages.prepare(trials)
    cut = sum(bool(tensor.spread.dims) for tensor in setting.tensors)
    if not cut or not any(names_twice(rule.dims) for rule in program.rules):
        return trials
    package = packages.get(trials[0])
    if isinstance(package, str) or not is_refused(trials[0], package):
        return trials
    trials = make_trials(program, without_dims(copy.deepcopy(setting)), path)
    packages.prepare(trials)
    trials[0].refused = cut
    return trials


def equal_elements(left, right):
    """Which elements have the same bits, any NaN being equal to any."""
    a, b = (widen(np.asarray(x)) for x in (left, right))
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def differing(gathered, plain):
    """What has other bits than in the unsharded run, and what only one of them has."""
    found = {}
    for name in sorted({*gathered, *plain}):
        if name not in gathered or name not in plain:
            found[name] = "of one run only"
        elif np.shape(gathered[name]) != np.shape(plain[name]):
            found[name] = f"{np.shape(gathered[name])} for {np.shape(plain[name])}"
        elif not (same := equal_elements(gathered[name], plain[name])).all():
            at = int(np.argmin(np.ravel(same)))
            values = [float(widen(np.ravel(run[name]))[at]) for run in (gathered, plain)]
            found[name] = f"element {at} is {values[0]!r}, unsharded {values[1]!r}"
    return found


def count_bounds(bounds, tally):
    """How much the bound leaves open."""
    tally["jumps_of"] += int(bounds["jumps"][0])
    tally["jumps"] += int(bounds["jumps"][1])
    for name in [
        n.removesuffix(":low") for n in bounds if n.startswith("t") and n.endswith(":low")
    ]:
        low, high = bounds[f"{name}:low"], bounds[f"{name}:high"]
        with np.errstate(invalid="ignore", over="ignore"):
            narrow = high - low <= WIDE * np.maximum(np.abs(low), np.abs(high)) + 1e-30
        tally["bounded"] += low.size
        tally["wide"] += int(low.size - (narrow | (low == high)).sum())


def judge(trial, gathered, plain, bounds, tally):
    """What is wrong; None: nothing."""
    found = differing(gathered, plain)
    same = trial.judged in ("bits", "both", "again")
    if (same and found) or gathered.keys() != plain.keys():
        return "\n".join(f"{name}: {text}" for name, text in found.items())
    several = "1" if trial.judged == "bound" else "n"
    for name in [n for n in plain if ":" not in n and n in gathered and not same]:
        if plain[name].dtype == np.float64:
            continue  # The sums are f64 too: no rounding hides another order of additions.
        equal = equal_elements(gathered[name], plain[name])
        tally[f"elements{several}"] += equal.size
        tally[f"equal{several}"] += int(equal.sum())
    if trial.judged in ("bound", "both"):
        # The compiler leaves out states that nothing depends on.
        bounds = {k: v for k, v in bounds.items() if k.rpartition(":")[0] in plain or k == "jumps"}
        count_bounds(bounds, tally)
        beyond = outside(gathered, bounds)
        return "\n".join(f"{name}: {values} (number, value, low, high)"
                         for name, values in beyond.items()) or None  # fmt: skip
    return None


def outcome(trial, packages, bounds, tally):
    package = packages.get(trial)
    for name, refused in [("compiled", package), ("interpreted", bounds)]:
        if isinstance(refused, str):
            return f"{name}: {refused}"
    try:
        with np.errstate(all="ignore"):
            plain = WholeLaunch(trial.sharded, package).run()
    except (errors.StepcError, AssertionError) as error:
        return f"compiled: {type(error).__name__}: {error}"
    tally[trial.judged] += 1
    tally["refused"] += trial.refused
    try:
        with np.errstate(all="ignore"):
            results = run_ranks(trial.sharded, package)
            gathered = gather(trial.sharded, results)
            again = run_ranks(trial.sharded, package)
    except AssertionError as error:
        return f"ranks: {error}"
    if not is_rerun(results, again):
        return "ranks: a second run has other bits"
    return judge(trial, gathered, plain, bounds, tally)


def run_trials(trials, packages):
    """Pairs of a trial and what is wrong with it; the tally last."""
    tally = Counter()
    bounded = [trial for trial in trials if trial.judged in ("bound", "both")]
    cases = [trial.sharded.case for trial in bounded]
    results = interpret(cases, jobs=1, mode="bound")
    if any(isinstance(r, str) for r in results):
        # One that is refused takes the others with it: each alone.
        results = [interpret([case], jobs=1, mode="bound")[0] for case in cases]
    bounds = {id(trial): result for trial, result in zip(bounded, results, strict=True)}
    for trial in trials:
        yield trial, lambda own=trial: outcome(own, packages, bounds.get(id(own)), tally)
    yield None, tally


def run_ranked(seeds, folder, begin=lambda seed: None):
    """As engine.run_here, on ranks; yields the tally too."""
    packages, trials = Packages(folder, jobs=1), []
    for seed in seeds:
        program = make_program(seed)
        setting = spread_setting(program, make_setting(program))
        trials += prepare(program, setting, write(program, folder), packages)
    for trial, run in run_trials(trials, packages):
        if trial is None:
            yield run
            continue
        begin(trial.program.seed)
        if text := run():
            yield Failure(trial.program.seed, text)
    for seed in seeds:
        os.unlink(folder / f"{seed}.mlir")


def run_one(program, setting, folder, name="shrunk"):
    """What is wrong with one program; "" where it cannot be run at all."""
    packages = Packages(folder, jobs=1)
    trials = prepare(program, setting, write(program, folder, name), packages)
    for trial, run in run_trials(trials, packages):
        if trial is not None and (text := run()):
            return text
    return ""


def share(tally, several):
    """Of the elements of programs that add up, those with the unsharded bits."""
    return tally[f"equal{several}"] / max(tally[f"elements{several}"], 1)


def describe(tally):
    return (
        f"{tally['bits']} to the bit, {tally['bound']} within the bound, {tally['both']} both by "
        f"sums of any order; of several steps {tally['again']} of these and {tally['reruns']} "
        f"others; unsharded bits: {share(tally, '1'):.4%} of {tally['elements1']} elements "
        f"after a step, {share(tally, 'n'):.4%} of {tally['elementsn']} after several; wide "
        f"intervals: {tally['wide']} of {tally['bounded']}, jumps: {tally['jumps']} of "
        f"{tally['jumps_of']}; tensors refused for a dim twice: {tally['refused']}"
    )
