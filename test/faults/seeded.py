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
from ctypes import byref
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("test/exact", "test/interpreter", "frontend")]

import steps  # noqa: E402
from definitions import Definition  # noqa: E402
from driver import STEPC  # noqa: E402
from oracle import DTYPES, ZOO  # noqa: E402
from stepc._structures import DLTensor  # noqa: E402
from steps import Group  # noqa: E402

BUILD = Path(os.environ.get("STEPC_BUILD", str(ROOT / "build")))
FAULTY = BUILD / "test" / "faults" / "stepc-faulty"
LIBRARY = BUILD / "lib" / "libstepc_runtime.so"
FAULTY_LIBRARY = BUILD / "lib" / "libstepc_runtime_faulty.so"
NOWHERE = 3  # stepc-faulty's status where a fault has no place
SECONDS = 180  # that steps may take before they count as hung


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
class Case(steps.Case):
    owned: bool = False  # the runtime allocates the states


def store(values, storage):
    """Finite numbers in a storage type; as oracle.store, without importing torch."""
    if storage != "bf16":
        return np.asarray(values, DTYPES[storage])
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def make_tensor(rng, definition, tensor, storages, groups, number, count):
    """With random values: a param, and a gradient for each step."""
    shape = tensor.shape
    values = np.zeros(shape) if tensor.zero else rng.standard_normal(shape)
    arrays = {"param": store(values, storages[0])}
    for step in range(number):
        grad = rng.standard_normal(shape) * tensor.scale
        grad.flat[step % grad.size] = tensor.grads.get(step, grad.flat[step % grad.size])
        arrays[f"grad:{step}"] = store(grad, storages[1])
    arrays["grad"] = arrays["grad:0"]
    states = definition.states(shape, groups[tensor.group])
    if storages[2] == "bf16":
        arrays |= {name: np.zeros(size, np.uint16) for name, size in states.items()}
    place = {"strides": [1, *np.cumprod(shape)[:-1]]} if tensor.transposed else {}
    return steps.Tensor(
        shape, storages, arrays, group=tensor.group, count=count, fresh=True,
        participates=[step not in tensor.idle for step in range(number)],
        places={"param": place, "grad": place},
        states={"narrow": "f32"} if "narrow" in states else {},
    )  # fmt: skip


def make_case(name, files, tensors, groups=None, storages=("f32",) * 3, number=3, count=1,
              flags=(), **more):  # fmt: skip
    rng = np.random.default_rng(len(name))
    groups = [Group(hypers) for hypers in groups or [{}]]
    definition = Definition(files[0], files[1:], flags=list(flags))
    made = [make_tensor(rng, definition, t, storages, groups, number, count) for t in tensors]
    return Case(definition, groups, made, steps=number, label=name, **more)


def make_cases():
    adamw, adafactor = ZOO / "adamw.mlir", ZOO / "adafactor.mlir"
    clip, scaler = (ZOO / "fragments" / f"{n}.mlir" for n in ("clip_by_norm", "torch_scaler"))
    # More than a leaf of them, and sizes whose sum depends on its order.
    many = [Tensor((3,), group=i % 2, scale=10.0 ** (i % 7)) for i in range(70)]
    scaling = {"momentum": 0.9, "growth_interval": 1.0, "max_norm": 1e-3}
    return [
        make_case(
            "adamw", [adamw],
            [Tensor((1003,)), Tensor((7, 5), transposed=True), Tensor((37,), idle=(1,))],
            storages=("bf16",) * 3, count=3,
        ),
        make_case("adamw-narrow", [adamw], [Tensor((1003,))], storages=("f32", "bf16", "bf16")),
        make_case(
            "adamw-f64", [adamw], [Tensor((130,)), Tensor((40, 9), transposed=True)],
            [{"weight_decay": 0.1}], ("f64",) * 3,
        ),
        make_case(
            "adamw-parallel", [adamw], [Tensor((40007,)), Tensor((20001,))], number=1, threads=3,
            chunk=2048,
        ),
        make_case(
            "sgd", [ZOO / "sgd.mlir"], [Tensor((70,)), Tensor((33,), group=1)],
            [{"lr": 0.5, "momentum": 0.9, "dampening": 0.5}, {"lr": 0.1}],
        ),
        make_case(
            "adafactor", [adafactor],
            [Tensor((70, 1100)), Tensor((5, 3), group=1), Tensor((2, 65, 40)), Tensor((2100,)),
             Tensor((17,), group=1, idle=(1,)), Tensor((40, 30), transposed=True, group=1)],
            [{}, {"beta1": 0.9, "weight_decay": 0.1, "clip_threshold": 0.5}],
        ),
        # Tiles beside each other do not go by blocks of rows.
        make_case(
            "adafactor-wide", [adafactor], [Tensor((66, 4200)), Tensor((3, 16500))], number=2,
        ),
        make_case(
            "adafactor-shared", [adafactor], [Tensor((400, 700)), Tensor((390, 701))], number=1,
            threads=3, chunk=4096,
        ),
        make_case(
            "lamb", [ZOO / "lamb.mlir"],
            [Tensor((1100,)), Tensor((6,), zero=True), Tensor((4, 9), group=1)],
            [{"weight_decay": 0.1}, {"lr": 0.01}],
        ),
        make_case(
            "dadapt", [ZOO / "dadapt_adam.mlir"],
            [Tensor((50,)), Tensor((1030,), group=1, idle=(2,)), Tensor((9,), idle=(1,)),
             Tensor((4,), group=2)],
            [{"lr": 0.5, "weight_decay": 0.01}, {"lr": 2.0}, {}], number=4,
        ),
        make_case(
            "scaler", [ZOO / "sgd.mlir", scaler, clip],
            [*many, Tensor((1500,), grads={1: np.inf}), Tensor((300,), idle=(2, 3))],
            [scaling | {"lr": 0.1}, scaling | {"lr": 0.3}], number=4,
        ),
        make_case(
            "nan", [ZOO / "sgd.mlir", clip], [Tensor((20,)), Tensor((10,), grads={1: np.nan})],
            number=2,
        ),
        make_case(
            "mixed", [ROOT / "test" / "faults" / "mixed.mlir"],
            [Tensor((70, 1030), grads={1: 1e30}), Tensor((5, 3), group=1),
             Tensor((8, 9), group=1, idle=(2,)), Tensor((3, 4), group=2, idle=(0, 2))],
            [{}, {"lr": 0.7}, {}], ("f64",) * 3, owned=True,
        ),
    ]  # fmt: skip


# --- Steps of compiled code ---------------------------------------------------


class OwningLaunch(steps.Launch):
    """A launch in which the runtime has allocated the states."""

    def make_operands(self, tensor):
        row = super().make_operands(tensor)
        return {n: o for n, o in row.items() if n == "param" or steps.is_grad(n)}

    def run(self):
        results = super().run()
        for index, tensor in enumerate(self.case.tensors):
            group = self.case.groups[tensor.group]
            for name, shape in self.case.definition.states(tensor.shape, group).items():
                array = self.read(self.ids[index], name, shape, DTYPES[tensor.storage(name)])
                results[f"t{index}/{name}"] = array
        return results

    def read(self, tensor, name, shape, dtype):
        out = DLTensor()
        library, plan = self.plan._lib, self.plan._handle
        status = library.stepcPlanGetState(plan, ctypes.c_int64(tensor), name.encode(), byref(out))
        steps._library.check(library, status)
        count = int(np.prod(shape))
        memory = ctypes.string_at(out.data, count * np.dtype(dtype).itemsize)
        return np.frombuffer(memory, dtype).reshape(shape)


def run_model(case, data, expected):
    """The first difference from what is expected, or None."""
    package = steps._runtime.Package.from_bytes(data)
    launch = OwningLaunch if case.owned else steps.Launch
    with np.errstate(all="ignore"):
        found = steps.differences(launch(case, package).run(), expected)
    return next((f"{name}: {text}" for name, text in found.items()), None)


def in_child(environment, work):
    """`work` in a process of its own, which may crash or hang: its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ.update(environment)
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a crash prints
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


def is_sharded(name):
    """Whether it needs several ranks: sharded.py's."""
    return name.removeprefix("control-").startswith(("shard-", "exchange-"))


def pass_faults(sharded=False):
    run = subprocess.run([FAULTY, "--list"], capture_output=True, text=True, check=True)
    names = [line.split("\t")[0] for line in run.stdout.splitlines()]
    return [name for name in names if is_sharded(name) == sharded]


def engine_faults(sharded=False):
    names = set()
    for path in (ROOT / "runtime").rglob("*.cpp"):
        names |= set(re.findall(r'STEPC_FAULT\(\s*"([^"]+)"\)', path.read_text()))
    # Those of devices are for test/cuda, those of NCCL for test/nccl, those of codes for
    # test/codes, of stores for test/placement, and those of transfers and of blocks that ranks
    # share for exchange_faults.sh.
    elsewhere = (
        "codes-",
        "cut-codes-",
        "device-",
        "durable-",
        "nccl-",
        "placed-",
        "store-",
        "transfer-",
    )
    names = {name for name in names if not name.startswith(elsewhere)}
    return sorted(name for name in names if is_sharded(name) == sharded)


def is_control(name):
    return name.startswith("control-")


class Suite:
    """All cases with what the interpreter makes of them, and their packages."""

    sharded = False
    elsewhere = ()  # faults that other tests are for

    def __init__(self, folder):
        self.folder = Path(folder)
        self.cases = self.make_cases()
        self.expected = self.interpret()
        refused = [text for text in self.expected if isinstance(text, str)]
        assert not refused, refused
        self.packages = [None] * len(self.cases)

    def make_cases(self):
        return make_cases()

    def interpret(self):
        return steps.interpret(self.cases, jobs=2)

    def run_case(self, index, data):
        """In a process of its own: the first difference, or None."""
        return run_model(self.cases[index], data, self.expected[index])

    def compile(self, index, compiler, *arguments):
        """The package's bytes or None, the status, and what was said."""
        case = self.cases[index]
        output = self.folder / f"{index}-{os.getpid()}.stepc"
        variants = (f"--variant={variant}" for variant in sorted(case.variants()))
        run = subprocess.run(
            [compiler, case.definition.path, *arguments, *variants, "-o", output],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        data = output.read_bytes() if run.returncode == 0 else None
        output.unlink(missing_ok=True)
        return data, run.returncode, run.stderr

    def compile_sound(self, index):
        data, _, said = self.compile(index, STEPC, *self.cases[index].definition.arguments())
        assert data, said
        return data

    def compile_faulty(self, index, name):
        """The package's bytes; or None, and what happened if the fault has a place."""
        definition = self.cases[index].definition
        more = [*definition.flags, *definition.fragments]
        data, status, said = self.compile(index, FAULTY, f"--fault={name}", *more)
        if data or status == NOWHERE:
            return data, None
        lines = [line for line in said.splitlines() if "error" in line]
        return None, "refused: " + (lines[0] if lines else f"status {status}")

    def run(self, index, data, environment):
        return in_child(environment, lambda: self.run_case(index, data))

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
                return places, case.label, message
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


def run_all(chosen=(), report=print, make=Suite):
    """Tries all faults, or those chosen; returns the names of the wrong ones."""
    global suite
    jobs = [(name, False) for name in pass_faults(make.sharded)]
    jobs += [(name, True) for name in engine_faults(make.sharded)]
    jobs = [job for job in jobs if job[0] in chosen or not chosen]
    jobs = [job for job in jobs if job[0] not in make.elsewhere]
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        suite = make(folder)
        with fork.Pool(2) as pool:
            suite.packages = pool.map(prepare, range(len(suite.cases)), chunksize=1)
        # Workers are forked anew, with the packages.
        with fork.Pool(2) as pool:
            for case, message in zip(
                suite.cases,
                pool.map(check_sound, range(len(suite.cases)), chunksize=1),
                strict=True,
            ):
                assert message is None, f"without a fault, {case.label} differs: {message}"
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
