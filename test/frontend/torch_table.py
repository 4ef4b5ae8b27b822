# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's own table of its optimizers, their inputs and error inputs, for our classes.

``torch.testing._internal.common_optimizers`` is what torch's tests of its optimizers
run over. Here the class under test is ours, and torch's is what it must agree with.
"""

import contextlib
import warnings

import pytest
import stepc.torch
import torch
from common import clone_params, distance, make_params
from torch.testing._internal.common_optimizers import optim_db

INFOS = {info.name: info for info in optim_db}

# What stepc.torch does not have of torch.optim, and why.
ABSENT = {
    "LBFGS": "calls its closure several times in a step",
    "SparseAdam": "takes sparse gradients only",
}
# What is beside torch's elsewhere, and why.
APART = {"Muon": "torch's has bfloat16's roundings, and takes matrices alone: test_muon.py"}
NAMES = [name for name in INFOS if name not in ABSENT | APART]

# Inputs that torch's table lacks: options it does not set, and what acts only later.
MORE = {
    "Adadelta": [{"eps": 1e-3, "rho": 0.5, "maximize": True}],
    "Adam": [
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"amsgrad": True, "maximize": True, "eps": 1e-3, "betas": (0.5, 0.6)},
        {"lr": torch.tensor(0.01), "betas": (torch.tensor(0.9), torch.tensor(0.99))},
    ],
    "AdamW": [{"amsgrad": True, "maximize": True, "eps": 1e-3, "betas": (0.5, 0.6)}],
    "ASGD": [
        {"t0": 2, "lambd": 0.1, "alpha": 0.5, "lr": 0.1},
        {"lr": torch.tensor(0.01), "weight_decay": 0.1},
    ],
    "Adagrad": [{"initial_accumulator_value": 0.3, "lr_decay": 0.1, "eps": 1e-3}],
    "NAdam": [{"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    # The second is rectified from the sixth step on, the first never.
    "RAdam": [{"betas": (0.5, 0.6), "eps": 1e-3}, {"betas": (0.9, 0.99), "maximize": True}],
    "RMSprop": [{"momentum": 0.9, "alpha": 0.5}, {"centered": True, "eps": 1e-3}],
    "Rprop": [{"lr": 0.1, "etas": (0.3, 2.0), "step_sizes": (0.01, 0.15)}],
    "SGD": [{"momentum": 0.9, "nesterov": True, "maximize": True}],
}


def inputs_of(name):
    """The keyword arguments of each input, with what it is called."""
    given = INFOS[name].optim_inputs_func(device="cpu")
    cases = [(entry.desc, entry.kwargs) for entry in given]
    return cases + [(f"more {i}", kwargs) for i, kwargs in enumerate(MORE.get(name, []))]


CASES = [(name, kwargs) for name in NAMES for _, kwargs in inputs_of(name)]
each_optimizer = pytest.mark.parametrize("name", NAMES)
each_input = pytest.mark.parametrize(
    ("name", "kwargs"),
    CASES,
    ids=[f"{name} {desc}" for name in NAMES for desc, _ in inputs_of(name)],
)

# One step differs from torch's by a few roundings, and so does the next, from there.
# 32 units of the last place are some five times what is seen after ten steps (``pytest
# -rP``); a formula that is wrong in anything is off by millions in float64.
ULPS = 32
# RAdam takes from 2 / (1 - beta2) - 1, 1999, what is nearly as much: where it begins to
# be rectified, a unit in the last place of beta2^t is a hundred thousand of the rest,
# in torch as well as here. Of a parameter that is a few hundred.
ULPS_OF = {"RAdam": 1024}

SHAPES = [(), (1,), (0,), (7,), (5, 3), (2, 3, 4), (33, 9)]


def shapes_of(name):
    """torch's Adafactor divides by the number of elements."""
    return [shape for shape in SHAPES if name != "Adafactor" or 0 not in shape]


def params_of(name, dtype=torch.float32):
    """Parameters of all ranks; one is the transpose of contiguous memory."""
    params = make_params(shapes_of(name), dtype)
    turned = [p.detach().t() if p.shape == (5, 3) else p.detach() for p in params]
    return [torch.nn.Parameter(p) for p in turned]


def own_tensors(value):
    """Copies of tensors among the arguments, in the default dtype: torch divides a float32
    ``lr`` in float32, also for float64 parameters."""
    if isinstance(value, tuple):
        return tuple(map(own_tensors, value))
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(torch.get_default_dtype(), copy=True)


def arguments(kwargs):
    return {name: own_tensors(value) for name, value in kwargs.items()}


def ours(name, params, **kwargs):
    return getattr(stepc.torch, name)(params, **arguments(kwargs))


def theirs(name, params, **kwargs):
    """torch's own, a tensor at a time unless something else is asked for."""
    if not {"fused", "foreach", "differentiable"} & set(kwargs):
        kwargs["foreach"] = False
    return getattr(torch.optim, name)(params, **arguments(kwargs))


def pair(name, dtype=torch.float32, params=None, **kwargs):
    """Both on equal parameters: ``(parameters, optimizer), (parameters, optimizer)``."""
    left = params_of(name, dtype) if params is None else params
    right = clone_params(left)
    return (left, ours(name, left, **kwargs)), (right, theirs(name, right, **kwargs))


def keys_of_states(optimizer, params):
    return [list(optimizer.state.get(p, {})) for p in params]


def assert_agree(left, right):
    """Parameters, and states by name, type aside; the largest distance is returned."""
    (params, a), (others, b) = left, right
    limit = ULPS_OF.get(type(b).__name__, ULPS)
    apart = distance(params, others)
    keys = keys_of_states(b, others)
    assert keys_of_states(a, params) == keys
    for name in {name for own in keys for name in own}:
        pairs = [(a.state[p][name], b.state[q][name]) for p, q in zip(params, others, strict=True)
                 if name in b.state.get(q, {})]  # fmt: skip
        assert [x.shape for x, _ in pairs] == [y.shape for _, y in pairs]
        apart = max(apart, distance(*(list(side) for side in zip(*pairs, strict=True))))
    assert apart < limit, apart
    return apart


@contextlib.contextmanager
def default_dtype(dtype):
    """torch's for scalars among the states is the default dtype. Of a float64
    parameter ours has float64, so torch must have it, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def compiled_only():
    """Nothing falls back to torch's own step, which would agree with itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@contextlib.contextmanager
def torchs_own_step():
    """The step is torch's, and that is said."""
    with pytest.warns(RuntimeWarning, match="runs torch's own step"):
        yield
