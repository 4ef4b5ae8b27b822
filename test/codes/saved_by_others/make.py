#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the files beside it: states that torchao and FlashOptim saved, and what their own code
makes of the codes.

    TRITON_INTERPRET=1 TORCHDYNAMO_DISABLE=1 make.py

With torchao 0.18.0, flashoptim 0.1.4 and triton 3.9.0, on a processor: FlashOptim's kernels run in
triton's interpreter, which rounds quotients, where CUDA devices divide to the last bit but one.
"""

import hashlib
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import torch

HERE = Path(__file__).resolve().parent
EXPECTED: dict = {}
NAMES = ("a.weight", "a.bias")  # of FlashOptim's parameters; torchao's have none


def digest(value):
    return hashlib.sha256(value.detach().float().contiguous().numpy().tobytes()).hexdigest()


def gradients(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)


def trained(make, shapes, dtype=torch.float32, steps=3):
    generator = torch.Generator().manual_seed(7)
    params = [
        torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes
    ]
    optimizer = make(params)
    for step in range(steps):
        gradients(params, step)
        optimizer.step()
    return params, optimizer


def of_torchao():
    import torchao.optim

    for name in ("AdamW8bit", "AdamW4bit", "AdamWFp8"):
        make = getattr(torchao.optim, name)
        _, optimizer = trained(lambda params, make=make: make(params, lr=0.01), [(32, 128), (10,)])
        saved = optimizer.state_dict()
        file = f"torchao-{name}.pt"
        torch.save(saved, HERE / file)
        EXPECTED[file] = {
            f"{number}.{key}": digest(v.dequantize() if hasattr(v, "dequantize") else v)
            for number, own in saved["state"].items()
            for key, v in own.items()
            if key != "step"
        }


class Undecorated:
    """A kernel without its tuning, which measures on a device."""

    def __init__(self, kernel):
        self.kernel = getattr(kernel, "fn", kernel)

    def __getitem__(self, _):
        return lambda *given, **named: self.kernel[(4,)](*given, **{"BLOCK_SIZE_N": 1024, **named})


class OnProcessor(torch.Tensor):
    is_cuda = True


def of_flashoptim():
    flash = importlib.import_module("flashoptim.optimizers")
    for name in ("_triton_quantize_kernel", "_triton_dequantize_kernel"):
        setattr(flash, name, Undecorated(getattr(flash, name)))
    # The interpreter has none of CUDA's own functions. A step that is not fused needs no other.
    signed = lambda a, b: flash.tl.where(b < 0, -a, a)  # noqa: E731
    flash.libdevice = SimpleNamespace(copysign=signed)
    flash._make_ecc_grid = flash._make_grid = lambda *_: (4,)
    torch.cuda.is_available = lambda: True
    own = flash._MaybeQuantizedTensor
    set_data = own.set_data
    own.set_data = lambda self, data: set_data(self, data.as_subclass(OnProcessor))
    kinds = {
        "FlashAdamW-f32": (flash.FlashAdamW, torch.float32, {"master_weight_bits": None}),
        "FlashAdamW-bf16-24": (flash.FlashAdamW, torch.bfloat16, {"master_weight_bits": 24}),
        "FlashAdamW-bf16-32": (flash.FlashAdamW, torch.bfloat16, {"master_weight_bits": 32}),
        "FlashAdamW-f16-24": (flash.FlashAdamW, torch.float16, {"master_weight_bits": 24}),
        "FlashLion-f32": (flash.FlashLion, torch.float32, {"master_weight_bits": None}),
        "FlashSGD-f32": (
            flash.FlashSGD,
            torch.float32,
            {"momentum": 0.9, "master_weight_bits": None},
        ),
    }
    for name, (kind, dtype, more) in kinds.items():
        more = {"lr": 0.01, "check_numerics": False, "fused": False, **more}
        make = lambda params, kind=kind, more=more: kind(  # noqa: E731
            list(zip(NAMES, params, strict=True)), **more
        )
        params, optimizer = trained(make, [(40, 33), (7,)], dtype)
        saved = optimizer.state_dict()
        for own_state in saved["state"].values():
            own_state.update({k: v.as_subclass(torch.Tensor) if torch.is_tensor(v) else v
                              for k, v in own_state.items()})  # fmt: skip
        file = f"flashoptim-{name}.pt"
        model = {n: p.detach().clone() for n, p in zip(NAMES, params, strict=True)}
        torch.save({"model": model, "optimizer": saved}, HERE / file)
        expected = EXPECTED[file] = {}
        for number, param in enumerate(params):
            state = optimizer.state[param]
            for key in optimizer.quantized_state_spec:
                expected[f"{number}.{key}"] = digest(state[key].materialize())
            if "error_bits" in state:
                whole = flash.reconstruct_fp32_param(param, state["error_bits"])
                expected[f"{number}."] = digest(whole)


if __name__ == "__main__":
    of_torchao()
    of_flashoptim()
    (HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=1, sort_keys=True) + "\n")
