# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LOMO and AdaLomo beside lomo_optim, with its two backward passes."""

import copy

import pytest
import torch
from common import bits_equal
from stepc import errors
from stepc.torch.lomo import AdaLomo, Lomo


def make_model(dtype=torch.float32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.LayerNorm(33), torch.nn.Linear(33, 2)
    )
    return model.to(dtype)


def loss_of(model, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    return model(x.to(next(model.parameters()).dtype)).square().sum()


@pytest.fixture
def lomo_optim(monkeypatch):
    """The package, whose AdaLomo puts its states on a GPU."""
    package = pytest.importorskip("lomo_optim")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    return package


KWARGS = [
    {},
    {"weight_decay": 0.1},
    {"clip_grad_value": 0.5},
    {"clip_grad_norm": 0.5},
    {"clip_grad_norm": 0.5, "clip_grad_value": 0.05, "weight_decay": 0.01},
]


@pytest.mark.parametrize("kwargs", KWARGS, ids=str)
@pytest.mark.parametrize("kind", ["Lomo", "AdaLomo"])
def test_twenty_steps(lomo_optim, kind, kwargs):
    ours, theirs = make_model(), make_model()
    a = {"Lomo": Lomo, "AdaLomo": AdaLomo}[kind](ours, **kwargs)
    b = getattr(lomo_optim, kind)(theirs, **kwargs)
    for step in range(20):
        lr = 1e-3 * (step + 1)
        for model, optimizer in ((ours, a), (theirs, b)):
            loss = loss_of(model, step)
            if "clip_grad_norm" in kwargs:
                optimizer.grad_norm(loss)
            optimizer.fused_backward(loss, lr)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
    assert all(p.grad is None for p in ours.parameters())


def test_states_of_adalomo(lomo_optim):
    ours, theirs = make_model(), make_model()
    a, b = AdaLomo(ours), lomo_optim.AdaLomo(theirs)
    for step in range(3):
        a.fused_backward(loss_of(ours, step), 1e-3)
        b.fused_backward(loss_of(theirs, step), 1e-3)
    for name, p in ours.named_parameters():
        state = a.state[p]
        assert float(state["step"]) == b.step_num == 3
        for kept in ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"):
            there = getattr(b, kept).get(name)
            assert (there is None) == (kept not in state)
            if there is not None:
                torch.testing.assert_close(state[kept], there, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype):
    model = make_model(dtype)
    optimizer = AdaLomo(model, clip_grad_norm=1.0)
    before = [p.detach().clone() for p in model.parameters()]
    for step in range(3):
        loss = loss_of(model, step)
        optimizer.grad_norm(loss)
        optimizer.fused_backward(loss, 1e-2)
    after = list(model.parameters())
    assert all(bool(p.isfinite().all()) for p in after)
    assert not any(p.equal(q) for p, q in zip(before, after, strict=True))


@pytest.mark.parametrize("norm", [None, 1e-4])
@pytest.mark.parametrize(("kind", "lr"), [(Lomo, 2.0**11), (AdaLomo, 1e-2)])
def test_float16_with_a_static_scale(kind, lr, norm):
    """Beside float32 parameters of the same values: as near as gradients in float16 are. Without
    the scale many of these, of a loss of 1e-5, would be 0."""
    narrow, wide = make_model(torch.float16), make_model()
    with torch.no_grad():
        for p, q in zip(narrow.parameters(), wide.parameters(), strict=True):
            q.copy_(p)
    begin = [p.detach().clone() for p in wide.parameters()]
    for model in (narrow, wide):
        optimizer = kind(model, loss_scale=2.0**12, clip_grad_norm=norm)
        for step in range(3):
            loss = loss_of(model, step) * 2.0**-16
            assert loss.dtype is next(model.parameters()).dtype
            if norm is not None:
                assert optimizer.grad_norm(loss) > norm
            optimizer.fused_backward(loss, lr)
    three = list(zip(narrow.parameters(), wide.parameters(), begin, strict=True))
    moved = max((q - b).abs().max() for _, q, b in three)
    assert moved > 0.02 and max((p.float() - q).abs().max() for p, q, _ in three) < 0.03 * moved


@pytest.mark.parametrize("kind", [Lomo, AdaLomo])
@pytest.mark.parametrize("copied", [False, True])
def test_a_norm_that_is_not_finite_steps_nothing(kind, copied):
    """Of gradients that a scale has made too large, or of no numbers; and then one that is."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8).half()

    def loss_at(size):
        return model(torch.ones(2, 8).half()).float().square().sum() * size

    optimizer = kind(model, loss_scale=2.0**15, clip_grad_norm=1.0)
    before = [p.detach().clone() for p in model.parameters()]
    assert optimizer.grad_norm(loss_at(100.0)).isinf()
    if copied:
        model, optimizer = copy.deepcopy((model, optimizer))
    with pytest.raises(errors.StepcError, match="gradients is inf: loss_scale 32768.0 is too lar"):
        optimizer.fused_backward(loss_at(100.0), 0.5)
    assert optimizer.grad_norm(loss_at(float("nan"))).isnan()
    with pytest.raises(errors.StepcError, match="norm of the gradients is nan: loss_scale"):
        optimizer.fused_backward(loss_at(float("nan")), 0.5)
    assert bits_equal(before, list(model.parameters())) and optimizer.lr == 1e-3
    assert not optimizer.state and all(p.grad is None for p in model.parameters())
    assert optimizer.grad_norm(loss_at(1e-3)).isfinite()
    optimizer.fused_backward(loss_at(1e-3), 0.5)
    assert all(p.isfinite().all() for p in model.parameters())
    assert not bits_equal(before, list(model.parameters()))


def test_float16_of_lomo_optim(lomo_optim):
    """Its AdaLomo has a static scale, too: the same steps, within float16's rounding."""
    ours, theirs = make_model(torch.float16), make_model(torch.float16)
    begin = [p.detach().clone() for p in ours.parameters()]
    optimizer, other = AdaLomo(ours), lomo_optim.AdaLomo(theirs)
    for step in range(3):
        optimizer.fused_backward(loss_of(ours, step) * 2.0**-6, 1e-2)
        other.fused_backward(loss_of(theirs, step) * 2.0**-6, 1e-2)
    assert not any(map(torch.equal, ours.parameters(), begin))
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2**-10, atol=2**-20)


def test_float16_is_refused_without_a_scale_that_fits():
    model = make_model(torch.float16)
    before = [p.detach().clone() for p in model.parameters()]
    for optimizer, words in (
        (Lomo(model), "in which small gradients are 0: give loss_scale to the constructor"),
        (Lomo(model, clip_grad_norm=1.0), "give loss_scale to the constructor"),
        (AdaLomo(model, loss_scale=2.0**16), "loss_scale is 65536.0, expected at most 65504.0"),
    ):
        with pytest.raises((errors.TensorError, ValueError), match=words):
            optimizer.fused_backward(loss_of(model, 0), 1e-3)
    assert bits_equal(before, list(model.parameters()))
    assert all(p.grad is None for p in model.parameters())


def test_convolutions():
    """Batches of matrices; lomo_optim fails on them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    optimizer = AdaLomo(model)
    optimizer.fused_backward(model(torch.randn(2, 3, 5, 5)).square().sum(), 1e-3)
    state = optimizer.state[model[0].weight]
    assert state["exp_avg_sq_row"].shape == (4, 3, 3) == state["exp_avg_sq_col"].shape


def test_checkpoints():
    model = make_model()
    whole = AdaLomo(model)
    for step in range(3):
        whole.fused_backward(loss_of(model, step), 1e-3)
    twin = copy.deepcopy(model)
    resumed = AdaLomo(twin)
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    for step in range(3, 6):
        whole.fused_backward(loss_of(model, step), 1e-3)
        resumed.fused_backward(loss_of(twin, step), 1e-3)
    assert bits_equal(list(model.parameters()), list(twin.parameters()))


def test_a_norm_is_for_one_step():
    model = make_model()
    optimizer = AdaLomo(model, clip_grad_norm=1.0)
    loss = loss_of(model, 0)
    optimizer.grad_norm(loss)
    optimizer.fused_backward(loss, 1e-3)
    with pytest.raises(ValueError, match="Please call optimizer.grad_norm"):
        optimizer.fused_backward(loss_of(model, 1), 1e-3)
