"""Our kernel alone: a package stepped through the C interface, on memory of an arena.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import ctypes
import math
import os
import subprocess
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
    sizeof,
)

DL_FLOAT, DL_BFLOAT, DL_CPU = 2, 4, 1
DTYPES = {"f32": (DL_FLOAT, 32), "bf16": (DL_BFLOAT, 16)}


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class PlanConfig(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_threads", c_int32),
        ("huge_pages", c_int32),
        ("chunk_elements", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class Binding(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("group", c_int64),
        ("param", POINTER(DLTensor)),
        ("grad", POINTER(DLTensor)),
        ("grad_dtype", DLDataType),
        ("states", POINTER(POINTER(DLTensor))),
        ("num_states", c_int64),
        ("count", c_int64),
        ("fresh", c_int32),
        ("reserved0", c_int32),
        ("count_mirror", c_void_p),
    ]


def compile_package(definition, dtype, path):
    """Calls the compiler; its defaults, but the storage types of a case."""
    command = [os.environ["STEPC_COMPILER"], str(definition), "-o", str(path)]
    command += [f"--param={dtype}", f"--grad={dtype}"]
    subprocess.run(command, check=True)


def dl_tensor(address, dtype, elements):
    code, bits = DTYPES[dtype]
    shape, stride = (c_int64 * 1)(elements), (c_int64 * 1)(1)
    kind = DLDataType(code, bits, 1)
    tensor = DLTensor(address, DL_CPU, 0, 1, kind, shape, stride, 0)
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
            states = (POINTER(DLTensor) * 2)(ctypes.pointer(m), ctypes.pointer(v))
            binding.struct_size = sizeof(Binding)
            binding.param, binding.grad = ctypes.pointer(p), ctypes.pointer(g)
            binding.states, binding.num_states = states, 2
            self.keep.append((p, g, m, v, states))
            offset += size
        self._call("stepcPlanBind", self.plan, bindings, c_int64(len(sizes)), None)

    def step(self):
        if self.stepc_step(self.plan) != 0:
            raise RuntimeError(self.native_library.stepcLastErrorMessage().decode())

    def close(self):
        self.native_library.stepcPlanDestroy(self.plan)
        self.native_library.stepcPackageDestroy(self.package)
