# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True`` with ``ClipByNorm``: a pass for the norm, and one that steps."""

import copy

import pytest
import stepc.torch as st
import torch
from fused_models import loss_of, model_of, same
from stepc import errors


@pytest.mark.parametrize("order", [2.0, float("inf")])
@pytest.mark.parametrize("scale", [None, 16.0])
@pytest.mark.parametrize("max_norm", [1e-2, 1e3])
def test_the_norm_has_a_pass_of_its_own(max_norm, scale, order):
    """Clipped as behind one pass, but for the last bits of the norm."""
    model, twin = model_of(), model_of()
    make = lambda made, **more: st.SGD(  # noqa: E731
        made.parameters(), lr=0.1, clip=st.ClipByNorm(max_norm, order), loss_scale=scale, **more
    )
    fused, plain = make(model, fused_backward=True), make(twin)
    for number in range(3):
        norm = fused.backward(loss_of(model, number))
        assert all(param.grad is None for param in model.parameters())
        fused.step()
        plain.backward(loss_of(twin, number))
        plain.step()
        plain.zero_grad()
        torch.testing.assert_close(float(norm), plain.last_step.grad_norm, rtol=1e-6, atol=0.0)
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    assert fused.loss_scale == (scale or 1.0)
    assert fused.clip[0].max_norm == max_norm
    if max_norm == 1e3 and scale is None:  # nothing is clipped: the bits are the same
        same(model, twin)


def test_the_norm_is_asked_for():
    model = model_of()
    optimizer = st.AdamW(model.parameters(), fused_backward=True, clip=st.ClipByNorm(1.0))
    with pytest.raises(errors.StepcError, match=r"call opt\.backward\(loss\), which makes two"):
        loss_of(model, 0).backward()
    assert not optimizer.state
    optimizer.backward(loss_of(model, 0))
    with pytest.raises(errors.StepcError, match=r"call step\(\) before the next"):
        optimizer.backward(loss_of(model, 1))
    optimizer.step()
    twin, other = copy.deepcopy((model, optimizer))
    for made, own in ((model, optimizer), (twin, other)):
        own.backward(loss_of(made, 1))
        own.step()
    same(model, twin, optimizer, other)
    with pytest.raises(ValueError, match="ClipByNorm stands alone"):
        clip = [st.ClipByValue(1.0), st.ClipByNorm(1.0)]
        st.AdamW(model.parameters(), fused_backward=True, clip=clip)


def test_others_get_their_gradients_once():
    """Of a loss that two optimizers share, and of what is none's."""
    model, twin = model_of(), model_of()
    for made, more in ((model, {"fused_backward": True}), (twin, {})):
        weights = [p for p in made.parameters() if p.dim() == 2]
        biases = [p for p in made.parameters() if p.dim() != 2]
        first = st.SGD(weights, lr=0.1, clip=st.ClipByNorm(1e3), **more)
        others = [st.SGD(biases[:2], lr=0.1), st.SGD(biases[2:], lr=0.1, **more)]
        first.backward(loss_of(made, 0))
        for optimizer in (first, *others):
            optimizer.step()
    same(model, twin)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_norm_that_is_none(number):
    """As with clipping behind the pass, and torch's: a NaN norm makes all gradients NaN."""
    model, twin = model_of(), model_of()
    make = lambda made, **more: st.SGD(  # noqa: E731
        made.parameters(), lr=0.1, clip=st.ClipByNorm(0.1), **more
    )
    for made, optimizer in ((model, make(model, fused_backward=True)), (twin, make(twin))):
        loss = loss_of(made, 0) + made[0].bias.sum() * number
        optimizer.backward(loss)
        optimizer.step()
        assert made[0].bias.isnan().all()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_thawed_parameters_are_in_the_norm():
    found = []
    for more in ({"fused_backward": True}, {}):
        model = model_of()
        model[6].requires_grad_(False)
        optimizer = st.SGD(model.parameters(), lr=0.1, clip=st.ClipByNorm(0.05), **more)
        for number in range(2):
            optimizer.backward(loss_of(model, number))
            optimizer.step()
            optimizer.zero_grad()
            model[6].requires_grad_(True)
        found.append((model, optimizer.last_step))
    (model, ours), (twin, theirs) = found
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    for name in ("grad_norm", "clip_coef"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=0.0)


def test_gradients_that_nobody_has_clipped_are_not_stepped():
    model = model_of()
    optimizer = st.SGD(model.parameters(), clip=st.ClipByNorm(0.1), fused_backward=True)
    model[0].weight.grad = torch.ones(6, 6)
    with pytest.raises(errors.StepcError, match=r"call opt\.backward\(loss\)"):
        optimizer.step()
    with pytest.raises(errors.StepcError, match="has a gradient before the fused backward pass"):
        optimizer.backward(loss_of(model, 0))
    optimizer.zero_grad()
    optimizer.backward(loss_of(model, 0))
    optimizer.step()


def test_a_graph_that_is_used_again():
    model = model_of()
    optimizer = st.SGD(model.parameters(), clip=st.ClipByNorm(0.1), fused_backward=True)
    inner = torch.ones(4, requires_grad=True)
    loss = loss_of(model, 0) + inner.square().sum()
    optimizer.backward(loss, retain_graph=True)
    optimizer.step()
    inner.square().sum().backward()
    assert inner.grad.equal(torch.full((4,), 4.0))  # once by the loss, and once by itself


def test_a_norm_is_no_reproducible_sum():
    clip = st.ClipByNorm(1.0)
    with pytest.raises(ValueError, match="reproducible=True sums the norm of ClipByNorm within"):
        st.AdamW(model_of().parameters(), fused_backward=True, clip=clip, reproducible=True)


def test_backward_without_two_passes():
    model, twin = model_of(), model_of()
    fused = st.AdamW(model.parameters(), loss_scale=4.0, fused_backward=True)
    plain = st.AdamW(twin.parameters(), loss_scale=4.0)
    for made, optimizer in ((model, fused), (twin, plain)):
        assert optimizer.backward(loss_of(made, 0)) is None
        optimizer.step()
    same(model, twin, fused, plain)
