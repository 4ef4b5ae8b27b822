# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Clipping and loss scaling inside the step, beside torch's outside of it."""

import copy
import math
import pickle

import pytest
import stepc.torch
import torch
from common import ZOO, bits_equal, clone_params, distance, make_params, set_grads, train
from stepc import errors
from stepc.torch import ClipByNorm, ClipByValue, DynamicLossScale, colossal, deepspeed

SHAPES = [(), (0,), (7,), (3, 5), (2, 3, 4), (33, 129), (200, 101)]
KINDS = {
    "adamw": (stepc.torch.AdamW, {"lr": 1e-2}),
    "sgd": (stepc.torch.SGD, {"lr": 0.1, "momentum": 0.9}),
    "lion": (stepc.torch.Lion, {"lr": 1e-2}),
    "adafactor": (stepc.torch.Adafactor, {"lr": 1e-2}),
    "file": (lambda p, **k: stepc.torch.Optimizer(p, ZOO / "adamw.mlir", **k), {"lr": 1e-2}),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, params, **features):
    construct, kwargs = KINDS[kind]
    return construct(params, **kwargs, **features)


def with_grad(params):
    return [p for p in params if p.grad is not None]


# --- Clipping -----------------------------------------------------------------


DTYPES = [(kind, dtype) for kind in KINDS for dtype in (torch.float32, torch.float64)]
# A sign, or a quotient, of gradients that were rounded is another.
DTYPES += [(kind, torch.bfloat16) for kind in ("adamw", "sgd", "file")]


@pytest.mark.parametrize(("kind", "dtype"), DTYPES)
@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_like_clip_grad_norm(kind, dtype, norm_type):
    """And .grad stays as it is."""
    ours, theirs = make_params(SHAPES, dtype), make_params(SHAPES, dtype)
    clip = ClipByNorm(0.5, norm_type)
    a, b = make(kind, ours, clip=clip), make(kind, theirs)
    for step in range(10):
        set_grads(ours, theirs, seed=step)
        if step == 5:
            for p in (*ours, *theirs):
                p.grad.mul_(1e-4)  # below the bound
        before = [p.grad.clone() for p in ours]
        a.step()
        # Of an empty tensor torch finds no largest element.
        norm = torch.nn.utils.clip_grad_norm_([p for p in theirs if p.numel()], 0.5, norm_type)
        b.step()
        assert bits_equal(before, [p.grad for p in ours])
        report = a.last_step
        rough = 1e-2 if dtype is torch.bfloat16 else 1e-5
        assert report.grad_norm == pytest.approx(float(norm), rel=rough)
        assert report.clip_coef == pytest.approx(min(1.0, 0.5 / (float(norm) + 1e-6)), rel=rough)
        assert report.clip_coef == 1.0 if step == 5 else report.clip_coef < 1.0
    limit = 16 if dtype is torch.bfloat16 else 2000
    assert distance(ours, theirs) < limit


@each_kind
def test_like_clip_grad_value(kind):
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a, b = make(kind, ours, clip=ClipByValue(0.25)), make(kind, theirs)
    for step in range(5):
        set_grads(ours, theirs, seed=step)
        a.step()
        torch.nn.utils.clip_grad_value_(theirs, 0.25)
        b.step()
    assert bits_equal(ours, theirs)


@pytest.mark.parametrize("order", ["value-norm", "norm-value"])
def test_both_in_their_order(order):
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    clips = {"value": ClipByValue(0.5), "norm": ClipByNorm(2.0)}
    a = make("sgd", ours, clip=[clips[name] for name in order.split("-")])
    b = make("sgd", theirs)
    for step in range(5):
        set_grads(ours, theirs, seed=step)
        a.step()
        for name in order.split("-"):
            if name == "value":
                torch.nn.utils.clip_grad_value_(theirs, 0.5)
            else:
                torch.nn.utils.clip_grad_norm_(theirs, 2.0)
        b.step()
    assert distance(ours, theirs) < 100


def test_the_norm_is_of_all_groups():
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    groups = [{"params": ours[:3], "lr": 0.5}, {"params": ours[3:], "momentum": 0.0}]
    a = stepc.torch.SGD(groups, lr=0.1, momentum=0.9, clip=ClipByNorm(0.5))
    groups = [{"params": theirs[:3], "lr": 0.5}, {"params": theirs[3:], "momentum": 0.0}]
    b = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for step in range(5):
        set_grads(ours, theirs, seed=step)
        for params in (ours, theirs):
            params[step].grad = None
        a.step()
        torch.nn.utils.clip_grad_norm_(with_grad(theirs), 0.5)
        b.step()
    assert distance(ours, theirs) < 100


def test_bounds_change_between_steps(compiler_runs):
    params = make_params(SHAPES)
    optimizer = make("sgd", params, clip=ClipByNorm(0.5))
    train((optimizer,), (params,), 1)
    runs, binding = len(compiler_runs), optimizer._binding
    for step in range(4):
        optimizer.clip[0].max_norm = 0.5 / (step + 1)
        train((optimizer,), (params,), 1, first=step + 1)
        report = optimizer.last_step
        assert report.clip_coef * report.grad_norm == pytest.approx(0.5 / (step + 1))
    assert len(compiler_runs) == runs and optimizer._binding is binding


def test_first_gradients_that_come_later():
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a, b = make("adamw", ours, clip=ClipByNorm(0.5)), make("adamw", theirs)
    for step in range(6):
        set_grads(ours, theirs, seed=step)
        for params in (ours, theirs):
            for p in params[step + 1 :]:
                p.grad = None
        a.step()
        torch.nn.utils.clip_grad_norm_(with_grad(theirs), 0.5)
        b.step()
    assert distance(ours, theirs) < 500


def test_no_gradients_at_all():
    params = make_params(SHAPES)
    optimizer = make("adamw", params, clip=ClipByNorm(0.5))
    optimizer.step()
    assert not optimizer.state


# --- Loss scales --------------------------------------------------------------


@each_kind
def test_static_scale(kind):
    """A power of two: bit by bit."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a, b = make(kind, ours, loss_scale=1024.0), make(kind, theirs)
    for step in range(5):
        set_grads(ours, theirs, seed=step)
        for p in ours:
            p.grad.mul_(1024.0)
        a.step()
        b.step()
        assert a.last_step.loss_scale == 1024.0
    assert bits_equal(ours, theirs)


def torch_sequence(kind, overflows, **kwargs):
    """Parameters, scales and skips of torch's GradScaler, and the same of ours."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    a = make(kind, ours, loss_scale=DynamicLossScale(**kwargs), clip=ClipByNorm(1.0))
    b = make(kind, theirs)
    scaler = torch.amp.GradScaler("cpu", **kwargs)
    scaler.scale(torch.ones(()))  # it makes its tensors now
    for step, overflow in enumerate(overflows):
        assert a.loss_scale == scaler.get_scale()
        set_grads(ours, theirs, seed=step)
        for p in (*ours, *theirs):
            p.grad.mul_(a.loss_scale)
        if overflow:
            for params in (ours, theirs):
                params[step % 3 + 3].grad.view(-1)[-1] = overflow
        before = [p.detach().clone() for p in ours]
        states = copy.deepcopy(a.state_dict()["state"])
        a.step()
        scaler.unscale_(b)
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        scaler.step(b)
        scaler.update()
        assert a.last_step.skipped == bool(overflow)
        if overflow:
            assert bits_equal(before, ours)
            assert_same_states(states, a.state_dict()["state"])
    assert a.loss_scale == scaler.get_scale()
    return ours, theirs, a, b


def assert_same_states(left, right):
    assert left.keys() == right.keys()
    for key, state in left.items():
        assert bits_equal(list(state.values()), list(right[key].values()))


INF, NAN = math.inf, math.nan
SEQUENCES = {
    "none": [0] * 10,
    "first": [INF, 0, 0, 0, 0, 0, 0],
    "some": [0, 0, 0, 0, INF, 0, NAN, -INF, 0, 0, 0, 0, 0, 0, INF],
    "all": [NAN, INF, -INF, INF],
}


@each_kind
@pytest.mark.parametrize("sequence", SEQUENCES)
def test_like_grad_scaler(kind, sequence):
    kwargs = {"init_scale": 256.0, "growth_interval": 3}
    ours, theirs, a, b = torch_sequence(kind, SEQUENCES[sequence], **kwargs)
    assert distance(ours, theirs) < 2000
    for p, q in zip(ours, theirs, strict=True):
        assert a.state.get(p, {}).keys() == b.state.get(q, {}).keys()
        if "step" in a.state.get(p, {}):
            assert a.state[p]["step"] == b.state[q]["step"]


def test_other_factors():
    kwargs = {"init_scale": 2.0, "growth_factor": 4.0, "backoff_factor": 0.25}
    torch_sequence("sgd", [0, 0, 0, INF, 0, 0, 0], growth_interval=2, **kwargs)


def test_nothing_is_created_in_a_skipped_first_step():
    params = make_params(SHAPES)
    optimizer = make("adamw", params, loss_scale=DynamicLossScale())
    set_grads(params)
    params[3].grad[0] = INF
    optimizer.step()
    assert optimizer.last_step.skipped and not optimizer.state
    assert optimizer.loss_scale == 2.0**15
    train((optimizer,), (params,), 1)
    assert not optimizer.last_step.skipped and optimizer.state[params[0]]["step"] == 1


def test_first_step_of_sgd_after_a_skipped_one():
    """dampening: the first momentum is the gradient, not part of it."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    kwargs = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    a = stepc.torch.SGD(ours, **kwargs, loss_scale=DynamicLossScale(init_scale=2.0))
    b = torch.optim.SGD(theirs, **kwargs)
    set_grads(ours)
    ours[3].grad.fill_(NAN)
    a.step()
    for step in range(3):
        set_grads(ours, theirs, seed=step)
        a.step()
        b.step()
    assert distance(ours, theirs) < 1e9 and a.loss_scale == 1.0
    assert bits_equal(
        [a.state[p]["momentum_buffer"] for p in ours][:1],
        [b.state[p]["momentum_buffer"] for p in theirs][:1],
    )


def run(optimizer, params, overflows, first=0):
    """Steps with gradients of a loss that has the optimizer's scale."""
    for step, overflow in enumerate(overflows, start=first):
        set_grads(params, seed=step)
        for p in params:
            p.grad.mul_(optimizer.loss_scale)
        if overflow:
            params[3].grad.view(-1)[0] = overflow
        optimizer.step()


SCALERS = {
    "torch": lambda: DynamicLossScale(256.0, growth_interval=3),
    "deepspeed": lambda: deepspeed.DynamicLossScaler(256.0, scale_window=3, delayed_shift=2),
    "colossal": lambda: colossal.DynamicGradScaler(256.0, growth_interval=3),
}
each_scaler = pytest.mark.parametrize("scaler", SCALERS)


@each_scaler
@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
def test_scales_are_kept(scaler, how):
    """With their counters, also before the first step after loading."""
    sequence = [0, INF, 0, 0, INF, INF, 0, 0, 0, 0, 0, INF, 0]
    whole, half = make_params(SHAPES), make_params(SHAPES)
    a = make("adamw", whole, loss_scale=SCALERS[scaler]())
    run(a, whole, sequence)
    b = make("adamw", half, loss_scale=SCALERS[scaler]())
    run(b, half, sequence[:5])
    if how == "state_dict":
        resumed = clone_params(half)
        c = make("adamw", resumed, loss_scale=SCALERS[scaler]())
        saved = pickle.loads(pickle.dumps(b.state_dict()))
        assert saved["param_groups"][0]["scalars"]["scale"] == b.loss_scale
        c.load_state_dict(saved)
        assert "scalars" not in c.param_groups[0]
    else:
        c = copy.deepcopy(b) if how == "deepcopy" else pickle.loads(pickle.dumps(b))
        resumed = c.param_groups[0]["params"]
    assert c.loss_scale == b.loss_scale
    assert c.state_dict()["param_groups"] == b.state_dict()["param_groups"]
    run(c, resumed, sequence[5:], first=5)
    assert bits_equal(whole, resumed) and c.loss_scale == a.loss_scale


def test_scale_survives_a_new_binding():
    params = make_params(SHAPES)
    optimizer = stepc.torch.SGD(params, lr=0.1, loss_scale=SCALERS["torch"]())
    run(optimizer, params, [0, INF, 0])
    more = make_params([(3, 3)])
    optimizer.add_param_group({"params": more, "momentum": 0.5})
    assert optimizer.loss_scale == 128.0
    run(optimizer, params, [0], first=3)
    assert optimizer.loss_scale == 128.0
    run(optimizer, params, [0], first=4)  # the third in a row
    assert optimizer.loss_scale == 256.0


def test_scale_after_an_error():
    params = make_params(SHAPES)
    optimizer = make("adamw", params, loss_scale=SCALERS["torch"]())
    run(optimizer, params, [0, INF])
    good = params[3].grad
    params[3].grad = torch.zeros(3, 5).to_sparse()
    with pytest.raises(stepc.StepcError):
        optimizer.step()
    assert optimizer.loss_scale == 128.0 and optimizer.last_step is None
    params[3].grad = good
    run(optimizer, params, [0], first=2)
    assert optimizer.loss_scale == 128.0


def colossal_reference(overflows, scale=256.0, interval=3, hysteresis=2):
    """ColossalAI's DynamicGradScaler.update."""
    scales, growth, hysteresis_step = [], 0, 0
    for overflow in overflows:
        if overflow:
            hysteresis_step += 1
            growth = 0
            if hysteresis_step >= hysteresis:
                scale *= 0.5
        else:
            growth += 1
            if growth == interval:
                growth = hysteresis_step = 0
                scale *= 2.0
        scales.append(scale)
    return scales


def test_scales_of_colossal():
    sequence = [0, 0, 0, INF, INF, INF, 0, 0, 0, INF, 0, NAN]
    params = make_params(SHAPES)
    optimizer = make("sgd", params, loss_scale=SCALERS["colossal"]())
    scales = []
    for step, overflow in enumerate(sequence):
        run(optimizer, params, [overflow], first=step)
        scales.append(optimizer.loss_scale)
    assert scales == colossal_reference(sequence)


@each_scaler
def test_report_has_the_scale_that_was_used(scaler):
    params = make_params(SHAPES)
    optimizer = make("sgd", params, loss_scale=SCALERS[scaler](), clip=ClipByNorm(1e9))
    for step in range(5):
        used = optimizer.loss_scale
        run(optimizer, params, [0], first=step)
        norm = torch.nn.utils.get_total_norm([p.grad / used for p in params])
        assert optimizer.last_step.loss_scale == used
        assert optimizer.last_step.grad_norm == pytest.approx(float(norm), rel=1e-5)


# --- Packages -----------------------------------------------------------------


def test_package_with_and_without(tmp_path):
    from stepc import _compiler
    from stepc.definition import Definition

    definition = Definition.from_zoo("adamw").with_fragments(("clip_by_norm",))
    plain = Definition.from_zoo("adamw")
    for name, d in (("clip", definition), ("plain", plain)):
        data = _compiler.compile_package(d.text, d.path, [], d.fragments)
        (tmp_path / f"{name}.stepc").write_bytes(data)
    params, twin = make_params(SHAPES), make_params(SHAPES)
    a = stepc.torch.Optimizer(params, tmp_path / "clip.stepc", lr=1e-2, clip=ClipByNorm(0.5))
    b = stepc.torch.Optimizer(twin, ZOO / "adamw.mlir", lr=1e-2, clip=ClipByNorm(0.5))
    assert a.param_groups[0].keys() == b.param_groups[0].keys()
    train((a, b), (params, twin), 3)
    assert bits_equal(params, twin)
    as_hyper = make_params(SHAPES)
    c = stepc.torch.Optimizer(as_hyper, tmp_path / "clip.stepc", lr=1e-2, max_norm=0.5)
    train((c,), (as_hyper,), 3)
    assert bits_equal(params, as_hyper)
    words = "plain.stepc' was compiled without the fragment 'clip_by_norm', which ClipByNorm"
    with pytest.raises(errors.PackageError, match=words):
        stepc.torch.Optimizer(params, tmp_path / "plain.stepc", clip=ClipByNorm(0.5))
