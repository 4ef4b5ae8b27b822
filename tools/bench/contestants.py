"""A contestant of a case: a way to get ready for a step, and the step.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import importlib.util
import os
from pathlib import Path

import kernel
import torch
from filling import fill
from optimizers import ENTRIES

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "frontend" / "optimizers" / "adamw.mlir"


class Native:
    """Something that has its own memory and no tensors."""

    def __init__(self, step):
        self.step = step

    alone = None

    def before(self):
        pass

    def after(self):
        pass


class Torch:
    """An optimizer object over its own parameters.

    Each step sees gradient tensors that are new: other objects at other
    addresses, as after `zero_grad(set_to_none=True)`. With `fixed` they stay.
    """

    def __init__(self, make, shapes, dtype, gradients, fixed=False):
        generator = torch.Generator().manual_seed(1)
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.params = [
            torch.nn.Parameter(
                fill(torch.empty(shape, dtype=kind), lambda t: t.normal_(generator=generator))
            )
            for shape in shapes
        ]
        self.gradients, self.fixed = gradients, fixed
        if fixed:
            self._new_gradients()
        self.optimizer = make(self.params)
        self.step = self.optimizer.step

    @property
    def alone(self):
        """The kernel on this optimizer's own tensors, or None where it is not ours."""
        binding = getattr(self.optimizer, "_binding", None)
        return binding and binding.plan.step

    def _new_gradients(self):
        for param, gradient in zip(self.params, self.gradients, strict=True):
            param.grad = gradient.clone()

    def before(self):
        if not self.fixed:
            self._new_gradients()

    def after(self):
        if not self.fixed:
            self.optimizer.zero_grad(set_to_none=True)


def why_absent(name):
    """A reason when a contestant cannot take part here, else None."""
    entry = ENTRIES[name]
    if importlib.util.find_spec(entry.needs) is None:
        return "not installed"
    if entry.kind == "ours":
        for variable in ("STEPC_COMPILER", "STEPC_RUNTIME_LIBRARY"):
            if not os.path.exists(os.environ.get(variable, "")):
                return "not built"
        if not (ROOT / "frontend" / "stepc" / "torch" / "__init__.py").exists():
            return "not built"
    return None


def _our_kernel(case):
    package = case.folder / f"adamw-{case.dtype}.stepc"
    kernel.compile_package(DEFINITION, case.dtype, package)
    return kernel.Kernel(package, case.arena, case.shapes, case.dtype, case.threads).step


# Those without tensors: what a step of a `case.Case` is.
WITHOUT_TENSORS = {
    "stream": lambda case: case.stream.fast,
    "stream-plain": lambda case: case.stream.plain,
    "stream-one-state": lambda case: case.stream_of_one_state(),
    "stream-f32": lambda case: case.stream_of("f32").fast,
    "read-gradient": lambda case: case.read_of_gradient(),
    "kernel": _our_kernel,
}


def make(name, case):
    """Makes a contestant of a `case.Case`."""
    if name in WITHOUT_TENSORS:
        return Native(WITHOUT_TENSORS[name](case))
    entry = ENTRIES[name]
    return Torch(entry.make, case.shapes, case.dtype, case.gradients, entry.fixed)
