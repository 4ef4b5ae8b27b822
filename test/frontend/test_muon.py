# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Muon beside its formulas in plain torch, and beside torch's own, which orthogonalizes in
bfloat16."""

import copy
import math
import warnings

import pytest
import stepc
import stepc.torch
import torch
from common import (
    Written,
    bits_equal,
    clone_params,
    distance,
    make_params,
    set_grads,
    strided,
    train,
)
from stepc.torch import ClipByNorm, DynamicLossScale

pytestmark = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon is of torch 2.9 and later"
)

Muon = getattr(stepc.torch, "Muon", None)
# Wide, tall, square; one row, one column, one element; and of no element.
SHAPES = [(3, 5), (7, 4), (6, 6), (1, 9), (9, 1), (1, 1), (33, 129), (200, 101), (0, 4), (4, 0)]
COEFFICIENTS = (3.4445, -4.775, 2.0315)


def orthogonalized(u, coefficients, eps, steps=5):
    """Steps of Newton and Schulz, in u's dtype, of the side that has no more rows."""
    a, b, c = coefficients
    tall = u.shape[0] > u.shape[1]
    x = u.mT if tall else u
    x = x / max(float(x.norm()), eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class WrittenMuon(Written):
    defaults = {
        "lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True,
        "ns_coefficients": COEFFICIENTS, "eps": 1e-7, "ns_steps": 5,
        "adjust_lr_fn": None,
    }  # fmt: skip

    def step_one(self, p, group, momentum_buffer=None):
        wide = torch.promote_types(p.dtype, torch.float32)
        g, momentum, lr = p.grad.to(wide), group["momentum"], group["lr"]
        old = torch.zeros_like(g) if momentum_buffer is None else momentum_buffer
        v = momentum * old + (1 - momentum) * g
        u = (1 - momentum) * g + momentum * v if group["nesterov"] else v
        rows, columns = p.shape
        rate = lr
        if group["adjust_lr_fn"] == "match_rms_adamw":
            rate = lr * 0.2 * math.sqrt(max(rows, columns))
        elif columns:
            rate = lr * math.sqrt(max(1.0, rows / columns))
        o = orthogonalized(u, group["ns_coefficients"], group["eps"], group["ns_steps"])
        p.copy_(p.to(wide) * (1 - lr * group["weight_decay"]) - rate * o)
        return {"momentum_buffer": v}


def buffers(optimizer, params):
    return [optimizer.state[p]["momentum_buffer"] for p in params]


def assert_near(optimizer, ours, written, theirs):
    """After some steps: 3 to 10 units of the last place are seen, and as many in float64, where
    a formula that is wrong in anything is off by millions."""
    assert distance(ours, theirs) < 64
    assert distance(buffers(optimizer, ours), buffers(written, theirs)) < 16


CASES = {
    "as they are": {},
    "no nesterov": {"nesterov": False},
    "original": {"adjust_lr_fn": "original"},
    "match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw"},
    "match_rms_adamw, no nesterov": {"adjust_lr_fn": "match_rms_adamw", "nesterov": False},
    "no decay": {"weight_decay": 0.0},
    "much decay": {"weight_decay": 1.5},
    "no momentum": {"momentum": 0.0},
    "other momentum": {"momentum": 0.6},
    "coefficients": {"ns_coefficients": (3.0, -3.2, 1.2)},
    "coefficients in a list": {"ns_coefficients": [2.0, -1.5, 0.5]},
    "eps": {"eps": 3.0},  # larger than some of the norms
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_as_the_formulas(case, dtype):
    ours, theirs = make_params(SHAPES, dtype), make_params(SHAPES, dtype)
    optimizer, written = (
        Muon(ours, lr=0.1, **CASES[case]),
        WrittenMuon(theirs, lr=0.1, **CASES[case]),
    )
    for number in range(6):
        set_grads(ours, theirs, seed=number)
        if number == 3:
            ours[1].grad = theirs[1].grad = None
        optimizer.step()
        written.step()
    assert_near(optimizer, ours, written, theirs)


def given(params, number):
    set_grads(params, seed=number)
    return [p.grad for p in params]


def test_groups():
    def groups(params):
        return [
            {"params": params[:3], "lr": 0.3},
            {"params": params[3:6], "momentum": 0.5, "nesterov": False, "weight_decay": 0.0},
            {"params": params[6:], "adjust_lr_fn": "match_rms_adamw", "eps": 2.0},
        ]

    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    optimizer, written = Muon(groups(ours), lr=0.1), WrittenMuon(groups(theirs), lr=0.1)
    for number in range(6):
        set_grads(ours, theirs, seed=number)
        for one in (optimizer, written):
            one.param_groups[1]["lr"] = 0.1 * (number + 1)  # of a schedule
            one.step()
    assert_near(optimizer, ours, written, theirs)


def test_lr_in_a_tensor():
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    optimizer, written = Muon(ours, lr=torch.tensor(0.25)), WrittenMuon(theirs, lr=0.25)
    train((optimizer, written), (ours, theirs), 3)
    assert_near(optimizer, ours, written, theirs)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust", [None, "original", "match_rms_adamw"])
def test_near_torchs(adjust, nesterov):
    """torch's X is of bfloat16 in each of five steps: their roundings, of 1/256 each, are
    enlarged by the coefficients. Of a parameter's move up to 6 percent differ, on average 1.5;
    another momentum, coefficient, rate, decay or number of steps is off by 10 on average, and
    more.
    """
    kwargs = {"lr": 0.1, "adjust_lr_fn": adjust, "nesterov": nesterov}
    shapes = [shape for shape in SHAPES if 0 not in shape]
    ours = make_params(shapes)
    theirs = clone_params(ours)
    a, b, apart = Muon(ours, **kwargs), torch.optim.Muon(theirs, **kwargs), []
    for number in range(10):
        with torch.no_grad():
            for p, q in zip(ours, theirs, strict=True):
                q.copy_(p)
        before = [p.detach().clone() for p in ours]
        set_grads(ours, theirs, seed=number)
        a.step()
        b.step()
        apart += [
            float((p - q).detach().norm() / (q - start).detach().norm())
            for p, q, start in zip(ours, theirs, before, strict=True)
        ]
    assert max(apart) < 0.1 and sum(apart) / len(apart) < 0.03
    assert distance(buffers(a, ours), [b.state[q]["momentum_buffer"] for q in theirs]) < 16


def test_singular_values_are_near_one():
    """Of a matrix that is all but singular, too, but for what is 0."""
    for shape in ((20, 50), (50, 20), (30, 30)):
        (param,) = make_params([shape])
        param.data.zero_()
        left = torch.linalg.qr(torch.randn(shape[0], shape[0], generator=seeded(1)))[0]
        right = torch.linalg.qr(torch.randn(shape[1], shape[1], generator=seeded(2)))[0]
        least = min(shape)
        values = torch.logspace(0, -1.5, least)
        values[-2:] = 0.0
        param.grad = left[:, :least] * values @ right[:, :least].T
        Muon([param], lr=1.0, adjust_lr_fn="match_rms_adamw").step()
        found = torch.linalg.svdvals(param.detach()) / (0.2 * math.sqrt(max(shape)))
        assert found.max() < 1.3 and found[: least - 2].min() > 0.6 and found[-2:].max() < 1e-2


def seeded(number):
    return torch.Generator().manual_seed(number)


def test_states():
    for dtype, of_state in [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ]:
        params = make_params(SHAPES, dtype)
        optimizer = Muon(params)
        assert not optimizer.state
        train((optimizer,), (params,), 1)
        for param in params:
            (name,) = optimizer.state[param]  # and no step, as torch has none
            state = optimizer.state[param][name]
            assert name == "momentum_buffer" and state.shape == param.shape
            assert state.dtype is of_state and state.stride() == param.stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_parameters_of_sixteen_bits(dtype):
    """Their gradients and momentum are worked on in float32, and rounded once."""
    ours, theirs = make_params(SHAPES, dtype), make_params(SHAPES, dtype)
    optimizer, written = Muon(ours, lr=0.1), WrittenMuon(theirs, lr=0.1)
    train((optimizer, written), (ours, theirs), 6)
    assert distance(ours, theirs) <= 1
    same = sum(int((p == q).sum()) for p, q in zip(ours, theirs, strict=True))
    assert same > 0.999 * sum(p.numel() for p in ours)
    assert distance(buffers(optimizer, ours), buffers(written, theirs)) < 16


def test_state_dict():
    params = make_params(SHAPES)
    one = Muon([{"params": params[:4], "lr": 0.3}, {"params": params[4:]}], lr=0.1)
    train((one,), (params,), 3)
    saved = copy.deepcopy(one.state_dict())
    mirror = clone_params(params)
    other = Muon([{"params": mirror[:4]}, {"params": mirror[4:]}], momentum=0.1)
    other.load_state_dict(saved)
    assert [g["lr"] for g in other.param_groups] == [0.3, 0.1]
    train((one, other), (params, mirror), 3, first=3)
    assert bits_equal(params, mirror) and bits_equal(buffers(one, params), buffers(other, mirror))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_checkpoints_of_torchs(dtype):
    """Of the same form, both ways."""
    shapes = [shape for shape in SHAPES if 0 not in shape]
    theirs = make_params(shapes, dtype)
    torchs = torch.optim.Muon(theirs, lr=0.2, nesterov=False)
    train((torchs,), (theirs,), 3)
    saved = copy.deepcopy(torchs.state_dict())
    ours, again = clone_params(theirs), clone_params(theirs)
    optimizer, written = Muon(ours), WrittenMuon(again, lr=0.2, nesterov=False)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.2 and not optimizer.param_groups[0]["nesterov"]
    wide = torch.promote_types(dtype, torch.float32)
    for param, twin, other in zip(ours, again, theirs, strict=True):
        buffer = torchs.state[other]["momentum_buffer"]
        assert optimizer.state[param]["momentum_buffer"].equal(buffer.to(wide))
        written.state[twin] = {"momentum_buffer": buffer.to(wide)}
    train((optimizer, written), (ours, again), 2, first=3)
    assert distance(ours, again) <= (64 if dtype is torch.float32 else 1)
    back = optimizer.state_dict()
    assert back["param_groups"][0].keys() == saved["param_groups"][0].keys()
    assert {n: set(s) for n, s in back["state"].items()} == {
        n: set(s) for n, s in saved["state"].items()
    }
    torchs.load_state_dict(back)
    train((torchs,), (theirs,), 1)


def test_a_gradient_of_zeros():
    params = make_params(SHAPES)
    optimizer = Muon(params, lr=0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in params]
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    for param, old, state in zip(params, before, buffers(optimizer, params), strict=True):
        torch.testing.assert_close(param.detach(), old * 0.95)
        assert not state.any()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_no_number(value):
    """Its whole matrix is NaN, as by the formulas and torch; of the momentum that element. The
    other parameters do not notice."""
    ours, theirs, torchs = (make_params(SHAPES[:8]) for _ in range(3))
    optimizer, written = Muon(ours, lr=0.1), WrittenMuon(theirs, lr=0.1)
    original = torch.optim.Muon(torchs, lr=0.1)
    for number in range(3):
        set_grads(ours, theirs, torchs, seed=number)
        if number == 1:
            for params in (ours, theirs, torchs):
                params[7].grad[3, 4] = value
        for one in (optimizer, written, original):
            one.step()
    assert ours[7].isnan().all() and theirs[7].isnan().all() and torchs[7].isnan().all()
    state = optimizer.state[ours[7]]["momentum_buffer"]
    assert (~state.isfinite()).sum() == 1 and not state[3, 4].isfinite()
    assert distance(ours[:7], theirs[:7]) < 64


@pytest.mark.parametrize("of_grad", ["contiguous", "transposed", "sliced"])
@pytest.mark.parametrize("of_param", ["contiguous", "transposed", "sliced"])
def test_memory_in_other_orders(of_param, of_grad):
    plain = make_params(SHAPES[:8])
    params = [torch.nn.Parameter(strided(p.detach(), of_param)) for p in plain]
    a, b = Muon(plain, lr=0.1), Muon(params, lr=0.1)
    for number in range(3):
        set_grads(plain, seed=number)
        for p, q in zip(plain, params, strict=True):
            q.grad = strided(p.grad, of_grad)
        a.step()
        b.step()
    assert bits_equal(plain, params) and bits_equal(buffers(a, plain), buffers(b, params))


@pytest.mark.parametrize(
    ("shapes", "kwargs", "words"),
    [
        ([(3, 4), (5,)], {}, r"only supports 2D parameters .*torch.Size\(\[5\]\)"),
        ([(2, 3, 4)], {}, "only supports 2D parameters"),
        ([()], {}, "only supports 2D parameters"),
        ([(3, 4)], {"lr": -1.0}, "Learning rate should be >= 0 but is: -1.0"),
        ([(3, 4)], {"lr": torch.ones(2)}, "Tensor lr must be 1-element"),
        ([(3, 4)], {"momentum": -1.0}, "momentum should be >= 0"),
        ([(3, 4)], {"weight_decay": -1.0}, "weight decay should be >= 0"),
        ([(3, 4)], {"adjust_lr_fn": "other"}, "function other is not supported"),
    ],
)
def test_refusals_are_torchs(shapes, kwargs, words):
    with pytest.raises(ValueError, match=words) as ours:
        Muon(make_params(shapes), **kwargs)
    with pytest.raises(ValueError) as theirs:
        torch.optim.Muon(make_params(shapes), **kwargs)
    assert str(ours.value) == str(theirs.value)
    assert issubclass(Muon, torch.optim.Muon)


def test_a_vector_that_comes_later():
    """torch looks at the parameters of the first groups, and refuses others in the step."""
    matrix, vector = make_params([(3, 4), (5,)])
    optimizer = Muon([matrix])
    optimizer.add_param_group({"params": [vector]})
    set_grads([matrix, vector])
    before = matrix.detach().clone()
    with pytest.raises(stepc.StepcError, match=r"parameter 0 of group 1 of shape \(5,\)"):
        optimizer.step()
    assert matrix.equal(before)


@pytest.mark.parametrize("coefficients", [(1.0, 2.0), (1.0, 2.0, 3.0, 4.0)])
def test_coefficients_are_three(coefficients):
    params = make_params([(3, 4)])
    optimizer = Muon(params, ns_coefficients=coefficients)
    with pytest.raises(stepc.StepcError, match="ns_coefficients.* expected three"):
        train((optimizer,), (params,), 1)


@pytest.mark.parametrize("steps", [0, 1, 3, 8])
def test_numbers_of_steps(steps):
    """A compiled step for each; set later, it is another's, with the same momentum."""
    ours, theirs = make_params(SHAPES[:8]), make_params(SHAPES[:8])
    a, written = Muon(ours, lr=0.1, ns_steps=steps), WrittenMuon(theirs, lr=0.1, ns_steps=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none that torch's own step runs
        train((a, written), (ours, theirs), 3)
    assert_near(a, ours, written, theirs)
    a.param_groups[0]["ns_steps"] = written.param_groups[0]["ns_steps"] = 2
    train((a, written), (ours, theirs), 1, first=3)
    assert_near(a, ours, written, theirs)


def test_many_steps_are_compiled():
    """As many as torch takes; of a matrix of one row they are of one number, and do not diverge."""
    ours, theirs = make_params([(1, 1), (1, 4)]), make_params([(1, 1), (1, 4)])
    a, written = Muon(ours, lr=0.1, ns_steps=99), WrittenMuon(theirs, lr=0.1, ns_steps=99)
    train((a, written), (ours, theirs), 1)
    assert a.last_step is not None
    assert all(p.isfinite().all() for p in ours)


@pytest.mark.parametrize("steps", [100, 2.0])
def test_numbers_of_steps_that_torch_refuses(steps):
    ours, theirs = make_params([(3, 4)]), make_params([(3, 4)])
    a, b = Muon(ours, ns_steps=steps), torch.optim.Muon(theirs, ns_steps=steps)
    set_grads(ours, theirs)
    warned = pytest.warns(RuntimeWarning, match=f"ns_steps is {steps} in group 0")
    with warned, pytest.raises((ValueError, TypeError), match="steps|integer") as own:
        a.step()
    with pytest.raises((ValueError, TypeError), match="steps|integer") as torchs:
        b.step()
    assert str(own.value) == str(torchs.value)


def test_groups_of_several_numbers_of_steps_are_torchs():
    ours, theirs = make_params(SHAPES[:4]), make_params(SHAPES[:4])
    made = [
        cls([{"params": params[:2]}, {"params": params[2:], "ns_steps": 3}], lr=0.1)
        for cls, params in ((Muon, ours), (torch.optim.Muon, theirs))
    ]
    with pytest.warns(RuntimeWarning, match="runs torch's own step.*ns_steps is 3") as caught:
        train(made, (ours, theirs), 4)
    assert len(caught) == 1 and bits_equal(ours, theirs)
    made[0].param_groups[1]["ns_steps"] = 5  # and to the compiled one, with its momentum
    again = clone_params(ours)
    written = WrittenMuon(again, lr=0.1)
    written.state = {q: copy.deepcopy(made[0].state[p]) for p, q in zip(ours, again, strict=True)}
    train((made[0], written), (ours, again), 2, first=4)
    assert_near(made[0], ours, written, again)


def test_clipping_and_scaling():
    """Both inside of the step are both by hand, and the gradients stay as they are."""
    ours, theirs = make_params(SHAPES), make_params(SHAPES)
    features = {"clip": ClipByNorm(1.0), "loss_scale": DynamicLossScale(1024.0)}
    optimizer, written = Muon(ours, lr=0.1, **features), WrittenMuon(theirs, lr=0.1)
    for number in range(6):
        set_grads(ours, theirs, seed=number)
        factor = 1e-4 if number == 4 else 1.0  # below the bound
        for p, q in zip(ours, theirs, strict=True):
            p.grad.mul_(optimizer.loss_scale * factor)
            q.grad.mul_(factor)
        if number == 2:
            ours[0].grad[0, 0] = math.inf
        before = [p.grad.clone() for p in ours]
        optimizer.step()
        assert bits_equal(before, [p.grad for p in ours])
        assert optimizer.last_step.skipped == (number == 2)
        if number == 2:
            assert optimizer.loss_scale == 512.0
            continue
        norm = torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        assert optimizer.last_step.grad_norm == pytest.approx(float(norm), rel=1e-5)
        assert (optimizer.last_step.clip_coef < 1.0) == (number != 4)
        written.step()
    assert_near(optimizer, ours, written, theirs)


@pytest.mark.parametrize("kind", [stepc.torch.GradScaler, torch.amp.GradScaler])
def test_gradients_of_a_grad_scaler(kind):
    """To the bit as without, as scales are powers of two; a step with an Inf is skipped."""
    plain, scaled = make_params(SHAPES[:8]), make_params(SHAPES[:8])
    a, b = Muon(plain, lr=0.1), Muon(scaled, lr=0.1)
    scaler = kind("cpu", init_scale=512.0, growth_interval=2)
    for number in range(6):
        b.zero_grad()
        set_grads(plain, seed=number)
        fixed = [p.grad.clone() for p in plain]
        scaler.scale(sum((p * g).sum() for p, g in zip(scaled, fixed, strict=True))).backward()
        if number == 3:
            scaled[2].grad[0, 0] = math.inf
        scaler.step(b)
        scaler.update()
        if number != 3:
            a.step()
    assert scaler.get_scale() == 512.0 * 2 / 2 * 2
    assert bits_equal(plain, scaled) and bits_equal(buffers(a, plain), buffers(b, scaled))
