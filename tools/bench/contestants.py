"""Who takes part in a case: each with a way to get ready for a step, and the step.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import importlib.util
import os
from pathlib import Path

import kernel
import torch

LR = 1e-3
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
            torch.empty(shape, dtype=kind).normal_(generator=generator).requires_grad_()
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


def torch_adamw(**options):
    return lambda params: torch.optim.AdamW(params, lr=LR, **options)


def deepspeed(params):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(params, lr=LR, weight_decay=1e-2, adamw_mode=True)


def ours(params):
    import stepc.torch

    return stepc.torch.AdamW(params, lr=LR)


def ours_static(params):
    import stepc.torch

    return stepc.torch.AdamW(params, lr=LR, static_grads=True)


# name -> what the table calls it, how the optimizer is made, are gradients fixed
FROM_PYTHON = {
    "stepc": ("stepc.torch.AdamW", ours, False),
    "stepc-static": ("stepc.torch.AdamW, static_grads", ours_static, True),
    "fused": ("torch AdamW fused", torch_adamw(fused=True), False),
    "foreach": ("torch AdamW foreach", torch_adamw(foreach=True), False),
    "for-loop": ("torch AdamW for-loop", torch_adamw(foreach=False), False),
    "deepspeed": ("DeepSpeedCPUAdam", deepspeed, False),
}
LABELS = {
    "stream": "in-place stream (the limit)",
    "stream-plain": "in-place stream, no prefetch",
    "stream-f32": "in-place stream of f32",
    "kernel": "stepc, the kernel alone",
    **{name: label for name, (label, _, _) in FROM_PYTHON.items()},
}
PEERS = ("fused", "foreach", "for-loop", "deepspeed")
OURS = ("kernel", "stepc", "stepc-static")


def why_absent(name):
    """A reason when a contestant cannot take part here, else None."""
    if name == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
        return "not installed"
    if name in OURS:
        for variable in ("STEPC_COMPILER", "STEPC_RUNTIME_LIBRARY"):
            if not os.path.exists(os.environ.get(variable, "")):
                return "not built"
        if not (ROOT / "frontend" / "stepc" / "torch" / "__init__.py").exists():
            return "not built"
    return None


def make(name, case):
    """Makes a contestant of a `case.Case`."""
    if name == "stream":
        return Native(case.stream.fast)
    if name == "stream-plain":
        return Native(case.stream.plain)
    if name == "stream-f32":
        return Native(case.stream_of("f32").fast)
    if name == "kernel":
        package = case.folder / f"adamw-{case.dtype}.stepc"
        kernel.compile_package(DEFINITION, case.dtype, package)
        alone = kernel.Kernel(package, case.arena, case.shapes, case.dtype, case.threads)
        return Native(alone.step)
    _, how, fixed = FROM_PYTHON[name]
    return Torch(how, case.shapes, case.dtype, case.gradients, fixed)
