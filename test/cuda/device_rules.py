# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose tensors take the rules that the plan chooses, with states of any shape that the
plan allocates; and packages of the tiles space, with rounds.
"""

import ctypes

import numpy as np
from device_models import (
    DTYPES,
    DeviceMemory,
    Memory,
    Model,
    Operand,
    Tensor,
    get_hypers,
    make_values,
    name_variants,
)  # fmt: skip
from double import ZOO, compile_package, make_zip, read_interface
from stepc import _structures as structures
from stepc._runtime import Package

STORAGES = {
    "param=f32": ("f32", "f32"),
    "param=bf16,grad=bf16,state=f32": ("bf16", "bf16"),
}
# Shape, offset in elements from 64 bytes, whether the gradient is transposed: leaves of 64
# rows and of 1024 columns, tiles of 4096 columns, and what is left of them.
SPECS = [
    ((67, 1031), 0, False),
    ((2, 4100), 0, False),
    ((1500,), 1, False),
    ((3, 5, 7), 0, False),
    ((33, 70), 3, False),
    ((31, 12), 1, True),
    ((0, 4), 0, False),
    ((1,), 0, False),
]
# Less than that, for tests of rounds.
FEW = [((3, 70), 0, False), ((37,), 1, False), ((7, 5), 0, True), ((1,), 0, False)]


class RuleTensor(Tensor):
    """A parameter and its gradient."""

    def __init__(self, memory, storages, name, shape, offset, transposed, seed):
        self.name, self.own_states = name, True
        self.count = int(np.prod(shape))
        self.operands = []
        for k, (role, storage) in enumerate(zip(("param", "grad"), storages, strict=True)):
            values = make_values(storage, self.count, 100 * seed + k)
            strides = [1, shape[0]] if transposed and role == "grad" else None
            own = Operand(memory, values, offset, shape, strides)
            own.role, own.storage = role, storage
            own.describe(storage)
            self.operands.append(own)


class RuleModel(Model):
    """Each of the tensors in each of the storages, over groups by turns."""

    def __init__(self, package, memory, specs=FEW, storages=STORAGES, groups=1, begin=True,
                 hypers=None, **cuda):  # fmt: skip
        self.package, self.memory, self.cuda = package, memory, cuda
        self.hypers = hypers or get_hypers(package.manifest)
        self.tensors = [
            RuleTensor(memory, STORAGES[name], f"w{v}.{s}", *spec, 10 * v + s)
            for v, name in enumerate(storages)
            for s, spec in enumerate(specs)
        ]
        self.bindings = [tensor.binding(k % groups) for k, tensor in enumerate(self.tensors)]
        self.groups = list(range(groups))
        if begin:
            self.begin()

    def states(self, tensor):
        """All states of a tensor, as they lie in the plan's memory."""
        names = {o["name"]: o["storage"] for variant in self.package.manifest["variants"]
                 for o in variant["operands"] if o["role"] == "state"}  # fmt: skip
        for name, storage in sorted(names.items()):
            out = structures.DLTensor()
            if self.package._lib.stepcPlanGetState(
                ctypes.c_void_p(self.plan.address),
                ctypes.c_int64(tensor),
                name.encode(),
                ctypes.byref(out),
            ):
                continue
            like = np.empty(int(np.prod(out.shape[: out.ndim])), DTYPES[storage][0])
            yield self.read(out.data, like)

    def read(self, address, like):
        if self.memory.place != Memory.place:
            return self.memory.read(address, like)
        if not like.nbytes:
            return like
        return np.frombuffer(ctypes.string_at(address, like.nbytes), like.dtype)

    def results(self):
        """Parameters, states, and what rounds left."""
        manifest = self.package.manifest
        values = [
            read(item["name"], group)
            for items, read in (
                (manifest["scalars"], self.plan.scalar), (manifest["reports"], self.plan.report)
            )
            for item in items for group in self.groups
        ]  # fmt: skip
        params = [tensor.of_role("param")[0].read() for tensor in self.tensors]
        states = [state for id in self.ids for state in self.states(id)]
        return [*params, *states, np.array(values)]

    def last_step(self):
        last = self.plan.last_step()
        return last.skipped, last.skippedRound, last.numTensors

    def counts(self):
        return [self.plan.count(id) for id in self.ids]


def make_rule_members(name, folder, *fragments, storages=STORAGES, flags=()):
    """A definition of the zoo behind fragments, in variants for default hyper-parameters."""
    arguments = [f"--fragment={ZOO / 'fragments' / fragment}.mlir" for fragment in fragments]
    variants = name_variants(read_interface(name, *arguments), storages)
    return compile_package(name, [*arguments, *variants, *flags], folder)


def make_rule_package(*arguments, **options):
    return Package.from_bytes(make_zip(make_rule_members(*arguments, **options)))


def make_rule_models(package, double, **arguments):
    return (
        RuleModel(package, Memory(), **arguments),
        RuleModel(package, DeviceMemory(double), **arguments),
    )


def make_streamed(package, double, **arguments):
    """The device's model on a stream that can be captured."""
    stream = double.make_stream()
    device = RuleModel(package, DeviceMemory(double), stream=stream, **arguments)
    device.stream = stream
    return RuleModel(package, Memory(), **arguments), device


def set_grads(models, seed, overflow=False):
    """Gradients, of which the second tensor's are not finite."""
    for model in models:
        model.set_grads(seed)
        if overflow:
            grad = model.tensors[1].of_role("grad")[0]
            values = grad.read()
            values[-1] = np.inf
            grad.write(values)


def step_both(models, seed, overflow=False):
    set_grads(models, seed, overflow)
    for model in models:
        model.plan.step()
