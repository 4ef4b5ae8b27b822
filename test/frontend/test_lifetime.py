# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer has goes with it, at once: it is part of no cycle, whose memory would stay
until the collector runs, which trainers switch off (``gc.disable``, ``gc.freeze``)."""

import contextlib
import gc
import weakref

import pytest
import stepc.torch as st
import torch
import torch._dynamo  # which keeps the frames of its first import: the first optimizer is in one
from common import make_params, set_grads
from test_modes import KINDS, SHAPES, shapes_of


@contextlib.contextmanager
def no_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def stay(optimizer, params):
    """Weak references to the optimizer, its parameters, gradients, states and the plan."""
    kept = [optimizer, *params, *(p.grad for p in params if p.grad is not None)]
    kept += [value for state in optimizer.state.values() for value in state.values()]
    if optimizer._binding is not None:
        kept += [optimizer._binding, optimizer._binding.plan]
    return [weakref.ref(value) for value in kept]


def gone(references):
    return [reference() is None for reference in references]


def make(kind):
    params = make_params(shapes_of(kind), torch.bfloat16 if "master" in kind else torch.float32)
    set_grads(params)
    return params, KINDS[kind](params)


def stepped(kind):
    params, optimizer = make(kind)
    optimizer.step()
    return stay(optimizer, params)


def bound_anew(kind):
    """A group added, a first gradient, values changed, and what was there is looked at."""
    params, optimizer = make(kind)
    late = make_params([(4,)], params[0].dtype)
    params[0].grad, grad = None, params[0].grad
    optimizer.step()
    params[0].grad = grad
    optimizer.step()
    optimizer.add_param_group({"params": late})
    set_grads(late)
    optimizer.param_groups[0]["lr"] *= 0.5
    optimizer.step()
    assert optimizer.last_step is not None and repr(optimizer)
    return stay(optimizer, [*params, *late])


def loaded(kind):
    params, optimizer = make(kind)
    optimizer.step()
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    optimizer.step()
    return stay(optimizer, params)


def refused(kind):
    params, optimizer = make(kind)
    optimizer.step()
    before = optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = "much"
    with contextlib.suppress(Exception):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = before
    optimizer.step()
    return stay(optimizer, params)


def scaled(kind):
    params, optimizer = make(kind)
    scaler = st.GradScaler("cpu")
    for _ in range(2):
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
    return stay(optimizer, params)


def scheduled(kind):
    params, optimizer = make(kind)
    optimizer.register_step_post_hook(lambda *_: None)
    optimizer.step()
    return stay(optimizer, params)


LIVES = {f.__name__: f for f in (stepped, bound_anew, loaded, refused, scaled, scheduled)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_makes_no_cycle(kind):
    with no_collector():
        assert all(gone(stepped(kind)))


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("kind", ["AdamW", "LARS, exclusive", "AdamW, a master", "a file"])
def test_nothing_stays_without_the_collector(kind, life):
    with no_collector():
        assert all(gone(LIVES[life](kind)))


def fused(cls):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 200))
    optimizer = cls(model)
    for _ in range(2):
        optimizer.fused_backward(model(torch.ones(3)).sum(), 0.1)
    return stay(optimizer, [])


@pytest.mark.parametrize("cls", [st.lomo.Lomo, st.lomo.AdaLomo])
def test_fused_backward_passes_make_no_cycle(cls):
    with no_collector():
        assert all(gone(fused(cls)))


def torchs_own():
    params = make_params(SHAPES)
    optimizer = st.AdamW(params)
    optimizer.param_groups[0]["decoupled_weight_decay"] = False
    set_grads(params)
    with pytest.warns(RuntimeWarning, match="torch's own step"):
        optimizer.step()
    return stay(optimizer, [])


def test_a_step_of_torchs_makes_no_cycle():
    with no_collector():
        assert all(gone(torchs_own()))
