# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of models, tensors in groups, in the interpreter."""

import json
import tempfile
from dataclasses import dataclass, field

import numpy as np
from oracle import Refused, stepc_run
from papers import Group, Tensor


@dataclass
class Run:
    """What steps left, and what they reported: a row for each step."""

    groups: list
    rows: dict = field(default_factory=dict)

    @property
    def skipped(self):
        return self.rows["step:skipped"].astype(bool)

    def report(self, name):
        return self.rows[f"report:{name}"]

    def scalar(self, name):
        """The scalar after each step; of each group, where it is a group's."""
        return self.rows[f"scalar:{name}"]


def dtypes(storages):
    return [{"f32": np.float32, "f64": np.float64}[storage] for storage in storages]


def describe(groups, history, param_type, grad_type):
    """The arrays, and the tensors of a case, of gradients of each step; those that
    are None do not take part."""
    arrays, tensors = {}, []
    for group_index, group in enumerate(groups):
        for index, tensor in enumerate(group.tensors):
            prefix = f"{group_index}.{index}/"
            grads = [step[group_index][index] for step in history]
            arrays[f"{prefix}param"] = np.asarray(tensor.param, param_type)
            arrays[f"{prefix}grad"] = np.zeros(tensor.param.shape, grad_type)
            for step, grad in enumerate(grads):
                if grad is not None:
                    arrays[f"{prefix}grad:{step}"] = np.asarray(grad, grad_type)
            parts = [grad is not None for grad in grads]
            tensors.append({"prefix": prefix, "group": group_index, "participates": parts})
    return arrays, tensors


def numbers(hypers):
    """As JSON takes them."""
    return {n: float(v) if np.isfinite(v) else str(v) for n, v in hypers.items()}


def run_case(files, groups, options, arrays, tensors, steps, mode="exact", **settings):
    """Runs one case; `tensors` are in the order of the groups."""
    line = {
        "input": str(files[0]), "fragments": [str(f) for f in files[1:]], "mode": mode,
        "steps": steps, "tensors": tensors, **settings,
        "groups": [{"hypers": numbers(g.hypers), "options": options} for g in groups],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/in.npz", f"{folder}/out.npz"
        np.savez(source, **arrays)
        run = stepc_run(
            "--batch=-", f"--tensors={source}", "--interpret", "-o", target, input=json.dumps(line)
        )
        if run.returncode != 0:
            raise Refused(run.stderr.strip() + run.stdout.strip())
        with np.load(target) as loaded:
            results = {name: loaded[name] for name in loaded.files}
    return collect(groups, results)


def collect(groups, results):
    run = Run([Group(g.hypers, [Tensor(t.param) for t in g.tensors]) for g in groups])
    for key, array in results.items():
        prefix, slash, name = key.rpartition("/")
        if not slash:
            run.rows[name] = array
            continue
        group, index = map(int, prefix.split("."))
        tensor = run.groups[group].tensors[index]
        if name == "param":
            tensor.param = array
        else:
            tensor.states[name] = array
    return run


def run_definition(files, groups, options, history, storages=("f64",) * 3, **settings):
    """Runs a definition, and fragments after it, with the gradients of each step."""
    param, grad, _ = dtypes(storages)
    arrays, tensors = describe(groups, history, param, grad)
    return run_case(
        files, groups, options, arrays, tensors, len(history), state=storages[2], **settings
    )
