# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers for torch have the interpreter's bits, through all that is between."""

import formulas
import numpy as np
import pytest
import stepc.torch
import torch
import torch_formulas
from torch_formulas import torch_arguments

SHAPES = [(), (3,), (0,), (5, 7), (2, 3, 4), (1001,)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
CLASSES = {
    "adamw": stepc.torch.AdamW, "sgd": stepc.torch.SGD, "lion": stepc.torch.Lion,
    "adam": stepc.torch.Adam, "radam": stepc.torch.RAdam, "adamax": stepc.torch.Adamax,
    "adagrad": stepc.torch.Adagrad, "adadelta": stepc.torch.Adadelta,
    "rmsprop": stepc.torch.RMSprop, "rprop": stepc.torch.Rprop,
}  # fmt: skip
HYPERS = formulas.HYPERS | torch_formulas.HYPERS
OPTIONS = formulas.OPTIONS | torch_formulas.OPTIONS


def state_names(name, *settings):
    own = formulas if name in formulas.FORMULAS else torch_formulas
    return own.state_names(name, *settings)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("STEPC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def to_numpy(tensor):
    """The elements in row-major order, bf16 as their bits."""
    flat = tensor.detach().contiguous().view(-1)
    return (flat.view(torch.uint16) if flat.dtype == torch.bfloat16 else flat).numpy().copy()


class Run:
    """An optimizer on parameters, whose steps are handed to a checker."""

    def __init__(self, name, dtype, hypers, options):
        generator = torch.Generator().manual_seed(0)
        self.generator = generator
        self.params = []
        for shape in SHAPES:
            value = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
            value = value.t().contiguous().t() if len(shape) == 2 else value
            self.params.append(torch.nn.Parameter(value))
        self.name, self.hypers, self.options = name, hypers, options
        self.optimizer = CLASSES[name](self.params, **torch_arguments(name, hypers, options))
        self.count = 0

    def arrays(self):
        names = state_names(self.name, self.hypers, self.options)
        result = {"param": [to_numpy(p) for p in self.params]}
        for name in names:
            states = [self.optimizer.state[p].get(name) for p in self.params]
            if all(state is not None for state in states):
                result[name] = [to_numpy(state) for state in states]
        return {name: np.concatenate(parts) for name, parts in result.items()}

    def step(self, checker):
        for param in self.params:
            grad = torch.randn(param.shape, generator=self.generator, dtype=torch.float64)
            param.grad = grad.to(param.dtype)
        before = self.arrays()
        # A state that does not exist yet is created by this step.
        fresh = len(before) == 1
        before["grad"] = np.concatenate([to_numpy(p.grad) for p in self.params])
        self.optimizer.step()
        self.count += 1
        self.states = state_names(self.name, self.hypers, self.options)
        checker.add(self, before, self.arrays(), self.count, fresh)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CLASSES)
def test_steps(name, dtype, checker):
    for flag in [False, True]:
        options = dict.fromkeys(OPTIONS[name], flag)
        if "amsgrad" in options:
            options["amsgrad"] = not flag
        hypers = dict(HYPERS[name])
        if name == "sgd" and flag:
            hypers["dampening"], options["nesterov"] = 0.0, True
        run = Run(name, DTYPES[dtype], hypers, options)
        for _ in range(5):
            run.step(checker)


@pytest.mark.parametrize("dtype", DTYPES)
def test_crossing_zero_between_steps(dtype, checker):
    run = Run("sgd", DTYPES[dtype], dict(HYPERS["sgd"]), {"maximize": False})
    changes = [{}, {"momentum": 0.0}, {"weight_decay": 0.0}, {"momentum": 0.7}]
    changes += [{"weight_decay": 0.1, "lr": 0.3}, {"momentum": 0.0}, {"momentum": 0.2}]
    for change in changes:
        run.hypers = {**run.hypers, **change}
        run.optimizer.param_groups[0].update(change)
        run.step(checker)
