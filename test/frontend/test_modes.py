# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps within everything that torch can switch on around them: the same parameters and states
to the bit, and states that are of use when it is off again."""

import contextlib
import functools
import io
import subprocess
import sys

import pytest
import stepc.torch as st
import torch
from common import ZOO, bits_equal, clone_params, make_params, set_grads
from stepc import errors
from stepc.torch.tensors import walk as _walk
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

SHAPES = [(3,), (2, 4), (33, 600)]  # the last has states of its own memory


def shapes_of(kind):
    """Muon, NorMuon and Dion take matrices alone."""
    of_matrices = "Muon" in kind or kind == "Dion"
    return [shape for shape in SHAPES if not of_matrices or len(shape) == 2]


KINDS = {
    **{name: getattr(st, name) for name in st.__all__ if isinstance(getattr(st, name), type)},
    "SOAP": functools.partial(st.SOAP, max_precond_dim=64),
    "GaLoreAdafactor": functools.partial(st.GaLoreAdafactor, lr=0.1, relative_step=False),
    "Shampoo": functools.partial(st.Shampoo, max_preconditioner_dim=64, grafting_type="adam"),
    "hf.Adafactor": functools.partial(st.hf.Adafactor, lr=0.1, relative_step=False),
    "came.CAME": functools.partial(st.came.CAME, lr=0.1),
    "apex.FusedLAMB": st.apex.FusedLAMB,
    "colossal.Lamb": st.colossal.Lamb,
    "colossal.HybridAdam": st.colossal.HybridAdam,
    "deepspeed.FusedAdam": st.deepspeed.FusedAdam,
    "a file": lambda params, **k: st.Optimizer(params, ZOO / "lamb.mlir", **k),
    "AdamW, a master": functools.partial(st.AdamW, master="f32"),
    "AdamW, much": functools.partial(
        st.AdamW, average=st.EMA(0.9), clip=st.ClipByNorm(0.1), skip_nonfinite=True
    ),
    "LARS, exclusive": functools.partial(st.LARS, exclusive_writes=True),
    "CAME, reproducible": functools.partial(st.came.CAME, lr=0.1, reproducible=True),
    "SGD, fixed gradients": functools.partial(st.SGD, static_grads=True, momentum=0.9),
}
KINDS = {
    name: kind
    for name, kind in KINDS.items()
    if not isinstance(kind, type) or issubclass(kind, torch.optim.Optimizer)
}
del KINDS["Optimizer"]


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def within(make):
    """A call inside of a context."""

    def call(step):
        with make():
            step()

    return call


def transformed(transform, *more):
    """A call inside of a function that is transformed."""

    def call(step):
        def function(x):
            step()
            return x.sum()

        transform(function)(*more)

    return call


MODES = {
    "default dtype float64": within(lambda: default_dtype(torch.float64)),
    "default dtype float16": within(lambda: default_dtype(torch.float16)),
    "default dtype bfloat16": within(lambda: default_dtype(torch.bfloat16)),
    "device meta": within(lambda: torch.device("meta")),
    "default device meta": within(lambda: default_device("meta")),
    "inference mode": within(torch.inference_mode),
    "no_grad": within(torch.no_grad),
    "enable_grad": within(torch.enable_grad),
    "autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "deterministic": within(deterministic),
    "anomaly": within(torch.autograd.detect_anomaly),
    "functions": within(Functions),
    "dispatch": within(Dispatched),
    "flops": within(lambda: FlopCounterMode(display=False)),
    "func.grad": transformed(torch.func.grad, torch.ones(3)),
    "func.grad of func.grad": transformed(
        lambda f: torch.func.grad(torch.func.grad(f)), torch.ones(())
    ),
    "func.vmap": transformed(torch.func.vmap, torch.ones(3, 2)),
    "func.jvp": transformed(
        lambda f: lambda x: torch.func.jvp(f, (x,), (x,)), torch.ones(3)
    ),
    "func.functionalize": transformed(torch.func.functionalize, torch.ones(3)),
    "grad in inference mode": lambda step: within(torch.inference_mode)(
        lambda: transformed(torch.func.vmap, torch.ones(3, 2))(step)
    ),
}  # fmt: skip


def described(optimizer, params):
    return [
        {k: (v.dtype, v.device, v.is_inference()) for k, v in alike(optimizer.state[p]).items()}
        for p in params
    ]


def alike(state):
    """Counts are float64 where that is the default when they are made, as torch's."""
    return {k: v.float() if k == "step" else v for k, v in state.items()}


def compare(optimizer, params, plain, twins):
    assert bits_equal(params, twins)
    assert described(optimizer, params) == described(plain, twins)
    for p, q in zip(params, twins, strict=True):
        left, right = alike(optimizer.state[p]), alike(plain.state[q])
        assert bits_equal(list(left.values()), list(right.values())), list(left)


def pair(kind):
    """Two of a kind on equal parameters."""
    shapes = shapes_of(kind)
    params = make_params(shapes, torch.bfloat16 if "master" in kind else torch.float32)
    twins = clone_params(params)
    set_grads(params, twins)
    return (KINDS[kind](params), params), (KINDS[kind](twins), twins)


def give(kind, params, twins, seed):
    if "fixed" not in kind:
        set_grads(params, twins, seed=seed)


@pytest.mark.filterwarnings("ignore:stepc. S.* has no (factors|bases) of vectors")
@pytest.mark.filterwarnings("error:stepc")  # no step is torch's own
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_within(kind):
    (optimizer, params), (plain, twins) = pair(kind)
    for step, mode in enumerate(MODES):
        give(kind, params, twins, step)
        MODES[mode](optimizer.step)
        plain.step()
        compare(optimizer, params, plain, twins)


# Those that make something of their own at the first step.
OF_FIRST_STEPS = ["AdamW", "NAdam", "AdamW, much"]


@pytest.mark.filterwarnings("error:stepc")
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", OF_FIRST_STEPS)
def test_first_steps_and_loading_within(kind, mode, monkeypatch):
    """The first step of a process, of an optimizer, and after a state was loaded."""
    monkeypatch.setattr(_walk, "direct_functions", _walk.direct_functions.__wrapped__)
    (optimizer, params), (plain, twins) = pair(kind)
    for step in range(2):
        give(kind, params, twins, step)
        MODES[mode](optimizer.step)
        plain.step()
        compare(optimizer, params, plain, twins)
    loaded, again = KINDS[kind](params), KINDS[kind](twins)
    MODES[mode](lambda: loaded.load_state_dict(optimizer.state_dict()))
    again.load_state_dict(plain.state_dict())
    for own in (loaded, again):
        own.step()
    compare(loaded, params, again, twins)


FIRST = """
import torch, stepc.torch
model = torch.nn.Linear(4, 4)
optimizer = stepc.torch.AdamW(model.parameters(), lr=0.1)
model(torch.ones(4)).sum().backward()
before = model.weight.detach().clone()
{}
assert not model.weight.detach().equal(before)
print(stepc.torch.info())
"""
PLACES = {
    "nothing": "optimizer.step()",
    "inference mode": "with torch.inference_mode(): optimizer.step()",
    "func.grad": "torch.func.grad(lambda x: (optimizer.step(), x.sum())[1])(torch.ones(3))",
    "func.vmap": "torch.func.vmap(lambda x: (optimizer.step(), x)[1])(torch.ones(3))",
    "device meta": "with torch.device('meta'): optimizer.step()",
    "default dtype": "torch.set_default_dtype(torch.float64); optimizer.step()",
}


def first_step(place):
    """What a new process says after a first step there."""
    run = subprocess.run(
        [sys.executable, "-c", FIRST.format(PLACES[place])],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def said_of_nothing():
    return first_step("nothing")


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "nothing"])
def test_first_step_of_a_process(place, said_of_nothing):
    """What is found out about torch then is the same in all of them."""
    assert first_step(place) == said_of_nothing


# --- Tensors without memory ---------------------------------------------------


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("kind", [*OF_FIRST_STEPS, "a file", "Lion", "AdamW, a master"])
def test_memory_is_not_written_within_fake_tensor_mode(kind, stepped):
    params = make_params(SHAPES, torch.bfloat16 if "master" in kind else torch.float32)
    optimizer = KINDS[kind](params)
    set_grads(params)
    if stepped:
        optimizer.step()
    binding, before = optimizer._binding, clone_params(params)
    words = "within FakeTensorMode would write to parameter 0 of group 0, which is no FakeTensor"
    with FakeTensorMode(), pytest.raises(errors.StepcError, match=words):
        optimizer.step()
    assert bits_equal(params, before) and optimizer._binding is binding
    optimizer.step()
    assert not bits_equal(params, before)


def test_fake_parameters_are_torchs():
    with FakeTensorMode():
        model = torch.nn.Linear(3, 4)
        optimizer = st.AdamW(model.parameters())
        model(torch.ones(3)).sum().backward()
        with pytest.warns(RuntimeWarning, match="is a 'FakeTensor'"):
            optimizer.step()
        assert type(optimizer.state[model.weight]["exp_avg"]).__name__ == "FakeTensor"


def test_states_of_a_step_in_a_transform_are_saved():
    """They are tensors with memory, which outlive the transform."""
    params = make_params(SHAPES)
    optimizer = st.AdamW(params)
    set_grads(params)
    MODES["func.grad"](optimizer.step)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))
    optimizer.step()
