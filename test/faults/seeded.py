#!/usr/bin/env python3
"""Switches on deliberate faults of the passes and of the engine, one at a time, and
runs steps of models with them: each must differ from the interpreter's.

    .venv/bin/python test/faults/seeded.py [NAME...]

prints the list and the score. Faults of the passes are seeded by `stepc-faulty`, those
of the engine are in a runtime of their own (`runtime/core/Fault.h`). What is called
`control-...` changes no result, and must not be caught.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_void_p, cast, pointer
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("test/exact", "test/interpreter", "frontend")]

import driver  # noqa: E402
from oracle import DTYPES, ZOO, Batch, first_difference  # noqa: E402

BUILD = Path(os.environ.get("STEPC_BUILD", str(ROOT / "build")))
FAULTY = BUILD / "test" / "faults" / "stepc-faulty"
LIBRARY = BUILD / "lib" / "libstepc_runtime.so"
FAULTY_LIBRARY = BUILD / "lib" / "libstepc_runtime_faulty.so"
FRAGMENTS = ZOO / "fragments"
NOWHERE = 3  # stepc-faulty's status where a fault has no place
SECONDS = 20  # that steps may take before they count as hung


# --- Cases --------------------------------------------------------------------


@dataclass
class Tensor:
    shape: tuple
    group: int = 0
    idle: tuple = ()  # steps without a gradient
    transposed: bool = False  # in memory
    zero: bool = False
    scale: float = 1.0  # of the gradients
    grads: dict = field(default_factory=dict)  # of a step, the value of one element


@dataclass
class Case:
    """Some steps of a model."""

    name: str
    files: list
    tensors: list
    storages: tuple = ("f32", "f32", "f32")
    groups: list = field(default_factory=lambda: [{}])
    options: list = field(default_factory=lambda: [""])
    """Of each variant, as in a request."""
    steps: int = 3
    count: int = 0
    threads: int = 1
    chunk: int = 0
    own_states: bool = False
    """The runtime allocates them."""

    @property
    def requests(self):
        param, grad, state = self.storages
        state = state if "=" in state else f"state={state}"
        base = f"param={param},grad={grad},{state}"
        return [base + ("," + option if option else "") for option in self.options]


def make_cases():
    # More than a leaf of them, and sizes whose sum depends on its order.
    many = [Tensor((3,), group=i % 2, scale=10.0 ** (i % 7)) for i in range(70)]
    return [
        Case(
            "adamw", [ZOO / "adamw.mlir"],
            [Tensor((1003,)), Tensor((7, 5), transposed=True), Tensor((37,), idle=(1,))],
            storages=("bf16", "bf16", "bf16"), count=2,
        ),
        Case("adamw-narrow", [ZOO / "adamw.mlir"], [Tensor((1003,))], ("f32", "bf16", "bf16")),
        Case(
            "adamw-f64", [ZOO / "adamw.mlir"], [Tensor((130,)), Tensor((40, 9), transposed=True)],
            storages=("f64", "f64", "f64"), groups=[{"hypers": {"weight_decay": 0.1}}],
        ),
        Case(
            "adamw-parallel", [ZOO / "adamw.mlir"], [Tensor((40007,)), Tensor((20001,))], steps=1,
            threads=3, chunk=2048,
        ),
        Case(
            "sgd", [ZOO / "sgd.mlir"], [Tensor((70,)), Tensor((33,), group=1)],
            groups=[{"hypers": {"lr": 0.5, "momentum": 0.9, "dampening": 0.5}},
                    {"hypers": {"lr": 0.1, "momentum": 0.0}}],
            options=[f"option.has_momentum={m},option.has_weight_decay=false"
                     for m in ("true", "false")],
        ),
        Case(
            "adafactor", [ZOO / "adafactor.mlir"],
            [Tensor((70, 1100)), Tensor((5, 3), group=1), Tensor((2, 65, 40)), Tensor((2100,)),
             Tensor((17,), group=1, idle=(1,)), Tensor((40, 30), transposed=True, group=1)],
            groups=[{}, {"hypers": {"beta1": 0.9, "weight_decay": 0.1, "clip_threshold": 0.5}}],
            options=[f"option.has_beta1={b}" for b in ("false", "true")],
        ),
        Case(
            "adafactor-shared", [ZOO / "adafactor.mlir"], [Tensor((400, 700)), Tensor((390, 701))],
            options=["option.has_beta1=false"], steps=1, threads=3, chunk=4096,
        ),
        Case(
            "lamb", [ZOO / "lamb.mlir"],
            [Tensor((1100,)), Tensor((6,), zero=True), Tensor((4, 9), group=1)],
            groups=[{"hypers": {"weight_decay": 0.1}}, {"hypers": {"lr": 0.01}}],
        ),
        Case(
            "dadapt", [ZOO / "dadapt_adam.mlir"],
            [Tensor((50,)), Tensor((1030,), group=1, idle=(2,)), Tensor((9,), idle=(1,)),
             Tensor((4,), group=2)], steps=4,
            groups=[{"hypers": {"lr": 0.5, "weight_decay": 0.01}}, {"hypers": {"lr": 2.0}}, {}],
        ),
        Case(
            "scaler", [ZOO / "sgd.mlir", FRAGMENTS / "torch_scaler.mlir",
                       FRAGMENTS / "clip_by_norm.mlir"],
            [*many, Tensor((1500,), grads={1: np.inf}), Tensor((300,), idle=(2, 3))],
            groups=[{"hypers": {"lr": lr, "momentum": 0.9, "growth_interval": 1.0,
                                "max_norm": 1e-3}} for lr in (0.1, 0.3)],
            options=["option.has_momentum=true,option.has_weight_decay=false"], steps=4,
        ),
        Case(
            "nan", [ZOO / "sgd.mlir", FRAGMENTS / "clip_by_norm.mlir"],
            [Tensor((20,)), Tensor((10,), grads={1: np.nan})], steps=2,
            options=["option.has_momentum=false,option.has_weight_decay=false"],
        ),
        Case(
            "mixed", [ROOT / "test" / "faults" / "mixed.mlir"],
            [Tensor((70, 1030), grads={1: 1e30}), Tensor((5, 3), group=1),
             Tensor((8, 9), group=1, idle=(2,)), Tensor((3, 4), group=2, idle=(0, 2))],
            storages=("f64", "f64", "state.row=f64,state.sum=f64,state.narrow=f32"),
            groups=[{}, {"hypers": {"lr": 0.7}}, {}], own_states=True,
        ),
    ]  # fmt: skip


def store(values, storage):
    """Finite numbers in a storage type; as oracle.store, without importing torch."""
    if storage != "bf16":
        return np.asarray(values, DTYPES[storage])
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def make_values(case, rng):
    """The arrays of a case's tensors: params, and gradients of each step."""
    params, grads = [], []
    for tensor in case.tensors:
        values = np.zeros(tensor.shape) if tensor.zero else rng.standard_normal(tensor.shape)
        params.append(store(values, case.storages[0]))
        own = []
        for step in range(case.steps):
            grad = rng.standard_normal(tensor.shape) * tensor.scale
            grad.flat[step % grad.size] = tensor.grads.get(step, grad.flat[step % grad.size])
            own.append(store(grad, case.storages[1]))
        grads.append(own)
    return params, grads


def describe(case, params, grads):
    """The arrays and keys of stepc-run's line."""
    arrays, tensors = {}, []
    for index, tensor in enumerate(case.tensors):
        prefix = f"t{index}/"
        arrays[prefix + "param"] = params[index]
        arrays[prefix + "grad"] = grads[index][0]
        for step, grad in enumerate(grads[index]):
            arrays[f"{prefix}grad:{step}"] = grad
        tensors.append(
            {
                "prefix": prefix,
                "group": tensor.group,
                "count": case.count + 1,
                "fresh": True,
                "participates": [step not in tensor.idle for step in range(case.steps)],
            }
        )
    state = case.storages[2]
    state = state.replace("state.", "").replace("=", ":")
    return arrays, {"fragments": [str(path) for path in case.files[1:]], "tensors": tensors,
                    "groups": case.groups, "steps": case.steps, "state": state}  # fmt: skip


# --- Steps of compiled code ---------------------------------------------------


def place(values, transposed):
    """An operand in memory of its own."""
    if not transposed:
        return driver.Operand(values)
    strides = [1, *np.cumprod(values.shape)[:-1]]
    return driver.Operand(values, strides=strides)


class Model:
    """A case's tensors, bound to a plan."""

    def __init__(self, case, data, params, grads, expected):
        from stepc import _runtime

        package = _runtime.Package.from_bytes(data)
        self.case, self.expected = case, expected
        self.plan = driver.Plan(package, threads=case.threads, chunk=case.chunk)
        hypers = package.manifest["hypers"]
        for group in case.groups:
            given = group.get("hypers", {})
            values = tuple(given.get(h["name"], h["default"]) for h in hypers)
            self.plan.add_group({}, values)
        self.params = [place(p, t.transposed) for p, t in zip(params, case.tensors, strict=True)]
        self.grads = [[place(g, t.transposed) for g in own]
                      for own, t in zip(grads, case.tensors, strict=True)]  # fmt: skip
        self.bind(_runtime)
        self.manifest = package.manifest

    def bind(self, runtime):
        bindings = (runtime.Binding * len(self.params))()
        self.kept = []
        for index, binding in enumerate(bindings):
            made = [self.params[index].dltensor(), self.grads[index][0].dltensor()]
            pointers = [pointer(tensor) for tensor, _ in made]
            self.kept.append((made, pointers))
            binding.group = self.case.tensors[index].group
            binding.param, binding.grad = (cast(p, c_void_p) for p in pointers)
            binding.count, binding.fresh = self.case.count, 1
        self.ids = self.plan.bind(bindings)

    def state(self, index, name, like):
        """A copy of a state, which the runtime owns."""
        from stepc import _runtime

        out = _runtime.DLTensor()
        library = self.plan._lib
        plan, tensor = self.plan._handle, ctypes.c_int64(self.ids[index])
        status = library.stepcPlanGetState(plan, tensor, name.encode(), byref(out))
        _runtime.check(library, status)
        if like.size == 0:
            return like
        shape = [out.shape[i] for i in range(out.ndim)]
        strides = [out.strides[i] * like.itemsize for i in range(out.ndim)]
        extent = 1 + sum((n - 1) * s // like.itemsize for n, s in zip(shape, strides, strict=True))
        flat = np.ctypeslib.as_array(
            cast(out.data, ctypes.POINTER(ctypes.c_uint8)), (extent * like.itemsize,)
        ).view(like.dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, strides).copy()

    def step(self, step):
        """Steps; what differs of what it says, or None."""
        for index, tensor in enumerate(self.case.tensors):
            grad = None if step in tensor.idle else self.grads[index][step].dltensor()
            self.plan.set_grad(self.ids[index], grad and grad[0])
        for operand in self.params:
            operand.remember()
        self.plan.step()
        for operand in self.params:
            if not operand.has_only_its_elements_changed():
                return "bytes beside a param changed"
        return self.check_rows(step)

    def check_rows(self, step):
        skipped = bool(self.plan.last_step().skipped)
        groups = {t.group for t in self.case.tensors if step not in t.idle}
        rows = [("step", "skipped", lambda name, group: float(skipped))]
        for report in self.manifest["reports"]:
            # Reports that a step did not come to are those of an earlier one.
            if not skipped:
                rows.append(("report", report["name"], self.plan.report))
        for scalar in self.manifest["scalars"]:
            rows.append(("scalar", scalar["name"], self.plan.scalar))
        for kind, name, read in rows:
            row = self.expected.get(f"{kind}:{name}")
            if row is None:
                continue
            for group in range(len(self.case.groups)):
                if kind == "report" and group not in groups:
                    continue
                value = row[step][group] if row.ndim == 2 else row[step]
                difference = first_difference(np.array([read(name, group)]), np.array([value]))
                if difference:
                    return f"{kind} {name} of group {group}, step {step}: {difference}"
        return None

    def check_end(self):
        for key, array in self.expected.items():
            prefix, slash, name = key.partition("/")
            if not slash:
                continue
            index = int(prefix[1:])
            actual = self.params[index].view if name == "param" else self.state(index, name, array)
            difference = first_difference(np.ascontiguousarray(actual), array)
            if difference:
                return f"{key}: {difference}"
        counts = [self.plan.count(i) for i in self.ids]
        skipped = self.expected.get("step:skipped", np.zeros(self.case.steps))
        for index, tensor in enumerate(self.case.tensors):
            taken = sum(s not in tensor.idle and not skipped[s] for s in range(self.case.steps))
            if counts[index] != self.case.count + taken:
                return f"count of tensor {index}: {counts[index]}"
        return None


def run_model(case, data, params, grads, expected):
    """The first difference from what is expected, or None."""
    with np.errstate(all="ignore"):
        model = Model(case, data, params, grads, expected)
        for step in range(case.steps):
            difference = model.step(step)
            if difference:
                return difference
        return model.check_end()


def in_child(environment, work):
    """`work` in a process of its own, which may crash or hang: its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        os.close(reader)
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        try:
            text = work() or ""
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode()[:4000] + b"\n")
        os._exit(0)
    os.close(writer)
    text = b""
    end = time.monotonic() + SECONDS
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([reader], [], [], max(0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            text = b"hung\n"
            break
        part = os.read(reader, 4096)
        if not part:
            text = b"crashed\n"
            break
        text += part
    os.close(reader)
    os.waitpid(child, 0)
    return text.decode().strip().splitlines()[0] if text.strip() else None


# --- Faults -------------------------------------------------------------------


def pass_faults():
    run = subprocess.run([FAULTY, "--list"], capture_output=True, text=True, check=True)
    return [line.split("\t")[0] for line in run.stdout.splitlines()]


def engine_faults():
    names = set()
    for path in (ROOT / "runtime").rglob("*.cpp"):
        names |= set(re.findall(r'STEPC_FAULT\(\s*"([^"]+)"\)', path.read_text()))
    return sorted(names)


def is_control(name):
    return name.startswith("control-")


class Suite:
    """All cases with what the interpreter makes of them, and their packages."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.cases = make_cases()
        self.values, batch = [], Batch()
        for index, case in enumerate(self.cases):
            params, grads = make_values(case, np.random.default_rng(index))
            self.values.append((params, grads))
            arrays, settings = describe(case, params, grads)
            batch.add(case.files[0], arrays, **settings)
        self.expected = batch.run()
        self.packages = [None] * len(self.cases)

    def compile(self, compiler, index, output, arguments=()):
        case = self.cases[index]
        command = [compiler, *arguments, *(f"--variant={r}" for r in case.requests), "-o", output]
        return subprocess.run([*command, case.files[0]], capture_output=True, text=True,
                              check=False)  # fmt: skip

    def compile_sound(self, index):
        output = self.folder / f"{index}.stepc"
        fragments = [f"--fragment={path}" for path in self.cases[index].files[1:]]
        run = self.compile(driver.STEPC, index, output, fragments)
        assert run.returncode == 0, run.stderr
        return output.read_bytes()

    def compile_faulty(self, index, name):
        """The package's bytes; or None and what happened."""
        output = self.folder / f"{index}-{name}.stepc"
        run = self.compile(FAULTY, index, output, [f"--fault={name}", *self.cases[index].files[1:]])
        if run.returncode == NOWHERE:
            return None, None
        if run.returncode != 0:
            lines = [line for line in run.stderr.splitlines() if "error" in line]
            return None, "refused: " + (lines[0] if lines else f"status {run.returncode}")
        data = output.read_bytes()
        output.unlink()
        return data, None

    def run(self, index, data, environment):
        params, grads = self.values[index]
        return in_child(environment, lambda: run_model(
            self.cases[index], data, params, grads, self.expected[index]))  # fmt: skip

    def try_fault(self, name, is_engine):
        """Where it had a place, and the first case that saw it with what it saw."""
        places = 0
        for index, case in enumerate(self.cases):
            if is_engine:
                data = self.packages[index]
                environment = {"STEPC_FAULT": name, "STEPC_RUNTIME_LIBRARY": str(FAULTY_LIBRARY)}
                message = None
            else:
                data, message = self.compile_faulty(index, name)
                environment = {"STEPC_RUNTIME_LIBRARY": str(LIBRARY)}
            if data is not None:
                message = self.run(index, data, environment)
            elif message is None:
                continue
            places += 1
            if message:
                return places, case.name, message
        return places, None, None


suite = None


def prepare(index):
    return suite.compile_sound(index)


def check_sound(index):
    return suite.run(index, suite.packages[index], {"STEPC_RUNTIME_LIBRARY": str(LIBRARY)})


def try_one(job):
    name, is_engine = job
    begin = time.monotonic()
    outcome = suite.try_fault(name, is_engine)
    return name, *outcome, time.monotonic() - begin


def is_right(name, places, case):
    return places > 0 and (case is None) == is_control(name)


def run_all(chosen=(), report=print):
    """Tries all faults, or those chosen; returns the names of the wrong ones."""
    global suite
    jobs = [(name, False) for name in pass_faults()] + [(name, True) for name in engine_faults()]
    jobs = [job for job in jobs if not chosen or job[0] in chosen]
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(folder)
        with fork.Pool(2) as pool:
            suite.packages = pool.map(prepare, range(len(suite.cases)), chunksize=1)
        # Workers are forked anew, with the packages.
        with fork.Pool(2) as pool:
            for case, message in zip(
                suite.cases,
                pool.map(check_sound, range(len(suite.cases)), chunksize=1),
                strict=True,
            ):
                assert message is None, f"without a fault, {case.name} differs: {message}"
            names, wrong = [], []
            for name, places, case, message, seconds in pool.imap(try_one, jobs, chunksize=1):
                right = is_right(name, places, case)
                names.append(name)
                wrong += [] if right else [name]
                verdict = f"{case}: {message}" if case else "equal" if places else "has no place"
                report(f"{'  ' if right else '! '}{name:36} {seconds:5.1f} s  {verdict[:120]}")
    faults = [name for name in names if not is_control(name)]
    controls = [name for name in names if is_control(name)]
    caught = sum(name not in wrong for name in faults)
    equal = sum(name not in wrong for name in controls)
    report(f"{caught} of {len(faults)} faults caught; "
           f"{equal} of {len(controls)} controls equal")  # fmt: skip
    return wrong


if __name__ == "__main__":
    sys.exit(1 if run_all(sys.argv[1:]) else 0)
