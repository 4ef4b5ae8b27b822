# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers in what torch puts around them: torch.compile, the profiler, distributed
checkpoints of one process, processes that share memory."""

import copy
import sys

import pytest
import stepc.torch
import torch
import torch.distributed.checkpoint as dcp
from common import bits_equal, clone_params, make_params, set_grads, train
from stepc import _trace
from torch.distributed.checkpoint import state_dict as dcp_states
from torch_table import NAMES, each_optimizer, ours, theirs

# Nothing falls back to torch's own step.
pytestmark = pytest.mark.filterwarnings(
    "error:stepc:RuntimeWarning", "ignore:torch.distributed is disabled"
)


def make_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


def train_model(model, optimizer, steps=3, compile_with=None):
    """Losses of training steps, each a whole with its optimizer's step."""

    def step(batch):
        optimizer.zero_grad()
        loss = model(batch).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    if compile_with:
        step = torch.compile(step, backend=compile_with)
    generator = torch.Generator().manual_seed(1)
    return [step(torch.randn(8, 4, generator=generator)).item() for _ in range(steps)]


# --- torch.compile ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "eager") for name in NAMES), ("AdamW", "aot_eager"), ("AdamW", "inductor")],
)
def test_compiled_training_step(name, backend, tmp_path, monkeypatch):
    """A graph break at the step; the same losses and parameters as without."""
    if backend == "inductor" and " " in sys.prefix:
        pytest.skip("torch's inductor does not quote the paths that it gives to the C++ compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    plain, compiled = make_model(), make_model()
    first, second = ours(name, plain.parameters()), ours(name, compiled.parameters())
    expected = train_model(plain, first)
    assert train_model(compiled, second, compile_with=backend) == pytest.approx(expected, rel=1e-6)
    for p, q in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert second._binding is not None and second._binding.plan.info().steps == 3


@each_optimizer
def test_compiled_step_alone(name):
    """``torch.compile(opt.step)``, as torch's documents show it, with a rate that changes."""
    torch._dynamo.reset()
    left = make_params([(3,), (2, 4)])
    right = clone_params(left)
    a, b = ours(name, left), ours(name, right)
    step = torch.compile(a.step, backend="eager")
    for number in range(4):
        set_grads(left, right, seed=number)
        for group in (*a.param_groups, *b.param_groups):
            group["lr"] = 0.01 / (number + 1)
        step()
        b.step()
    assert bits_equal(left, right)


# --- The profiler -------------------------------------------------------------


@each_optimizer
def test_profiler_shows_the_step(name):
    model = make_model()
    optimizer = ours(name, model.parameters())
    train_model(model, optimizer, 1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        train_model(model, optimizer, 2)
    found = [event for event in profile.events() if event.name == f"Optimizer.step#{name}.step"]
    assert len(found) == 2


def kernels_of(profile):
    return [event for event in profile.events() if event.name.startswith("stepc::")]


def is_within_a_step(event):
    while event is not None and not event.name.startswith("Optimizer.step#"):
        event = event.cpu_parent
    return event is not None


@pytest.mark.parametrize("name", ["AdamW", "Adafactor"])
def test_profiler_shows_kernels_when_asked_for(name):
    """Of plans that were there before and of those that are made within, and none after."""
    model, large = make_model(), torch.nn.Linear(700, 900)
    optimizer = ours(name, model.parameters())
    train_model(model, optimizer, 1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile, stepc.torch.profile_kernels():
        train_model(model, optimizer, 2)
        later = ours(name, large.parameters())
        large(torch.ones(3, 700)).square().sum().backward()
        later.step()
    found = kernels_of(profile)
    assert len(found) >= 3
    assert all(event.name.startswith(f"stepc::{optimizer._zoo_name}_") for event in found)
    assert all(is_within_a_step(event) for event in found)
    steps = [event for event in profile.events() if event.name == f"Optimizer.step#{name}.step"]
    assert len(steps) == 3
    assert all(any(is_within(event, step) for event in found) for step in steps)
    with torch.profiler.profile(activities=activities) as profile:
        train_model(model, optimizer, 1)
        later.step()
    assert kernels_of(profile) == []


def is_within(event, outer):
    return outer.time_range.start <= event.time_range.start <= outer.time_range.end


def test_kernels_leave_no_mark_on_the_step():
    """The same bits, with contexts that are nested and an exception that leaves them."""
    models = [make_model(), make_model()]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [ours("AdamW", model.parameters()) for model in models]
    train_model(models[0], optimizers[0], 2)
    with pytest.raises(KeyError), stepc.torch.profile_kernels(), stepc.torch.profile_kernels():
        train_model(models[1], optimizers[1], 2)
        raise KeyError
    assert bits_equal(*[list(model.parameters()) for model in models])
    assert _trace._tellers == []


# --- Distributed checkpoints --------------------------------------------------


def state_of(model, optimizer):
    model_state, optimizer_state = dcp_states.get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


@pytest.mark.parametrize("reader", ["ours", "torch"])
@each_optimizer
def test_distributed_checkpoint(name, reader, tmp_path):
    """Saved by ours; read by a fresh optimizer, whose state the library makes by a step
    with ``lr=0``. In float64, where torch casts nothing."""
    model = make_model().double()
    optimizer = ours(name, model.parameters())
    grads = [p.detach().clone() for p in model.parameters()]

    def step(of_model, of_optimizer):
        for param, grad in zip(of_model.parameters(), grads, strict=True):
            param.grad = grad.clone()
        of_optimizer.step()

    for _ in range(3):
        step(model, optimizer)
    dcp.save(state_of(model, optimizer), checkpoint_id=tmp_path / "saved", no_dist=True)
    other = make_model(seed=5).double()
    again = (ours if reader == "ours" else theirs)(name, other.parameters())
    state = state_of(other, again)
    dcp.load(state, checkpoint_id=tmp_path / "saved", no_dist=True)
    dcp_states.set_state_dict(
        other, again, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    step(model, optimizer)
    step(other, again)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        if reader == "ours":
            assert p.detach().equal(q.detach())
        # NAdam's and ASGD's scalars are float32 in torch's optimizer.
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-8)


@each_optimizer
def test_full_state_by_name(name):
    """As trainers ask for it: keys are the names of parameters."""
    # Without any state torch's function cannot tell the device.
    kwargs = {"momentum": 0.9} if name == "SGD" else {}
    model = make_model()
    optimizer = ours(name, model.parameters(), **kwargs)
    train_model(model, optimizer, 2)
    options = dcp_states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    packed = dcp_states.get_optimizer_state_dict(model, optimizer, options=options)
    assert set(packed["state"]) == {key for key, _ in model.named_parameters()}
    other = make_model()
    other.load_state_dict(model.state_dict())
    again = ours(name, other.parameters(), **kwargs)
    dcp_states.set_optimizer_state_dict(other, again, copy.deepcopy(packed), options=options)
    lists = list(model.parameters()), list(other.parameters())
    train((optimizer, again), lists, 2)
    assert bits_equal(*lists)


# --- Processes ----------------------------------------------------------------


def test_adagrad_shares_its_sums():
    """What was put into shared memory before the first step is what steps write."""
    params = make_params([(5,), (3, 4)])
    optimizer = ours("Adagrad", params)
    optimizer.share_memory()
    sums = [optimizer.state[p]["sum"] for p in params]
    set_grads(params)
    optimizer.step()
    for param, total in zip(params, sums, strict=True):
        assert optimizer.state[param]["sum"] is total and total.is_shared()
        assert torch.equal(total, param.grad * param.grad)
