# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``stepc.torch.GradScaler``: inside the compiled step, beside torch's with torch.optim."""

import math

import pytest
import stepc.torch
import torch
from common import bits_equal, distance, make_params, set_grads, states
from stepc.torch import ClipByNorm, DynamicLossScale
from torch_table import assert_agree, default_dtype, each_optimizer, pair

KINDS = {
    "adamw": (stepc.torch.AdamW, torch.optim.AdamW, {"lr": 1e-2}),
    "sgd": (stepc.torch.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "rmsprop": (stepc.torch.RMSprop, torch.optim.RMSprop, {"lr": 1e-2}),
    "adafactor": (stepc.torch.Adafactor, torch.optim.Adafactor, {"lr": 1e-2}),
}
SCALERS = [stepc.torch.GradScaler, torch.amp.GradScaler]
SETTINGS = {"init_scale": 2.0**10, "growth_interval": 4}
BAD = {2: math.inf, 9: math.nan, 10: -math.inf, 22: math.inf}


class Net(torch.nn.Module):
    """With a head and a body, each for an optimizer of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Linear(17, 33)
        self.head = torch.nn.Linear(33, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def losses_of(step):
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(16, n, generator=generator) for n in (17, 3)]


def run(net, scaler, optimizers, step, clip=None, unscale=False):
    """One step; the loss. An overflow is put into the first parameter's gradient, of the
    head in every other of the bad steps."""
    x, y = losses_of(step)
    loss = torch.nn.functional.mse_loss(net(x), y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    if step in BAD:
        part = net.head if step % 2 else net.body
        part.weight.grad[0, 0] = BAD[step]
    for optimizer in optimizers:
        if clip or unscale:
            scaler.unscale_(optimizer)
        if clip:
            params = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(params, clip)
        scaler.step(optimizer)
    scaler.update()
    return loss.item()


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize(("body", "head"), [("adamw", "sgd"), ("rmsprop", "adafactor")])
def test_like_torchs(body, head, clip):
    """Losses, parameters, counts and scales over 30 steps, two optimizers on one scaler,
    each of which skips by itself; clipping is inside of our step."""
    ours, theirs = Net(), Net()
    features = {"clip": ClipByNorm(clip)} if clip else {}
    pairs = [(KINDS[body], "body"), (KINDS[head], "head")]
    a = [k[0](getattr(ours, part).parameters(), **k[2], **features) for k, part in pairs]
    b = [k[1](getattr(theirs, part).parameters(), **k[2]) for k, part in pairs]
    own, torchs = stepc.torch.GradScaler("cpu", **SETTINGS), torch.amp.GradScaler("cpu", **SETTINGS)
    for step in range(30):
        left = run(ours, own, a, step)
        right = run(theirs, torchs, b, step, clip=clip)
        assert abs(left - right) <= 1e-4 * abs(right), step
        assert own.get_scale() == torchs.get_scale(), step
        skipped = [o.last_step.skipped for o in a]
        assert skipped == [step in BAD and step % 2 == i for i in (0, 1)]
        for x, y in zip(a, b, strict=True):
            assert states(x, "step") == states(y, "step")
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 1e4
    assert own.state_dict() == torchs.state_dict()


def test_nothing_is_read_for_it(monkeypatch):
    """torch's unscaling does not run, and gradients stay as they are."""
    net = Net()
    optimizer = stepc.torch.AdamW(net.parameters(), clip=ClipByNorm(1.0))
    scaler = stepc.torch.GradScaler("cpu", **SETTINGS)

    def refuse(*args):
        raise AssertionError("unscaled outside of the step")

    monkeypatch.setattr(torch.amp.GradScaler, "_unscale_grads_", refuse)
    run(net, scaler, [optimizer], 0)
    before = [p.grad.clone() for p in net.parameters()]
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in before)) / 2**10
    assert optimizer.last_step.loss_scale == 2**10
    assert abs(optimizer.last_step.grad_norm / norm - 1.0) < 1e-6
    assert bits_equal(before, [p.grad for p in net.parameters()])


def test_one_read_before_the_update():
    """For the norm and the overflow together: two kernels, the first of the gradient."""
    net = Net()
    optimizer = stepc.torch.AdamW(net.parameters(), clip=ClipByNorm(1.0))
    run(net, stepc.torch.GradScaler("cpu", **SETTINGS), [optimizer], 0)
    optimizer._grad_scale = stepc.torch.binding.features.GradScale(1.0)
    manifest = optimizer._get_definition().package(
        ("param=f32,grad=f32,option.amsgrad=false,option.maximize=false",)
    ).manifest  # fmt: skip
    for variant in manifest["variants"]:
        kernels = [entry for entry in variant["schedule"] if "kernel" in entry]
        names = [[variant["operands"][i]["name"] for i in kernel["reads"]] for kernel in kernels]
        assert len(kernels) == 2 and names[0] == ["grad"] and not kernels[0]["writes"]


def test_the_scale_is_that_of_the_backward_pass():
    """In the step in which it grows too: the update does not depend on it."""
    ours, theirs = make_params([(50,)]), make_params([(50,)])
    a, b = (stepc.torch.SGD(p, lr=0.1) for p in (ours, theirs))
    scaler = stepc.torch.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    for step in range(4):
        scaler.scale(torch.ones(()))
        set_grads(ours, theirs, seed=step)
        ours[0].grad.mul_(4.0 * 2.0**step)
        scaler.step(a)
        scaler.update()
        b.step()
        assert scaler.get_scale() == 4.0 * 2.0 ** (step + 1)
    assert bits_equal(ours, theirs)


@pytest.mark.parametrize("scaler_kind", SCALERS)
@pytest.mark.parametrize("unscale", [False, True])
def test_either_scaler_and_unscaling_by_hand(scaler_kind, unscale):
    ours, theirs = Net(), Net()
    a = [stepc.torch.AdamW(ours.parameters(), lr=1e-2)]
    b = [torch.optim.AdamW(theirs.parameters(), lr=1e-2)]
    own, torchs = scaler_kind("cpu", **SETTINGS), torch.amp.GradScaler("cpu", **SETTINGS)
    clip = 0.3 if unscale else None
    for step in range(12):
        run(ours, own, a, step, clip=clip)
        run(theirs, torchs, b, step, clip=clip)
        assert own.get_scale() == torchs.get_scale()
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 1e4
    assert states(a[0], "step") == states(b[0], "step") and states(a[0], "step")[0] < 12


@pytest.mark.parametrize("scaler_kind", SCALERS)
@each_optimizer
def test_every_optimizer(name, scaler_kind):
    """With an overflow in the second step, which neither counts nor changes anything."""
    with default_dtype(torch.float64):
        left, right = pair(name, torch.float64, params=make_params([(3,), (2, 4)], torch.float64))
        scalers = [kind("cpu", **SETTINGS) for kind in (scaler_kind, torch.amp.GradScaler)]
        for step in range(4):
            before = [p.detach().clone() for p in left[0]]
            set_grads(left[0], right[0], seed=step)
            for scaler, (params, optimizer) in zip(scalers, (left, right), strict=True):
                scaler.scale(torch.ones(()))
                for param in params:
                    param.grad *= scaler.get_scale()
                params[1].grad[0, 1] *= math.inf if step == 1 else 1.0
                scaler.step(optimizer)
                scaler.update()
            assert bits_equal(before, left[0]) is (step == 1)
            assert_agree(left, right)
            assert scalers[0].state_dict() == scalers[1].state_dict()
        assert left[1].last_step is not None and scalers[0].get_scale() == 2**9


@pytest.mark.parametrize("kinds", [SCALERS, SCALERS[::-1]], ids=["to torch's", "from torch's"])
def test_a_scaler_goes_on_as_the_other(kinds):
    """Loaded after an overflow, within an interval of growth: the scale and the steps since."""
    nets, scalers = [], []
    for kind in (torch.amp.GradScaler, *kinds):
        nets.append(Net())
        scalers.append(kind("cpu", **SETTINGS))
    optimizers = [stepc.torch.SGD(net.parameters(), lr=0.1) for net in nets]
    for step in range(5):
        for scaler, net, optimizer in zip(scalers[:2], nets, optimizers, strict=False):
            run(net, scaler, [optimizer], step)
    nets[2].load_state_dict(nets[1].state_dict())
    scalers[2].load_state_dict(scalers[1].state_dict())
    assert scalers[2].state_dict() == scalers[1].state_dict()
    assert scalers[2].get_scale() == 2**9 and scalers[2]._get_growth_tracker() == 2
    for step in range(5, 11):
        run(nets[0], scalers[0], optimizers[:1], step)
        run(nets[2], scalers[2], optimizers[2:], step)
        assert scalers[2].state_dict() == scalers[0].state_dict()
    assert distance(list(nets[2].parameters()), list(nets[0].parameters())) < 1e2


def test_a_skipped_first_step_leaves_no_state():
    net = Net()
    optimizer = stepc.torch.AdamW(net.parameters())
    scaler = stepc.torch.GradScaler("cpu", **SETTINGS)
    run(net, scaler, [optimizer], 2)
    assert optimizer.last_step.skipped and not optimizer.state and scaler.get_scale() == 2**9


def test_states_outlive_the_change_of_the_way():
    """Steps with and without a scaler, in turn, are those of one optimizer."""
    ours, theirs = make_params([(50,), (3, 4)]), make_params([(50,), (3, 4)])
    a, b = (stepc.torch.AdamW(p, lr=1e-2) for p in (ours, theirs))
    scaler = stepc.torch.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        set_grads(ours, theirs, seed=step)
        if step % 2:
            a.step()
        else:
            scaler.scale(torch.ones(()))
            for p in ours:
                p.grad.mul_(8.0)
            scaler.step(a)
            scaler.update()
        b.step()
    assert bits_equal(ours, theirs) and a.state[ours[0]]["step"] == 4


def test_what_is_not_compiled_goes_as_torchs():
    """Of sparse gradients; asked once inside, then no more."""
    params = make_params([(5, 2)])
    before = params[0].detach().clone()
    optimizer = stepc.torch.SGD(params, lr=0.1)
    scaler = stepc.torch.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    with pytest.warns(RuntimeWarning, match="runs torch's own step"):
        for _ in range(2):
            params[0].grad = torch.full((5, 2), 4.0).to_sparse(1)
            scaler.step(optimizer)
            scaler.update()
    assert torch.allclose(params[0].detach(), before - 0.2) and optimizer._needs_unscaled


def test_a_loss_scale_of_its_own_is_not_divided_by_twice():
    ours, theirs = make_params([(50,)]), make_params([(50,)])
    a = stepc.torch.SGD(ours, lr=0.1, loss_scale=DynamicLossScale(2.0))
    b = stepc.torch.SGD(theirs, lr=0.1)
    scaler = stepc.torch.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    set_grads(ours, theirs)
    ours[0].grad.mul_(8.0)
    scaler.step(a)
    b.step()
    assert bits_equal(ours, theirs)


def test_errors_are_torchs():
    params = make_params([(3,)])
    optimizer = stepc.torch.SGD(params, lr=0.1)
    scaler = stepc.torch.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.step(optimizer)
    scaler.update(8.0)
    set_grads(params)
    scaler = stepc.torch.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step"):
        scaler.unscale_(optimizer)
    off = stepc.torch.GradScaler("cpu", enabled=False)
    off.step(optimizer)
