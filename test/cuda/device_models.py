# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same tensors bound twice: in the processor's memory and in a device's."""

import ctypes

import numpy as np
from stepc import _runtime as runtime
from stepc import _structures as structures

CPU, CUDA = 1, 2
DTYPES = {
    "f32": (np.float32, (2, 32)),
    "f64": (np.float64, (2, 64)),
    "bf16": (np.uint16, (4, 16)),
    "i16": (np.int16, (0, 16)),
}
HYPERS = {"lr": 0.02, "weight_decay": 0.03, "momentum": 0.9, "lambd": 0.01}


def make_values(storage, count, seed):
    values = np.random.default_rng(seed).standard_normal(count)
    values[:: max(1, count // 5)] = -0.0
    values[1 :: max(2, count // 3)] = 1e-41
    if storage == "i16":
        return np.zeros(count, np.int16)
    if storage != "bf16":
        return values.astype(DTYPES[storage][0])
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bits(array):
    """The array's bits, with one NaN for all."""
    if array.dtype == np.int16:
        return array
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    array = array.copy()
    array[np.isnan(array)] = np.nan
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


class Memory:
    """Memory of the process, in place of a device's."""

    place = CPU, 0

    def place_array(self, values, offset):
        room = np.zeros(values.nbytes + 128, np.uint8)
        begin = -room.ctypes.data % 64 + offset * values.itemsize
        view = room[begin : begin + values.nbytes].view(values.dtype)
        view[:] = values
        return view.ctypes.data, view

    def read(self, address, array):
        return array.copy()

    def write(self, address, array, values):
        array[:] = values


class DeviceMemory:
    """Memory of a device of the double."""

    def __init__(self, double, device=0):
        self.double, self.device = double, device
        self.place = CUDA, device

    def place_array(self, values, offset):
        size = values.nbytes + offset * values.itemsize
        address = self.double.take(size, self.device) + offset * values.itemsize
        if values.nbytes:
            self.double.put(address, values, self.device)
        return address, values

    def read(self, address, array):
        return self.double.get(address, array, self.device) if array.nbytes else array.copy()

    def write(self, address, array, values):
        if values.nbytes:
            self.double.put(address, values, self.device)


class Operand:
    def __init__(self, memory, values, offset, shape, strides=None):
        self.memory = memory
        self.address, self.array = memory.place_array(values, offset)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = strides and (ctypes.c_int64 * len(strides))(*strides)

    def describe(self, storage):
        code, size = DTYPES[storage][1]
        pointer = ctypes.POINTER(ctypes.c_int64)
        strides = ctypes.cast(self.strides, pointer) if self.strides else None
        rank = len(self.strides) if self.strides else len(self.shape)
        self.tensor = structures.DLTensor(
            self.address, structures.DLDevice(*self.memory.place), rank,
            structures.DLDataType(code, size, 1), ctypes.cast(self.shape, pointer), strides, 0,
        )  # fmt: skip
        return self.tensor

    def read(self):
        return self.memory.read(self.address, self.array)

    def write(self, values):
        self.memory.write(self.address, self.array, values)


class Tensor:
    """One bound tensor with its operands, the states being given by the caller."""

    def __init__(self, memory, variant, name, shape, offset, transposed, seed, own_states=False):
        self.name, self.variant, self.own_states = name, variant, own_states
        count = int(np.prod(shape))
        self.operands, self.described = [], []
        for k, operand in enumerate(variant["operands"]):
            values = make_values(operand["storage"], count, 100 * seed + k)
            if operand["role"] == "state":
                values = np.zeros_like(values) + np.array(operand["init"], values.dtype)
            strides = [1, shape[0]] if transposed and operand["role"] == "grad" else None
            own = Operand(memory, values, offset, shape, strides)
            own.role, own.storage = operand["role"], operand["storage"]
            own.describe(operand["storage"])
            self.operands.append(own)
        self.count = count

    def of_role(self, role):
        return [operand for operand in self.operands if operand.role == role]

    def binding(self, group):
        states = self.of_role("state")
        self.states = (ctypes.c_void_p * max(len(states), 1))(
            *(ctypes.addressof(state.tensor) for state in states)
        )
        binding = structures.Binding()
        binding.name, binding.group, binding.fresh = self.name.encode(), group, 1
        binding.param = ctypes.addressof(self.of_role("param")[0].tensor)
        binding.grad = ctypes.addressof(self.of_role("grad")[0].tensor)
        if not self.own_states:
            binding.states, binding.numStates = ctypes.addressof(self.states), len(states)
        return binding

    def set_grad(self, seed):
        (grad,) = self.of_role("grad")
        grad.write(make_values(grad.storage, self.count, seed))

    def results(self):
        roles = ("param",) if self.own_states else ("param", "state")
        return [operand.read() for role in roles for operand in self.of_role(role)]


# Shape, offset in elements from 64 bytes, whether the gradient is transposed.
SPECS = [
    ((1500,), 0, False),
    ((37,), 1, False),
    ((1,), 0, False),
    ((0, 4), 0, False),
    ((129, 3), 3, False),
    ((7, 5), 0, True),
    ((31, 12), 1, True),
]


class Model:
    """A plan of a package with tensors for each of the variants."""

    def __init__(self, package, memory, specs=SPECS, groups=1, own_states=False, begin=True,
                 **cuda):  # fmt: skip
        self.package, self.memory, self.cuda = package, memory, cuda
        manifest = package.manifest
        self.hypers = get_hypers(manifest)
        options = select_options(manifest, self.hypers)
        self.tensors, self.bindings = [], []
        chosen = [v for v in manifest["variants"] if options.items() <= v["options"].items()]
        for v, variant in enumerate(chosen):
            for s, (shape, offset, transposed) in enumerate(specs):
                name, seed = f"w{v}.{s}", 10 * v + s
                tensor = Tensor(
                    memory, variant, name, shape, offset, transposed, seed, own_states
                )  # fmt: skip
                self.tensors.append(tensor)
                self.bindings.append(tensor.binding(s % groups))
        self.groups = list(range(groups))
        if begin:
            self.begin()

    def begin(self):
        """Makes the plan."""
        self.plan = runtime.Plan(self.package, threads=1)
        if self.memory.place[0] == CUDA:
            self.plan.set_cuda(self.memory.place[1], **self.cuda)
        for _ in self.groups:
            self.plan.add_group({}, tuple(self.hypers))
        self.ids = self.plan.bind((structures.Binding * len(self.bindings))(*self.bindings))

    def set_grads(self, seed):
        for k, tensor in enumerate(self.tensors):
            tensor.set_grad(1000 * seed + k)

    def results(self):
        return [array for tensor in self.tensors for array in tensor.results()]


def get_hypers(manifest):
    return [HYPERS.get(hyper["name"], hyper["default"]) for hyper in manifest["hypers"]]


def name_variants(interface, storages):
    """Arguments of stepc for what a Model needs in these storages, and no other variant."""
    names = {option["name"] for option in interface["options"] if "derived" in option}
    values = select_options(interface, get_hypers(interface))
    options = "".join(f",option.{name}={str(values[name]).lower()}" for name in sorted(names))
    return [f"--variant={storage}{options}" for storage in storages]


def select_options(manifest, hypers):
    """The values of the options that a group with these hyper-parameters has."""
    compare = {
        "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
        "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    }  # fmt: skip
    values = {}
    names = [hyper["name"] for hyper in manifest["hypers"]]
    for option in manifest["options"]:
        derived = option.get("derived")
        if derived:
            value = hypers[names.index(derived["hyper"])]
            values[option["name"]] = compare[derived["predicate"]](value, derived["value"])
        elif isinstance(option["default"], bool):
            values[option["name"]] = option["default"]
    return values


def assert_same(one, other):
    results = one.results(), other.results()
    for own, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(bits(own), bits(expected))
