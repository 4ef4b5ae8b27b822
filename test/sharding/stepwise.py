# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several steps of a sharded model, in which rates change and gradients are missing: with the
bits of the unsharded run, or each step within the bound of the interpreter that begins where
the ranks were before it. So a bound never grows over steps. A second run has the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from layouts import same_bits
from ranks import LocalLaunch, WholeLaunch, gather, run_ranks
from steps import interpret, is_grad
from test_bounds import outside

DECAY = 0.8  # of the rate, from step to step


class RecordedLaunch(LocalLaunch):
    """Keeps what is there before each step."""

    def begin(self, step):
        super().begin(step)
        before = {
            f"t{number}/{name}": operand.view.copy()
            for number, row in zip(self.case.numbers, self.operands, strict=True)
            for name, operand in row.items()
            if not is_grad(name)
        }
        self.__dict__.setdefault("before", []).append(before)


def with_rates(sharded):
    """The same with another learning rate in each step, where there is one."""
    defaults = {h["name"]: h["default"] for h in sharded.case.definition.interface["hypers"]}
    for step in range(1, sharded.case.steps) if "lr" in defaults else ():
        sharded.hypers[step] = [
            group.hypers | {"lr": group.hypers.get("lr", defaults["lr"]) * DECAY**step}
            for group in sharded.case.groups
        ]
    return sharded


def is_rerun(one, other):
    """Whether all ranks left the same bytes twice."""
    return all(
        left[0].keys() == right[0].keys()
        and all(np.asarray(left[0][n]).tobytes() == np.asarray(right[0][n]).tobytes()
                for n in left[0])
        for left, right in zip(one, other, strict=True)
    )  # fmt: skip


def run_twice(sharded, packages):
    """The results of all ranks; AssertionError where a second run has other bits."""
    package = packages.get(sharded)
    results = run_ranks(sharded, package, launch=RecordedLaunch)
    assert is_rerun(results, run_ranks(sharded, package)), "a second run has other bits"
    return results


def after_each_step(sharded, results):
    """What is there after each step, under the names of a run of that step alone."""
    last = gather(sharded, results)
    launches = [launch for _, _, launch in results]
    made = [
        gather(sharded, [(launch.before[step], None, None) for launch in launches])
        for step in range(1, sharded.case.steps)
    ]
    made.append({name: value for name, value in last.items() if ":" not in name})
    said = {name: value for name, value in last.items() if ":" in name}
    return [
        own | {name: value[[step]] for name, value in said.items()} for step, own in enumerate(made)
    ]


def single_steps(sharded, after):
    """Each step as a case of its own, from what was left before it."""
    case = sharded.case
    for step in range(case.steps):
        before = after[step - 1] if step else {}
        given = next((sharded.hypers[s] for s in range(step, 0, -1) if s in sharded.hypers), None)
        groups = [
            replace(group, hypers=group.hypers if given is None else given[number],
                    scalars=kept(case, before, "group", number) or group.scalars)
            for number, group in enumerate(case.groups)
        ]  # fmt: skip
        tensors = [single(tensor, index, step, before) for index, tensor in enumerate(case.tensors)]
        scalars = kept(case, before, "model") or case.scalars
        yield replace(case, groups=groups, tensors=tensors, steps=1, scalars=scalars)


def kept(case, before, scope, number=0):
    """The scalars that are kept from step to step."""
    entries = case.definition.interface.get("scalars", [])
    names = [e["name"] for e in entries if e["scope"] == scope and f"scalar:{e['name']}" in before]
    return {name: float(np.ravel(before[f"scalar:{name}"])[number]) for name in names}


def single(tensor, index, step, before):
    """The tensor as it is before a step."""
    arrays = {name: array for name, array in tensor.arrays.items() if not name.startswith("grad:")}
    arrays["grad"] = tensor.arrays.get(f"grad:{step}", tensor.arrays["grad"])
    left = {name: before[key] for name in arrays if (key := f"t{index}/{name}") in before}
    taken = sum(tensor.takes_part(earlier) for earlier in range(step))
    return replace(
        tensor, arrays=arrays | left, participates=[tensor.takes_part(step)],
        count=tensor.count + taken, fresh=False if taken else tensor.fresh,
    )  # fmt: skip


def judge_bits(sharded, results, packages):
    """What is wrong with a model whose steps are elementwise; None: nothing."""
    gathered = gather(sharded, results)
    plain = WholeLaunch(sharded, packages.get(sharded)).run()
    found = same_bits(gathered, plain)
    return f"other bits: {found}" if found else None


def judge_bounds(cases, packages, change=lambda step, found: None):
    """The same of models that add up, for each: each step within its bound. ``change``: of
    what is judged, for tests of this."""
    steps = [after_each_step(case, run_twice(case, packages)) for case in cases]
    alone = [single for case, own in zip(cases, steps, strict=True)
             for single in single_steps(case, own)]  # fmt: skip
    bounds = iter(interpret(alone, mode="bound"))
    for own in steps:
        for step, found in enumerate(own):
            change(step, found)
        wrong = [judge_step(step, found, next(bounds)) for step, found in enumerate(own)]
        yield next(filter(None, wrong), None)


def judge_step(step, found, bounds):
    if isinstance(bounds, str):
        return f"step {step}: interpreted: {bounds}"
    # The compiler leaves out states that nothing depends on.
    known = {name: array for name, array in bounds.items() if name.rpartition(":")[0] in found}
    assert any("/param:" in name for name in known), sorted(bounds)
    beyond = outside(found, known)
    return f"step {step}: outside of the bound: {beyond}" if beyond else None
