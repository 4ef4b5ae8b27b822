# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True``: each parameter is stepped in the backward pass, with the bits of a
step behind it, and its gradient is freed."""

import copy
import gc
import pickle
import weakref

import pytest
import stepc.torch as st
import torch
from fused_models import MAKERS, bits_equal, loss_of, model_of, same, train


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MAKERS)
def test_bits_are_those_of_a_step_behind_the_pass(name, dtype):
    if name == "masters" and dtype is torch.float32:
        pytest.skip("f32 parameters have no masters")
    model, twin = model_of(dtype), model_of(dtype)
    plain = MAKERS[name](twin.parameters())
    fused = MAKERS[name](model.parameters(), fused_backward=True)
    train(model, fused)
    train(twin, plain)
    assert all(param.grad is None for param in model.parameters())
    same(model, twin, fused, plain)


@pytest.mark.parametrize("name", ["AdamW", "hf.Adafactor"])
def test_float16_with_a_scale_that_is_a_number(name):
    model, twin = model_of(torch.float16), model_of(torch.float16)
    plain = MAKERS[name](twin.parameters(), loss_scale=256.0)
    fused = MAKERS[name](model.parameters(), loss_scale=256.0, fused_backward=True)
    train(model, fused)
    train(twin, plain)
    same(model, twin, fused, plain)


def test_muon_steps_matrices_in_the_pass():
    model, twin = model_of(), model_of()
    pairs = []
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        matrices = [p for p in made.parameters() if p.dim() == 2]
        others = [p for p in made.parameters() if p.dim() != 2]
        muon, adamw = st.Muon(matrices, lr=1e-2, **more), st.AdamW(others, lr=1e-2, **more)
        for number in range(2):
            loss_of(made, number).backward()
            muon.step()
            adamw.step()
            made.zero_grad()
        pairs.append((muon, adamw))
    same(model, twin)


def test_one_gradient_lives_at_a_time():
    model = model_of(layers=8)
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    alive, most = set(), 0

    def count(param):
        nonlocal most
        most = max(most, sum(p.grad is not None for p in model.parameters()))
        alive.add(id(param))

    for param in model.parameters():  # behind the optimizer's hook, which frees the own one
        param.register_post_accumulate_grad_hook(count)
    train(model, optimizer, 2)
    assert len(alive) == len(list(model.parameters())) and most == 0


def test_a_parameter_without_a_gradient_keeps_its_count():
    model, twin = model_of(), model_of()
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made[0].requires_grad_(False)
        train(made, optimizer, 2, 1)
        made[0].requires_grad_(True)
        train(made, optimizer, 1, 3)
    same(model, twin, fused, plain)


def test_gradients_that_came_otherwise_are_stepped_by_step():
    model, twin = model_of(), model_of()
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        for param in made.parameters():  # none by a backward pass
            param.grad = torch.ones_like(param)
        optimizer.step()
        optimizer.zero_grad()
        made[2](torch.ones(2, 6)).sum().backward()
        made[0].weight.grad = torch.ones(6, 6)  # beside those of a pass
        optimizer.step()
        optimizer.zero_grad()
    same(model, twin, fused, plain)


def test_a_closure_runs_the_pass():
    model, twin = model_of(), model_of()
    fused, plain = st.AdamW(model.parameters(), fused_backward=True), st.AdamW(twin.parameters())

    def closure(made, optimizer):
        optimizer.zero_grad()
        loss = loss_of(made, 1)
        loss.backward()
        return loss

    losses = [o.step(lambda m=m, o=o: closure(m, o)) for m, o in ((model, fused), (twin, plain))]
    assert losses[0] == losses[1]
    same(model, twin, fused, plain)


def test_parameters_that_are_thawed_later():
    """At the first step behind the pass, from then on within it."""
    model, twin = model_of(), model_of()
    for made in (model, twin):
        made[6].requires_grad_(False)  # the last one, whose gradient comes first
    fused, plain = st.Adam(model.parameters(), fused_backward=True), st.Adam(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made[6].requires_grad_(True)
        loss_of(made, 1).backward()
        optimizer.step()
        optimizer.zero_grad()
    loss_of(model, 2).backward()
    assert all(param.grad is None for param in model.parameters())
    fused.step()
    loss_of(twin, 2).backward()
    plain.step()
    same(model, twin, fused, plain)


def test_another_dtype_between_two_steps():
    model, twin = model_of(), model_of()
    fused, plain = st.SGD(model.parameters(), fused_backward=True), st.SGD(twin.parameters())
    for made, optimizer in ((model, fused), (twin, plain)):
        train(made, optimizer, 1)
        made.to(torch.bfloat16)
        train(made, optimizer, 1, 1)
    same(model, twin)


def test_a_write_between_the_pass_and_the_step_is_no_step_of_ours():
    """The lower bits of a parameter that somebody has written are zero, as behind the pass."""
    model, twin = model_of(torch.bfloat16), model_of(torch.bfloat16)
    keywords = {"lr": 1e-3, "master": "remainder"}
    fused = st.AdamW(model.parameters(), fused_backward=True, **keywords)
    plain = st.AdamW(twin.parameters(), **keywords)
    for made, optimizer in ((model, fused), (twin, plain)):
        for number in range(3):
            loss_of(made, number).backward()
            if optimizer is fused:
                with torch.no_grad():
                    made[0].weight.clamp_(-0.2, 0.2)
            optimizer.step()
            if optimizer is plain:
                with torch.no_grad():
                    made[0].weight.clamp_(-0.2, 0.2)
            made.zero_grad()
    same(model, twin, fused, plain)


def test_groups_that_come_later():
    model, twin = model_of(), model_of()
    pair = []
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        optimizer = st.AdamW(made[0].parameters(), **more)
        train(made, optimizer, 1)
        made.zero_grad()
        optimizer.add_param_group({"params": list(made[2].parameters()), "lr": 1e-3})
        train(made, optimizer, 2, 1)
        pair.append(optimizer)
    for a, b in zip(model[2].parameters(), twin[2].parameters(), strict=True):
        assert bits_equal(a, b)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_step_in_their_own_pass(way):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    twin, other = way((model, optimizer))
    train(model, optimizer, 2, 1)
    train(twin, other, 2, 1)
    assert all(param.grad is None for param in twin.parameters())
    same(model, twin, optimizer, other)


def test_states_are_loaded_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    saved = copy.deepcopy(optimizer.state_dict())
    loss_of(model, 1).backward()
    optimizer.load_state_dict(saved)
    optimizer.step()  # nothing is left of it
    assert {int(s["step"]) for s in optimizer.state.values()} == {1}
    train(model, optimizer, 1, 1)
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_the_optimizer_goes_with_its_hooks():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    known = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert known() is None
    finally:
        gc.enable()
    before = [p.detach().clone() for p in model.parameters()]
    loss_of(model, 0).backward()
    assert all(param.grad is not None for param in model.parameters())
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
