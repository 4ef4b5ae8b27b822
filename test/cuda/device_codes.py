# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose states are codes, in memory of the plan."""

import ctypes

import numpy as np
from device_models import DeviceMemory, Memory
from device_rules import RuleModel
from stepc import _structures as structures
from stepc._codes import FORMATS

# Rows of whole blocks, and with short last ones; several dims in a row; what lies anywhere.
SPECS = [
    ((20, 192), 0, False),
    ((40, 130), 1, False),
    ((3, 1500), 0, True),
    ((11, 5, 3, 5), 3, False),
    ((0, 64), 0, False),
    ((129, 33), 0, False),
]


class CodedModel(RuleModel):
    """All states are codes, but of those tensors that `plain` says: in these formats by turns."""

    def __init__(self, package, memory, specs=SPECS, plain=(), formats=("q8",), **more):
        states = {
            len([o for o in variant["operands"] if o["role"] == "state"])
            for variant in package.manifest["variants"]
        }
        (self.num_states,) = states
        self.formats = (ctypes.c_int32 * self.num_states)(
            *(FORMATS[formats[k % len(formats)]].number for k in range(self.num_states))
        )
        self.plain = plain
        super().__init__(package, memory, specs=specs, **more)

    def begin(self):
        for k, binding in enumerate(self.bindings):
            if k not in self.plain:
                binding.formats = ctypes.addressof(self.formats)
                binding.numStates = self.num_states
        super().begin()

    def bind_more(self, specs=SPECS):
        """Tensors of these besides, of another model, whose memory is kept."""
        self.more = CodedModel(self.package, type(self.memory)(*self.place()), specs=specs)
        for k, binding in enumerate(self.more.bindings):
            binding.name = f"more {k}".encode()
        self.ids += self.plan.bind(
            (structures.Binding * len(self.more.bindings))(*self.more.bindings)
        )
        self.tensors += self.more.tensors

    def place(self):
        return (self.memory.double,) if isinstance(self.memory, DeviceMemory) else ()

    def states(self, tensor):
        """Codes and scales, or the floats where there are none."""
        names = {o["name"] for variant in self.package.manifest["variants"]
                 for o in variant["operands"] if o["role"] == "state"}  # fmt: skip
        for name in sorted(names):
            for call in ("stepcPlanGetState", "stepcPlanGetStateScales"):
                out = structures.DLTensor()
                arguments = self.plan.address, tensor
                if getattr(self.package._lib, call)(
                    *map(ctypes.c_void_p, arguments), name.encode(), ctypes.byref(out)
                ):
                    continue
                size = int(np.prod(out.shape[: out.ndim]))
                kind = {1: np.uint8, 4: np.float32}[out.dtype.bits // 8]
                yield self.read(out.data, np.empty(size, kind)).view(np.uint8).view(np.int8)


def bits_of(model):
    return [array if array.dtype == np.int8 else array.copy().view(np.uint8)
            for array in model.results()]  # fmt: skip


def assert_same_bits(models):
    host, device = map(bits_of, models)
    for k, (own, expected) in enumerate(zip(device, host, strict=True)):
        np.testing.assert_array_equal(own, expected, err_msg=f"result {k}")


def make_both(package, double, **arguments):
    return (
        CodedModel(package, Memory(), **arguments),
        CodedModel(package, DeviceMemory(double), **arguments),
    )


def make_streamed(package, double, **arguments):
    """The device's model on a stream that can be captured."""
    stream = double.make_stream()
    device = CodedModel(package, DeviceMemory(double), stream=stream, **arguments)
    device.stream = stream
    return CodedModel(package, Memory(), **arguments), device
