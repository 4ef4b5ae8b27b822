# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Beside the originals where numbers are extreme: decays of 0, gradients that fall by many
orders, that overflow when squared, infinite ones and NaN. The interpreter shares the text of
a definition with what is compiled, so only the originals can tell that a formula cancels
or makes NaN of a number."""

import math

import pytest
import stepc.torch
import torch
from stepc.torch import came, hf

NONE = (0.0, 0.0)


def original(module, name):
    """Another library's class; skipped where the library is not installed."""
    return lambda *args, **kwargs: getattr(pytest.importorskip(module), name)(*args, **kwargs)


class AuthorsLion(torch.optim.Optimizer):
    """Lion as its authors wrote it (Chen et al., 2023, algorithm 2), without weight decay."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                momentum = self.state[param].setdefault("exp_avg", torch.zeros_like(param))
                update = momentum * beta1 + param.grad * (1 - beta1)
                param.add_(update.sign_(), alpha=-group["lr"])
                momentum.mul_(beta2).add_(param.grad, alpha=1 - beta2)


# Ours, theirs, arguments. A decay of 1 would divide by 1 - 1 in a bias correction.
CASES = {
    "Adam": (stepc.torch.Adam, torch.optim.Adam, {}),
    "Adam without decays": (stepc.torch.Adam, torch.optim.Adam, {"betas": NONE}),
    "Adam, first moment alone": (stepc.torch.Adam, torch.optim.Adam, {"betas": (0.9, 0.0)}),
    "Adam, second moment alone": (stepc.torch.Adam, torch.optim.Adam, {"betas": (0.0, 0.99)}),
    "Adam, half": (stepc.torch.Adam, torch.optim.Adam, {"betas": (0.5, 0.5)}),
    "Adam, amsgrad": (stepc.torch.Adam, torch.optim.Adam, {"amsgrad": True}),
    "AdamW": (stepc.torch.AdamW, torch.optim.AdamW, {}),
    "AdamW without decays": (stepc.torch.AdamW, torch.optim.AdamW, {"betas": NONE}),
    "NAdam": (stepc.torch.NAdam, torch.optim.NAdam, {}),
    "NAdam without decays": (stepc.torch.NAdam, torch.optim.NAdam, {"betas": NONE}),
    "RAdam": (stepc.torch.RAdam, torch.optim.RAdam, {}),
    "RAdam without decays": (stepc.torch.RAdam, torch.optim.RAdam, {"betas": NONE}),
    "Adamax": (stepc.torch.Adamax, torch.optim.Adamax, {}),
    "Adamax without decays": (stepc.torch.Adamax, torch.optim.Adamax, {"betas": NONE}),
    "RMSprop": (stepc.torch.RMSprop, torch.optim.RMSprop, {}),
    "RMSprop without decay": (stepc.torch.RMSprop, torch.optim.RMSprop, {"alpha": 0.0}),
    "RMSprop, momentum": (stepc.torch.RMSprop, torch.optim.RMSprop, {"momentum": 0.9}),
    "Adadelta": (stepc.torch.Adadelta, torch.optim.Adadelta, {}),
    "Adadelta without decay": (stepc.torch.Adadelta, torch.optim.Adadelta, {"rho": 0.0}),
    "Adadelta, decay of 1": (stepc.torch.Adadelta, torch.optim.Adadelta, {"rho": 1.0}),
    "Adagrad": (stepc.torch.Adagrad, torch.optim.Adagrad, {}),
    "ASGD": (stepc.torch.ASGD, torch.optim.ASGD, {"t0": 1.0}),
    "Rprop": (stepc.torch.Rprop, torch.optim.Rprop, {}),
    "SGD": (stepc.torch.SGD, torch.optim.SGD, {"momentum": 0.9}),
    "SGD, dampening of 1": (
        stepc.torch.SGD,
        torch.optim.SGD,
        {"momentum": 0.9, "dampening": 1.0},
    ),
    "Adafactor": (stepc.torch.Adafactor, torch.optim.Adafactor, {}),
    "Adafactor of transformers": (
        hf.Adafactor,
        original("transformers.optimization", "Adafactor"),
        {},
    ),
    "Adafactor of transformers, momentum": (
        hf.Adafactor,
        original("transformers.optimization", "Adafactor"),
        {"lr": 0.01, "relative_step": False, "beta1": 0.9},
    ),
    "CAME": (came.CAME, original("came_pytorch", "CAME"), {"lr": 0.01}),
    "Lion": (stepc.torch.Lion, AuthorsLion, {}),
    "Lion without decays": (stepc.torch.Lion, AuthorsLion, {"betas": NONE}),
}
KEEP_F32 = {"NAdam", "ASGD"}  # originals that keep a product or a rate in f32, of f64 too

nan, inf = math.nan, math.inf
# Each row is a step's gradient of all elements.
GRADIENTS = {
    "falling": [[100.0, 1e3, -1e4, 1.0], [1e-3, -1e-3, 1e-3, 1.0], [1e-3, 1e-3, 1e-3, -1.0]],
    "falling far": [[1e8, -1e6, 1e7, 1.0], [1e-3, 1e-3, 1e-3, 1.0], [1e-3, 1e-3, 1e-3, 1.0]],
    "overflowing": [[1.0, 1e20, -1e30, 2e19], [1.0] * 4, [1.0] * 4],
    "infinite": [[1.0, inf, -inf, 1.0], [1.0] * 4, [1.0] * 4],
    "NaN": [[1.0, 1.0, nan, -1.0], [1.0] * 4, [1.0] * 4],
    "zero": [[0.0, -0.0, 0.0, 1.0], [0.0] * 4, [0.0] * 4],
}


def trained(cls, kwargs, gradients, shape, dtype):
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.randn(shape, dtype=torch.float64).to(dtype))
    optimizer = cls([param], **kwargs)
    for row in gradients:
        param.grad = torch.tensor(row, dtype=dtype).expand(shape).contiguous()
        optimizer.step()
    return param.detach().double()


def assert_alike(ours, theirs, limit, what):
    """The same elements are NaN or infinite, and numbers differ by rounding."""
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(test(ours), test(theirs)), f"{what}: {ours} for {theirs}"
    numbers = torch.isfinite(theirs)
    apart = (ours - theirs).abs()[numbers] / theirs.abs()[numbers].clamp(min=1e-3)
    assert apart.numel() == 0 or float(apart.max()) < limit, f"{what}: {ours} for {theirs}"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", GRADIENTS)
def test_as_the_original(case, kind):
    ours, theirs, kwargs = CASES[case]
    wide = 1e-6 if case in KEEP_F32 else 1e-11
    for dtype, limit in ((torch.float32, 2e-5), (torch.float64, wide)):
        for shape in ((4,), (3, 4)):
            left = trained(ours, kwargs, GRADIENTS[kind], shape, dtype)
            right = trained(theirs, kwargs, GRADIENTS[kind], shape, dtype)
            assert_alike(left, right, limit, f"{dtype} {shape}")


def test_adam_written_out():
    """Numbers of f64, with no optimizer of anybody's beside ours."""
    for beta1, beta2 in (NONE, (0.9, 0.0), (0.0, 0.99), (0.9, 0.999)):
        gradients = [1e8, 1e-3, -1e-3, 7.0]
        p, m, v = 0.5, 0.0, 0.0
        for t, g in enumerate(gradients, 1):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            first, second = m / (1 - beta1**t), v / (1 - beta2**t)
            p -= 0.01 * first / (math.sqrt(second) + 1e-8)
        param = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
        optimizer = stepc.torch.Adam([param], lr=0.01, betas=(beta1, beta2))
        for g in gradients:
            param.grad = torch.tensor([g], dtype=torch.float64)
            optimizer.step()
        assert param.item() == pytest.approx(p, rel=1e-12), (beta1, beta2)
