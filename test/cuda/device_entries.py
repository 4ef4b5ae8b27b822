# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks whose tensors are bound with entries, on devices of the double (test/sharding/entries.py
has them on the processor)."""

import ctypes
import sys
from pathlib import Path

import numpy as np
from device_models import CUDA
from device_ranks import Meetings, StreamCommunicator, run_ranks
from double import ROOT, compile_package, make_zip
from stepc import _runtime as runtime
from stepc import _structures as structures
from stepc._mesh import SimulatedWorld

sys.path += [str(ROOT / "test" / name) for name in ("sharding", "exact", "interpreter")]
import entries
from definitions import Definition
from entries import Entry, Model, Run, Tensor, compare, group_of, run_alone
from values import fill

__all__ = [
    "Definition", "DeviceRun", "DeviceWorld", "Entry", "Model", "Tensor", "compare",
    "compile_models", "fill", "run_alone",
]  # fmt: skip


class DeviceOperand:
    """An array in a device's memory: ``view`` is a copy of it."""

    def __init__(self, double, device, values):
        self.double, self.device = double, device
        self.like = np.array(values, order="C")
        self.address = double.take(values.nbytes, device)
        self.write(self.like)

    def write(self, values):
        if self.like.nbytes:
            self.double.put(self.address, np.ascontiguousarray(values), self.device)

    @property
    def view(self):
        return (
            self.double.get(self.address, self.like, self.device) if self.like.nbytes else self.like
        )

    def describe(self, storage):
        self.shape = (ctypes.c_int64 * max(self.like.ndim, 1))(*self.like.shape)
        self.tensor = structures.DLTensor(
            self.address, structures.DLDevice(CUDA, self.device), self.like.ndim,
            structures.DATA_TYPES[storage],
            ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64)), None, 0,
        )  # fmt: skip
        return self.tensor


class DeviceRun(Run):
    """A plan of one rank on a device, with the stream that it has."""

    def __init__(self, model, package, communicator, rank, double, device):
        self.double, self.device = double, device
        self.communicator = communicator
        self.stream = double.make_stream(device)
        super().__init__(model, package, communicator.struct, rank)

    def make_plan(self, package):
        plan = runtime.Plan(package, threads=1)
        plan.set_cuda(self.device, stream=self.stream)
        return plan

    def make_operand(self, values, storage):
        made = DeviceOperand(self.double, self.device, values)
        return made, made.describe(storage)

    def spoil(self, number):
        mesh, entry = self.model.mesh, self.model.tensors[number].entry
        if len(group_of(mesh, self.rank, entry.partial)) > 1:
            grad = self.grads[number]
            code = self.double.synchronize(self.stream, self.device)
            assert code == 0
            grad.write(np.full_like(grad.like, 0x7FC0 if grad.like.dtype == np.uint16 else np.nan))

    def read(self, address, like):
        return self.double.get(address, like, self.device)


class DeviceWorld:
    """All ranks of a model, each on a thread when they step."""

    def __init__(self, model, package, double, devices=1, transfers=True):
        self.model, self.double = model, double
        self.world = SimulatedWorld(model.mesh, 20_000)
        self.meetings = Meetings(model.mesh)
        self.communicators = [
            StreamCommunicator(self.world.communicator(rank), double, rank % devices, rank,
                               self.meetings if transfers else None)
            for rank in range(model.world)
        ]  # fmt: skip
        self.runs = [
            DeviceRun(model, package, own, rank, double, rank % devices)
            for rank, own in enumerate(self.communicators)
        ]

    def each(self, work):
        return run_ranks(self.model.mesh, lambda rank: work(self.runs[rank]))

    def step(self, step):
        self.each(lambda run: run.step(step))

    def synchronize(self):
        """What is left on the streams, of all ranks at once."""
        for run in self.runs:
            assert self.double.synchronize(run.stream, run.device) == 0
        assert self.meetings.fault == "" and self.double.fault() == ""

    def compare(self, package):
        self.synchronize()
        alone = run_alone(self.model, package)
        return next(filter(None, (compare(self.model, run, alone) for run in self.runs)), "")


class DevicePackages(entries.Packages):
    """With code for the processor and for the double."""

    def compile(self, definition, variants, name):
        folder = self.folder / name
        folder.mkdir()
        flags = [*definition.arguments(), *(f"--variant={spec}" for spec in sorted(variants))]
        return make_zip(compile_package(Path(definition.path), flags, folder))


def compile_models(models, folder):
    packages = DevicePackages(folder)
    packages.prepare(models)
    return packages
