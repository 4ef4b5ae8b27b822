# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``fused_backward=True`` refuses, and what it leaves then."""

import copy

import pytest
import stepc.torch as st
import torch
from fused_models import bits_equal, loss_of, model_of, train
from stepc import errors


def test_a_second_pass_before_step_is_refused():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(errors.StepcError, match=r"stepped since the last step\(\).*each backward"):
        loss_of(model, 1).backward()
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    optimizer.step()
    twin = model_of()
    other = st.AdamW(twin.parameters())
    train(twin, other, 1)
    # Nothing is left of the refused gradient, though nobody has dropped it.
    for made, own in ((model, optimizer), (twin, other)):
        for group in own.param_groups:
            group["lr"] = 1e-2
        loss_of(made, 1).backward()
        own.step()
        made.zero_grad()
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_gradients_of_a_stepped_parameter_are_refused_by_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match="0 of group 0 has a second gradient"):
        optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    train(model, optimizer, 1, 1)


def test_a_gradient_from_before_is_refused():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match="has a gradient before the fused backward pass"):
        loss_of(model, 0).backward()
    optimizer.zero_grad()
    train(model, optimizer)


@pytest.mark.parametrize(
    "make",
    [st.deepspeed.FusedAdam, st.colossal.FusedAdam, st.apex.FusedLAMB],
    ids=["deepspeed.FusedAdam", "colossal.FusedAdam", "apex.FusedLAMB"],
)
def test_classes_that_compute_something_of_all_tensors(make):
    """A count for a group, as those have it, or the norm of all gradients."""
    model = model_of()
    optimizer = make(model.parameters(), fused_backward=True)
    with pytest.raises(errors.StatusError, match="computes something of all tensors together"):
        loss_of(model, 0).backward()
    assert not optimizer.state


@pytest.mark.parametrize(
    "more",
    [
        {"loss_scale": st.DynamicLossScale()},
        {"clip": st.ClipByNorm(1.0), "loss_scale": st.DynamicLossScale()},
        {"skip_nonfinite": True},
        {"average": st.EMA()},  # counts its updates once for the model
    ],
    ids=["dynamic", "dynamic and norm", "skip", "average"],
)
def test_what_needs_all_gradients_is_refused_before_anything(more):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True, **more)
    before = [p.detach().clone() for p in model.parameters()]
    words = "'adamw' computes something of all tensors together"
    with pytest.raises(errors.StatusError, match=words):
        loss_of(model, 0).backward()
    assert all(bits_equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert not optimizer.state


def test_a_parameter_whose_group_is_gone():
    model = model_of()
    groups = [{"params": list(layer.parameters())} for layer in (model[0], model[2])]
    optimizer = st.AdamW(groups, fused_backward=True)
    train(model, optimizer, 1)
    model.zero_grad()
    del optimizer.param_groups[1]
    with pytest.raises(errors.StepcError, match="a parameter of no group has come since"):
        loss_of(model, 1).backward()


@pytest.mark.parametrize(
    "more, words",
    [
        ({"static_grads": True}, "static_grads=True keeps them"),
        ({"accumulation_steps": 2}, "accumulation_steps sums several; zero=Zero.2. sums"),
        ({"exclusive_writes": True}, "exclusive_writes=True cannot look at one"),
    ],
)
def test_arguments_that_do_not_go_with_it(more, words):
    with pytest.raises(ValueError, match=words):
        st.AdamW(model_of().parameters(), fused_backward=True, **more)


def test_a_class_that_takes_gradients_of_other_passes():
    with pytest.raises(ValueError, match=r"SophiaG cannot be stepped.*update_hessian\(\)"):
        st.SophiaG(model_of().parameters(), fused_backward=True)


@pytest.mark.parametrize(
    "make, why",
    [
        (
            lambda p, **k: st.Muon([q for q in p if q.dim() == 2], ns_steps=-1, **k),
            "ns_steps is -1",
        ),
        (lambda p, **k: st.AdamW(p, differentiable=True, **k), "differentiable is set"),
        (lambda p, **k: st.Adam(p, capturable=True, **k), "capturable is set"),
    ],
    ids=["ns_steps", "differentiable", "capturable"],
)
def test_what_torchs_own_step_must_do_is_refused(make, why):
    model = model_of()
    optimizer = make(list(model.parameters()), fused_backward=True)
    with pytest.raises(errors.StepcError, match=f"must run torch's own step .{why}"):
        loss_of(model, 0).backward()
    assert not optimizer.state and all(p.grad is None for p in list(model.parameters())[-2:-1])


def test_a_parameter_of_two_optimizers():
    model = model_of()
    first = st.AdamW(model.parameters(), fused_backward=True)
    second = st.SGD(model.parameters(), fused_backward=True)
    with pytest.raises(errors.StepcError, match="lost its gradient before it was stepped"):
        loss_of(model, 0).backward()
    del second
    first.step()


def test_nothing_is_saved_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    for save in (optimizer.state_dict, lambda: copy.deepcopy(optimizer)):
        with pytest.raises(errors.StatusError, match="not told before step"):
            save()
    optimizer.step()
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def test_a_group_that_comes_between_the_pass_and_the_step():
    model = model_of()
    optimizer = st.AdamW(model[0].parameters(), fused_backward=True)
    loss_of(model, 0).backward()
    optimizer.add_param_group({"params": list(model[2].parameters())})
    with pytest.raises(errors.StepcError, match="come since the step began"):
        optimizer.step()
    model.zero_grad()
    train(model, optimizer, 1, 1)


def test_a_sparse_gradient_is_refused_by_name():
    table, last = torch.nn.Embedding(4, 6, sparse=True), torch.nn.Linear(6, 4)
    params = [("table", table.weight), *last.named_parameters()]
    optimizer = st.SGD(params, fused_backward=True)
    before = table.weight.detach().clone()
    with pytest.raises(errors.TensorError, match="'table' has a gradient that has layout"):
        last(table(torch.tensor([1, 2]))).sum().backward()
    assert bits_equal(table.weight, before)
    optimizer.step()  # of what came before


def test_an_interrupt_leaves_no_half_step(monkeypatch):
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    train(model, optimizer, 1)
    saved = copy.deepcopy(optimizer.state_dict())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(optimizer._binding), "step_some", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loss_of(model, 1).backward()
    with pytest.raises(errors.StatusError, match="KeyboardInterrupt came in a step of a backward"):
        loss_of(model, 1).backward()
    with pytest.raises(errors.StatusError, match="load a state to go on"):
        optimizer.step()
    optimizer.load_state_dict(saved)
    model.zero_grad()
    train(model, optimizer, 1, 1)
    assert {int(s["step"]) for s in optimizer.state.values()} == {2}


def test_a_scaler_finds_no_gradients():
    """torch's says so itself; one that goes on is told what to use."""
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(loss_of(model, 0)).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
    optimizer.found_inf = torch.zeros(1)
    with pytest.raises(errors.StepcError, match="nothing to unscale.*call opt.backward"):
        optimizer.step()
    optimizer.found_inf = None
    optimizer.step()
