# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of compiled packages through the runtime's C ABI, and their check.

Every operand lies in memory of its own, with a filled border and at a chosen
distance from an aligned address; bytes that are none of the operand's must stay
as they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from ctypes import POINTER, byref, c_int64, c_void_p, pointer

import numpy as np
from formulas import state_names
from oracle import ROOT, ZOO, Batch, first_difference, special_values, store
from stepc import _library, _runtime, _structures
from stepc._structures import Binding, DLTensor

STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))

# Storage types of parameter, gradient and states.
STORAGES = [("f32", "f32", "f32"), ("bf16", "bf16", "f32"), ("f64", "f64", "f64"),
            ("bf16", "bf16", "bf16"), ("f32", "bf16", "bf16")]  # fmt: skip

BORDER = 64  # bytes
FILL = 0xA5


# --- Memory -------------------------------------------------------------------


class Operand:
    """An array in memory of its own: ``view`` is what the runtime is given.

    ``offset`` is the distance of the first element from an aligned address, in
    elements. ``strides``, in elements, may leave gaps.
    """

    def __init__(self, values, offset=0, strides=None):
        item = values.itemsize
        if strides is None:
            # numpy's own are all 0 where there is no element.
            strides = np.empty([max(n, 1) for n in values.shape], "i1").strides
        extent = 1 + sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True))
        extent = extent if values.size else 0
        size = (offset + extent) * item + 2 * BORDER
        memory = np.full(size + 64, FILL, dtype=np.uint8)
        start = -memory.ctypes.data % 64
        self.memory = memory[start : start + size]
        at = BORDER + offset * item
        flat = self.memory[at : at + extent * item].view(values.dtype)
        self.view = np.lib.stride_tricks.as_strided(
            flat, values.shape, [s * item for s in strides], writeable=True
        )
        self.view[...] = values
        self.strides = strides
        self.before = None

    def remember(self):
        self.before = self.memory.copy()

    def has_only_its_elements_changed(self):
        """True where every byte beside the elements is as it was."""
        elements = self.view.copy()
        after = self.memory.copy()
        old = np.ndarray(
            self.view.shape, self.view.dtype, self.before,
            self.view.ctypes.data - self.memory.ctypes.data, self.view.strides,
        )  # fmt: skip
        self.view[...] = old
        same = np.array_equal(self.memory, self.before)
        self.memory[...] = after
        assert first_difference(self.view, elements) is None
        return same

    def dltensor(self):
        """A DLTensor, and what it borrows."""
        rank = self.view.ndim
        shape = (c_int64 * max(rank, 1))(*self.view.shape)
        strides = (c_int64 * max(rank, 1))(*map(int, self.strides))
        code = 4 if self.view.dtype == np.uint16 else 2
        tensor = DLTensor(
            data=self.view.ctypes.data,
            device=_structures.DLDevice(1, 0),
            ndim=rank,
            dtype=_structures.DLDataType(code, 8 * self.view.itemsize, 1),
            shape=ctypes.cast(shape, POINTER(c_int64)),
            strides=ctypes.cast(strides, POINTER(c_int64)),
        )
        return tensor, (shape, strides)


def compile_package(path, folder, name, arguments=()):
    """The bytes of a package with the variants that are asked for."""
    output = folder / f"{name}.stepc"
    run = subprocess.run(
        [STEPC, path, "-o", output, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return output.read_bytes()


# --- Plans --------------------------------------------------------------------


class Plan(_runtime.Plan):
    """A plan with a chosen chunk size, and steps in parts."""

    def __init__(self, package, threads=0, chunk=0):
        self._lib = package._lib
        self._handle = c_void_p()
        config = _structures.PlanConfig(ctypes.sizeof(_structures.PlanConfig), threads, 0, chunk)
        self._check(self._lib.stepcPlanCreate(package.handle, byref(config), byref(self._handle)))
        self._step = self._lib.stepcStep

    def _check(self, status):
        _library.check(self._lib, status)

    def step_in_parts(self, parts):
        """One step: the tensors of each list of ids by a call of its own."""
        self._check(self._lib.stepcStepBegin(self._handle))
        for ids in parts:
            array = (c_int64 * max(len(ids), 1))(*ids)
            self._check(self._lib.stepcStepTensors(self._handle, array, c_int64(len(ids))))
        self._check(self._lib.stepcStepEnd(self._handle))


class Tensors:
    """Tensors of one optimizer, storage and group: their operands, bound to a plan."""

    def __init__(self, name, storages, hypers, options, rows):
        """``rows`` are dicts of operands by name."""
        self.name, self.storages = name, storages
        self.hypers, self.options = hypers, options
        self.rows = rows
        self.states = state_names(name, hypers, options)
        self.count, self.fresh = 0, False
        self.plan, self.ids = None, []

    def bind(self, package, count=0, fresh=False, **settings):
        """Binds all tensors; ``settings`` are the plan's."""
        self.plan = Plan(package, **settings)
        self.count, self.fresh = count, fresh
        order = [hyper["name"] for hyper in package.manifest["hypers"]]
        group = self.plan.add_group(self.options, tuple(self.hypers[name] for name in order))
        bindings, keep = (Binding * len(self.rows))(), []
        for binding, row in zip(bindings, self.rows, strict=True):
            made = {name: operand.dltensor() for name, operand in row.items()}
            pointers = {name: pointer(tensor) for name, (tensor, _) in made.items()}
            states = (c_void_p * max(len(self.states), 1))(
                *(ctypes.cast(pointers[name], c_void_p) for name in self.states)
            )
            keep.append((made, pointers, states))
            binding.group = group
            binding.param = ctypes.cast(pointers["param"], c_void_p)
            binding.grad = ctypes.cast(pointers["grad"], c_void_p)
            binding.states = ctypes.cast(states, c_void_p)
            binding.numStates = len(self.states)
            binding.count, binding.fresh = count, int(fresh)
        self.ids = self.plan.bind(bindings)
        return self

    def new_gradients(self, seed):
        """Other values in the gradients' memory."""
        rng = np.random.default_rng(seed)
        for row in self.rows:
            view = row["grad"].view
            view[...] = random_array(rng, view.shape, self.storages[1])

    def step(self, checker, take=None, mode=None):
        """Steps by ``take(plan)`` in the context ``mode``, and hands the step to the checker."""
        for row in self.rows:
            for operand in row.values():
                operand.remember()
        before = self.concatenated()
        with mode or contextlib.nullcontext():
            (take or Plan.step)(self.plan)
        for row in self.rows:
            for name, operand in row.items():
                assert operand.has_only_its_elements_changed(), f"bytes beside {name} changed"
            assert np.array_equal(row["grad"].memory, row["grad"].before), "the gradient changed"
        self.count += 1
        checker.add(self, before, self.concatenated(), self.count, self.fresh)
        self.fresh = False

    def concatenated(self):
        """One flat array for each name: the operations are element by element."""
        return {
            name: np.concatenate([row[name].view.ravel() for row in self.rows])
            for name in self.rows[0]
        }


class Checker:
    """Steps that compiled code took, to be compared with the interpreter's."""

    def __init__(self):
        self.batch, self.expected = Batch(), []

    def add(self, tensors, before, after, count, fresh):
        self.batch.add(
            ZOO / f"{tensors.name}.mlir", before, hypers=json_numbers(tensors.hypers),
            options=tensors.options, count=count, fresh=fresh,
        )  # fmt: skip
        names = ["param", *tensors.states]
        self.expected.append({name: after[name] for name in names})

    def verify(self):
        assert self.expected, "nothing was checked"
        for index, (interpreted, compiled) in enumerate(
            zip(self.batch.run(), self.expected, strict=True)
        ):
            assert interpreted.keys() == compiled.keys()
            for name, array in interpreted.items():
                difference = first_difference(compiled[name], array)
                line = self.batch.lines[index]
                assert difference is None, f"step {index}, {name}: {difference}\n{line}"


def json_numbers(hypers):
    """JSON has no infinities."""
    return {k: v if np.isfinite(v) else str(v) for k, v in hypers.items()}


# --- Values -------------------------------------------------------------------


def random_array(rng, shape, storage, positive=False):
    """Numbers of all sizes; one in four is a zero, a denormal, an infinity, NaN or an edge."""
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 6, shape))
    kind = np.float64 if storage == "f64" else np.float32
    special = rng.choice(special_values(kind), shape).astype("f8")
    values = np.where(rng.random(shape) < 0.25, special, values)
    if storage == "f16":  # whose range is so small that few of these are within
        own = rng.choice(special_values(np.float16), shape).astype("f8")
        values = np.where(rng.random(shape) < 0.1, own, values)
    with np.errstate(invalid="ignore"):  # signaling NaN
        values = values if storage == "f64" else values.astype(np.float32)
    return store(np.abs(values) if positive else values, storage)


def make_rows(name, storages, hypers, options, shapes, place=None, seed=0):
    """Operands with random values: a row for each shape.

    ``place(row, operand, shape)`` says where: a dict with ``offset`` and
    ``strides`` of Operand.
    """
    rng = np.random.default_rng(seed)
    types = {"param": storages[0], "grad": storages[1]}
    types.update(dict.fromkeys(state_names(name, hypers, options), storages[2]))
    rows = []
    for index, shape in enumerate(shapes):
        row = {}
        for position, (operand, storage) in enumerate(types.items()):
            values = random_array(rng, shape, storage, positive=operand.endswith("_sq"))
            where = place(index, position, shape) if place else {}
            row[operand] = Operand(values, **where)
        rows.append(row)
    return rows


def make_tensors(name, storages, hypers, options, shapes, place=None, seed=0):
    rows = make_rows(name, storages, hypers, options, shapes, place, seed)
    return Tensors(name, storages, hypers, options, rows)
