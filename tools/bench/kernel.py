"""Our kernel alone: a package stepped through the C interface, on memory of an arena.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import ctypes
import math
import os
import subprocess
from ctypes import byref, c_char_p, c_int64, c_void_p, sizeof

from stepc._structures import DATA_TYPES, Binding, DLDevice, DLTensor, PlanConfig

DL_CPU = 1


def compile_package(definition, dtype, path):
    """Calls the compiler; its defaults, but the storage types of a case."""
    command = [os.environ["STEPC_COMPILER"], str(definition), "-o", str(path)]
    command += [f"--param={dtype}", f"--grad={dtype}"]
    subprocess.run(command, check=True)


def dl_tensor(address, dtype, elements):
    shape, stride = (c_int64 * 1)(elements), (c_int64 * 1)(1)
    tensor = DLTensor(address, DLDevice(DL_CPU, 0), 1, DATA_TYPES[dtype], shape, stride, 0)
    tensor.keep = (shape, stride)
    return tensor


class Kernel:
    """One plan: the tensors of a shape laid one after the other in an arena."""

    def __init__(self, package, arena, shapes, dtype, threads):
        self.native_library = ctypes.CDLL(os.environ["STEPC_RUNTIME_LIBRARY"])
        self.native_library.stepcLastErrorMessage.restype = c_char_p
        self.package, self.plan = c_void_p(), c_void_p()
        self._call("stepcPackageLoad", os.fsencode(package), byref(self.package))
        config = PlanConfig(sizeof(PlanConfig), threads, 1)
        self._call("stepcPlanCreate", self.package, byref(config), byref(self.plan))
        group = c_int64()
        self._call("stepcPlanAddGroup", self.plan, None, c_int64(0), None, c_int64(0), byref(group))
        self._bind(arena, [math.prod(shape) for shape in shapes], dtype)
        self.stepc_step = self.native_library.stepcStep

    def _call(self, name, *arguments):
        status = getattr(self.native_library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {self.native_library.stepcLastErrorMessage().decode()}")

    def _bind(self, arena, sizes, dtype):
        kinds = (dtype, dtype, "f32", "f32")
        bindings, self.keep = (Binding * len(sizes))(), []
        offset = 0
        for binding, size in zip(bindings, sizes, strict=True):
            p, g, m, v = (
                dl_tensor(address + offset * item, kind, size)
                for address, item, kind in zip(
                    arena.addresses, arena.item_bytes, kinds, strict=True
                )
            )
            states = (c_void_p * 2)(ctypes.addressof(m), ctypes.addressof(v))
            binding.structSize = sizeof(Binding)
            binding.param, binding.grad = ctypes.addressof(p), ctypes.addressof(g)
            binding.states, binding.numStates = ctypes.addressof(states), 2
            self.keep.append((p, g, m, v, states))
            offset += size
        self._call("stepcPlanBind", self.plan, bindings, c_int64(len(sizes)), None)

    def step(self):
        if self.stepc_step(self.plan) != 0:
            raise RuntimeError(self.native_library.stepcLastErrorMessage().decode())

    def close(self):
        self.native_library.stepcPlanDestroy(self.plan)
        self.native_library.stepcPackageDestroy(self.package)
