# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps inside the backward pass."""

import copy

import pytest
import stepc.torch
import torch
from common import bits_equal, distance
from stepc import errors
from stepc.torch.lomo import Lomo


def make_model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.LayerNorm(33), torch.nn.Linear(33, 2)
    )
    return model.to(dtype)


def loss_of(model, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    return model(x.to(next(model.parameters()).dtype)).square().sum()


def reference_step(model, loss, lr, weight_decay=0.0):
    """lomo_optim's, once all gradients are there."""
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            wide = p.float()
            wide.mul_(1.0 - lr * weight_decay).add_(p.grad.float(), alpha=-lr)
            p.copy_(wide)
            p.grad = None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_like_lomo_optim(weight_decay, dtype):
    ours, theirs = make_model(dtype=dtype), make_model(dtype=dtype)
    optimizer = Lomo(ours, lr=0.5, weight_decay=weight_decay)
    for step in range(20):
        lr = 1e-3 * (step + 1)
        optimizer.fused_backward(loss_of(ours, step), lr)
        reference_step(theirs, loss_of(theirs, step), lr, weight_decay)
        assert all(p.grad is None for p in ours.parameters())
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 100
    assert optimizer.lr == lr and not optimizer.state


def test_gradients_go_one_by_one():
    """Never more than two exist."""
    model = make_model()
    optimizer = Lomo(model)
    most = []

    def count(_):
        most.append(sum(p.grad is not None for p in model.parameters()))

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(count)
    for step in range(2):
        optimizer.fused_backward(loss_of(model, step), 1e-3)
    assert len(most) == 12 and max(most) <= 2


def test_an_ordinary_backward_is_left_alone():
    """Hooks are there in a fused pass only; step() steps what has a gradient."""
    model, twin = make_model(), make_model()
    optimizer, other = Lomo(model), Lomo(twin)
    optimizer.fused_backward(loss_of(model, 0), 1e-3)
    other.fused_backward(loss_of(twin, 0), 1e-3)
    loss_of(model, 1).backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
    other.fused_backward(loss_of(twin, 1), 1e-3)
    assert bits_equal(list(model.parameters()), list(twin.parameters()))


def test_parameters_that_do_not_take_part():
    """Frozen ones, and ones that a loss does not reach; they may later."""
    model = make_model()
    model[0].weight.requires_grad_(False)
    extra = torch.nn.Parameter(torch.ones(3))
    model.register_parameter("extra", extra)
    optimizer = Lomo(model)
    before = model[0].weight.detach().clone()
    for step in range(3):
        optimizer.fused_backward(loss_of(model, step), 1e-2)
    assert model[0].weight.equal(before) and extra.detach().equal(torch.ones(3))
    model[0].weight.requires_grad_(True)
    optimizer.fused_backward(loss_of(model, 3) + extra.sum(), 0.5)
    assert not model[0].weight.equal(before) and extra.detach().equal(torch.full((3,), 0.5))


def test_tied_weights_are_stepped_once():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    model = torch.nn.ParameterList([weight])
    optimizer = Lomo(model)
    optimizer.fused_backward((weight @ weight).sum(), 0.25)
    assert weight.detach().equal(torch.zeros(2, 2))  # the gradient is 4


def test_gradient_that_is_there_already():
    model = make_model()
    optimizer = Lomo(model)
    loss_of(model, 0).backward()
    words = "parameter '0.weight' has a gradient before the fused backward pass"
    with pytest.raises(stepc.StepcError, match=words):
        optimizer.fused_backward(loss_of(model, 0), 1e-3)


def test_parameter_that_cannot_be_stepped():
    model = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))})
    optimizer = Lomo(model)
    words = "parameter 'w' has complex dtype torch.complex64"
    with pytest.raises(stepc.errors.TensorError, match=words):
        optimizer.fused_backward(model["w"].abs().sum(), 1e-3)
    assert model["w"].grad is None


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise OSError("no more")


def test_backward_that_fails():
    """What came before is stepped; the optimizer goes on."""
    model, twin = make_model(), make_model()
    optimizer, other = Lomo(model), Lomo(twin)
    hidden = Failing.apply(model[0](torch.ones(1, 7)))
    with pytest.raises(OSError, match="no more"):
        optimizer.fused_backward(model[1:](hidden).sum(), 1e-3)
    other.fused_backward(twin[1:](twin[0](torch.ones(1, 7)).detach()).sum(), 1e-3)
    assert bits_equal(list(model.parameters()), list(twin.parameters()))
    for p in model.parameters():
        p.grad = None
    optimizer.fused_backward(loss_of(model, 0), 1e-3)
    other.fused_backward(loss_of(twin, 0), 1e-3)
    assert bits_equal(list(model.parameters()), list(twin.parameters()))


def test_versions_move():
    """autograd notices a parameter that was stepped before its use."""
    model = make_model()
    optimizer = Lomo(model)
    versions = [p._version for p in model.parameters()]
    optimizer.fused_backward(loss_of(model, 0), 1e-3)
    assert all(p._version > v for p, v in zip(model.parameters(), versions, strict=True))


def test_copies():
    model = make_model()
    optimizer = Lomo(model, lr=0.5)
    optimizer.fused_backward(loss_of(model, 0), 1e-3)
    model2, optimizer2 = copy.deepcopy((model, optimizer))
    optimizer.fused_backward(loss_of(model, 1), 1e-3)
    optimizer2.fused_backward(loss_of(model2, 1), 1e-3)
    assert bits_equal(list(model.parameters()), list(model2.parameters()))


def test_a_pass_that_was_interrupted_has_no_norm():
    """Of parameters of two steps."""
    model = make_model()
    optimizer = Lomo(model, clip_grad_norm=1.0)
    optimizer.grad_norm(loss_of(model, 0))

    def interrupted(_):
        raise KeyboardInterrupt

    hook = model[0].weight.register_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        optimizer.fused_backward(loss_of(model, 0), 1e-2)
    hook.remove()
    model.zero_grad()
    for call in (optimizer.grad_norm, lambda loss: optimizer.fused_backward(loss, 1e-2)):
        with pytest.raises(errors.StatusError, match="KeyboardInterrupt came in a step"):
            call(loss_of(model, 0))
    assert all(p.grad is None for p in model.parameters())
