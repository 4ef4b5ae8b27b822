# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole steps of several tensors: compiled, through the C ABI, beside the interpreter.

A case is a model: groups, tensors and how they lie in memory, steps with the
gradients of each. What a compiled package makes of it has the names of what
``stepc-run --interpret`` makes of it, and must have its bits.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p, pointer
from dataclasses import dataclass, field

import numpy as np
from definitions import Definition
from driver import STEPC, Operand, Plan
from oracle import Batch, Refused, first_difference, store
from stepc import _library, _runtime, errors
from stepc._structures import Binding

# --- Cases --------------------------------------------------------------------


def is_grad(name):
    """Whether an array is the gradient, of all steps or of one; a state may be `grad_avg`."""
    return name == "grad" or name.startswith("grad:")


@dataclass
class Group:
    hypers: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    scalars: dict = field(default_factory=dict)


@dataclass
class Tensor:
    """``arrays`` has param, grad, states that are given, and grad:K of step K.
    ``places`` say of operands where in memory they lie, as Operand wants it."""

    shape: tuple
    storages: tuple
    arrays: dict
    group: int = 0
    participates: list | None = None
    count: int = 1
    fresh: bool | list = False  # or the states that the first step creates
    places: dict = field(default_factory=dict)
    states: dict = field(default_factory=dict)  # storage by name, where it is another one

    def takes_part(self, step):
        if self.participates is None:
            return True
        return self.participates[min(step, len(self.participates) - 1)]

    def storage(self, role):
        if role == "param":
            return self.storages[0]
        if role.partition(":")[0] == "grad":
            return self.storages[1]
        return self.states.get(role, self.storages[2])


@dataclass
class Case:
    definition: Definition
    groups: list
    tensors: list
    steps: int = 1
    scalars: dict = field(default_factory=dict)
    threads: int = 0
    chunk: int = 0
    label: str = ""

    def variants(self):
        # A group needs one also where no tensor is of it.
        pairs = [(t, self.groups[t.group]) for t in self.tensors]
        pairs += [(self.tensors[0], group) for group in self.groups]
        return {self.definition.variant(*pair) for pair in pairs}

    def add_to(self, batch, **settings):
        """Adds the case to a batch of the interpreter."""
        tensors, arrays = [], {}
        for index, tensor in enumerate(self.tensors):
            line = {"prefix": f"t{index}/", "group": tensor.group, "count": tensor.count,
                    "fresh": tensor.fresh, "state": tensor.storages[2]}  # fmt: skip
            if tensor.states:
                names = self.definition.states(tensor.shape, self.groups[tensor.group])
                line["state"] = ",".join(f"{n}:{tensor.storage(n)}" for n in names)
                if not names:
                    del line["state"]
            if tensor.participates is not None:
                line["participates"] = tensor.participates
            tensors.append(line)
            arrays |= {f"t{index}/{name}": array for name, array in tensor.arrays.items()}
        batch.add(
            self.definition.path, arrays, fragments=self.definition.fragments, steps=self.steps,
            scalars=self.scalars, tensors=tensors,
            groups=[{"hypers": numbers(g.hypers), "options": g.options, "scalars": g.scalars}
                    for g in self.groups],
            **settings,
        )  # fmt: skip

    def describe(self):
        lines = [f"{self.definition.key()} {self.label} threads={self.threads} chunk={self.chunk}"]
        lines += [f"  group {g.hypers} {g.options} {g.scalars}" for g in self.groups]
        for t in self.tensors:
            lines.append(
                f"  {t.shape} {'-'.join(t.storages)} {t.states or ''} group={t.group} "
                f"participates={t.participates} count={t.count} fresh={t.fresh} "
                f"given={[n for n in t.arrays if n != 'param' and not n.startswith('grad')]} "
                f"{t.places or ''}"
            )
        return "\n".join([*lines, f"  steps={self.steps} scalars={self.scalars}"])


def numbers(hypers):
    """As JSON takes them."""
    return {n: float(v) if np.isfinite(v) else str(v) for n, v in hypers.items()}


# --- Running ------------------------------------------------------------------


def set_fresh(binding, tensor, states):
    """Says which states the first step creates; returns what must live until then."""
    if isinstance(tensor.fresh, bool):
        binding.fresh = int(tensor.fresh)
        return None
    flags = (ctypes.c_uint8 * max(len(states), 1))(*(name in tensor.fresh for name in states))
    binding.freshStates = ctypes.addressof(flags)
    return flags


class Launch:
    """A case bound to a plan of a package."""

    def __init__(self, case, package):
        self.case, manifest = case, package.manifest
        self.manifest = manifest
        self.plan = Plan(package, threads=case.threads, chunk=case.chunk)
        for group in case.groups:
            hypers = [group.hypers.get(h["name"], h["default"]) for h in manifest["hypers"]]
            known = {o["name"] for o in manifest["options"]}
            options = {n: int(v) for n, v in group.options.items() if n in known}
            self.plan.add_group(options, tuple(hypers))
        for name, value in case.scalars.items():
            self.plan.set_scalar(name, value)
        for index, group in enumerate(case.groups):
            for name, value in group.scalars.items():
                self.plan.set_scalar(name, value, index)
        # The compiler leaves out states that nothing depends on.
        self.known = {s["name"] for rule in manifest["rules"] for s in rule["states"]}
        self.operands = [self.make_operands(tensor) for tensor in case.tensors]
        self.ids = self.bind()

    def make_operands(self, tensor):
        group = self.case.groups[tensor.group]
        arrays = {n: a for n, a in tensor.arrays.items() if n == "param" or is_grad(n)}
        rule, _ = self.case.definition.rule(tensor.shape, group)
        initial = {s["name"]: s["init"] for s in rule["states"]}
        for name, shape in self.case.definition.states(tensor.shape, group).items():
            if name not in self.known:
                continue
            if name in tensor.arrays:
                arrays[name] = tensor.arrays[name]
            else:
                arrays[name] = store(np.full(shape, initial[name]), tensor.storage(name))
        places = tensor.places
        return {
            name: Operand(array, **places.get(name, places.get(name.partition(":")[0], {})))
            for name, array in arrays.items()
        }

    def bind(self):
        case, keep = self.case, []
        bindings = (Binding * len(case.tensors))()
        for binding, tensor, row in zip(bindings, case.tensors, self.operands, strict=True):
            made = {name: operand.dltensor() for name, operand in row.items()}
            pointers = {name: pointer(dl) for name, (dl, _) in made.items()}
            states = [n for n in row if n != "param" and not is_grad(n)]
            array = (c_void_p * max(len(states), 1))(
                *(ctypes.cast(pointers[name], c_void_p) for name in states)
            )
            keep.append((made, pointers, array))
            binding.group = tensor.group
            binding.param = ctypes.cast(pointers["param"], c_void_p)
            binding.grad = ctypes.cast(pointers["grad"], c_void_p)
            # Where none is given the runtime allocates those that there are.
            binding.states = ctypes.cast(array, c_void_p) if states else None
            binding.numStates = len(states)
            binding.count = tensor.count - 1
            keep.append(set_fresh(binding, tensor, states))
        return self.plan.bind(bindings)

    def begin(self, step):
        """What is done before a step."""

    def set_gradients(self, step):
        for identity, tensor, row in zip(self.ids, self.case.tensors, self.operands, strict=True):
            if identity is None:  # not bound yet
                continue
            if not tensor.takes_part(step):
                self.plan.set_grad(identity, None)
                continue
            operand = row.get(f"grad:{step}", row["grad"])
            dl, _keep = operand.dltensor()
            self.plan.set_grad(identity, dl)

    def row(self, read, entry):
        if entry["scope"] == "model":
            return read(entry["name"])
        return [read(entry["name"], g) for g in range(len(self.case.groups))]

    def run(self):
        """The arrays after all steps, and what each step said."""
        for row in self.operands:
            for operand in row.values():
                operand.remember()
        rows, counts = {}, [t.count - 1 for t in self.case.tensors]
        for step in range(self.case.steps):
            self.begin(step)
            self.set_gradients(step)
            self.plan.step()
            skipped = bool(self.plan.last_step().skipped)
            said = {"step:skipped": float(skipped)}
            for entry in self.manifest.get("reports", []):
                said[f"report:{entry['name']}"] = self.row(self.plan.report, entry)
            for entry in self.manifest.get("scalars", []):
                said[f"scalar:{entry['name']}"] = self.row(self.plan.scalar, entry)
            for name, value in said.items():
                rows.setdefault(name, []).append(value)
            for index, tensor in enumerate(self.case.tensors):
                counts[index] += tensor.takes_part(step) and not skipped
                if self.ids[index] is None:
                    continue
                count = self.plan.count(self.ids[index])
                assert count == counts[index], f"count {count}, expected {counts[index]}"
        results = {name: np.array(values, dtype="f8") for name, values in rows.items()}
        for index, row in enumerate(self.operands):
            for name, operand in row.items():
                same = operand.has_only_its_elements_changed()
                assert same, f"t{index}: bytes beside {name} changed"
                if is_grad(name):
                    same = np.array_equal(operand.memory, operand.before)
                    assert same, f"t{index}: {name} changed"
                else:
                    results[f"t{index}/{name}"] = operand.view.copy()
        return results


def differences(compiled, interpreted):
    """What differs, by name."""
    found = {}
    for name, array in interpreted.items():
        if name not in compiled:
            if ":" in name:
                found[name] = "not known of the compiled step"
            continue  # a state that was left out
        actual = np.asarray(compiled[name])
        if array.size == 0 and actual.size == 0:
            continue
        difference = first_difference(actual, array)
        if difference:
            found[name] = difference
    for name in compiled:
        if name not in interpreted and name != "step:skipped":
            found[name] = "not known of the interpreter"
    return found


class Packages:
    """Packages with the variants that cases need, compiled two at a time. ``target``: for
    which processor; None: for some the least, for some this one."""

    def __init__(self, folder, jobs=None, target=None):
        self.folder, self.loaded, self.target = folder, {}, target
        self.jobs = jobs or os.cpu_count()

    def prepare(self, cases):
        wanted, definitions = {}, {}
        for case in cases:
            key = case.definition.key()
            wanted.setdefault(key, set()).update(case.variants())
            definitions[key] = case.definition
        jobs = [
            (key, definitions[key], sorted(variants))
            for key, variants in wanted.items()
            if not variants <= self.loaded.get(key, (set(), None))[0]
        ]
        with ThreadPoolExecutor(self.jobs) as pool:
            for (key, _, variants), package in zip(
                jobs, pool.map(lambda job: self.compile(*job[1:]), jobs), strict=True
            ):
                self.loaded[key] = (set(variants), package)

    def compile(self, definition, variants):
        """A package, or the message with which it was refused."""
        number = abs(hash((definition.key(), tuple(variants))))
        output = self.folder / f"{number:x}.stepc"
        # About half of them for the best that this processor can run.
        odd = zlib.crc32("".join([*definition.arguments(), *variants]).encode()) % 2
        target = self.target or (_library.cpu_target() if odd else "cpu")
        run = subprocess.run(
            [STEPC, definition.path, "-o", output, f"--target={target}", *definition.arguments(),
             *(f"--variant={variant}" for variant in variants)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if run.returncode != 0:
            return f"stepc: exit status {run.returncode}\n{run.stderr[-3000:]}"
        data = output.read_bytes()
        output.unlink()
        try:
            return _runtime.Package.from_bytes(data)
        except errors.StepcError as error:
            return f"{type(error).__name__}: {error}"

    def get(self, case):
        return self.loaded[case.definition.key()][1]


def interpret(cases, jobs=None, **settings):
    """The interpreter's results of each case, by some processes at a time; a message
    where it refuses."""
    jobs = jobs or os.cpu_count()
    parts = [list(range(start, len(cases), jobs)) for start in range(jobs)]

    def run(part):
        batch = Batch()
        for index in part:
            cases[index].add_to(batch, **settings)
        if not part:
            return []
        try:
            return batch.run()
        except (Refused, zipfile.BadZipFile) as refused:
            return [str(refused)] * len(part)

    results = [None] * len(cases)
    with ThreadPoolExecutor(jobs) as pool:
        for part, outcome in zip(parts, pool.map(run, parts), strict=True):
            for index, result in zip(part, outcome, strict=True):
                results[index] = result
    return results


def launch(case, packages):
    """The compiled results; a message where something is refused."""
    package = packages.get(case)
    if isinstance(package, str):
        return package
    try:
        return Launch(case, package).run()
    except (errors.StepcError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def check(cases, packages):
    """A message for each case that differs."""
    packages.prepare(cases)
    failures = []
    for case, interpreted in zip(cases, interpret(cases), strict=True):
        compiled = launch(case, packages)
        if isinstance(compiled, str) or isinstance(interpreted, str):
            found = {"compiled": compiled, "interpreted": interpreted}
            found = {n: r for n, r in found.items() if isinstance(r, str)}
        else:
            found = differences(compiled, interpreted)
        if found:
            lines = "\n".join(f"    {name}: {text}" for name, text in found.items())
            failures.append(f"{case.describe()}\n{lines}")
    return failures
