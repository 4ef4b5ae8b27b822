# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""float16 parameters: compiled, with float32 states, masters, and states of 16 bits. That the
bits are the interpreter's is checked in test/exact."""

import copy

import pytest
import stepc.torch
import torch
from common import bits_equal, make_params, set_grads
from stepc import errors

SHAPES = [(), (0,), (7,), (33, 129), (2, 3, 4, 5), (3, 40000)]
ZOO = {
    "AdamW": {"lr": 1e-2},
    "SGD": {"lr": 1e-2, "momentum": 0.9},
    "NAdam": {"lr": 1e-2},
    "Adagrad": {"lr": 1e-2, "initial_accumulator_value": 0.1},
    "Lion": {"lr": 1e-3},
    "Adafactor": {"lr": 1e-2},
}

pytestmark = pytest.mark.filterwarnings("error:stepc")  # torch's own step would warn


def make(name, **keywords):
    params = make_params(SHAPES, torch.float16)
    return getattr(stepc.torch, name)(params, **ZOO[name], **keywords), params


def run(pairs, steps=4, first=0):
    """The same gradients for all, those of float16, and a step of each."""
    for number in range(first, first + steps):
        set_grads(*[params for _, params in pairs], seed=number)
        for optimizer, params in pairs:
            for param in params:
                param.grad = param.grad.half().to(param.dtype)
            optimizer.step()


@pytest.mark.parametrize("name", ZOO)
def test_masters_are_the_float32_run_to_the_bit(name):
    kept, narrow = make(name, master="f32")
    wide = [torch.nn.Parameter(p.detach().float()) for p in narrow]
    whole = getattr(stepc.torch, name)(wide, **ZOO[name])
    run([(kept, narrow), (whole, wide)])
    for one, full in zip(narrow, wide, strict=True):
        assert bits_equal([one], [full.detach().half()])
        if full.numel():
            assert bits_equal([kept.state[one]["master"]], [full])
        for state, value in whole.state.get(full, {}).items():
            assert bits_equal([kept.state[one][state]], [value]), state


@pytest.mark.parametrize("name", ZOO)
def test_without_a_master_each_step_is_rounded_once(name):
    """The first step is that of float32, rounded; states stay float32."""
    plain, narrow = make(name)
    wide = [torch.nn.Parameter(p.detach().float()) for p in narrow]
    whole = getattr(stepc.torch, name)(wide, **ZOO[name])
    run([(plain, narrow), (whole, wide)], steps=1)
    for one, full in zip(narrow, wide, strict=True):
        assert bits_equal([one], [full.detach().half()])
        kept = [s for s in plain.state.get(one, {}).values() if isinstance(s, torch.Tensor)]
        assert all(s.dtype is torch.float32 for s in kept)


def test_overflow_underflow_and_nan():
    values = torch.tensor([65504.0, -65504.0, 65504.0, 2.0**-24, 1.0, torch.nan, torch.inf])
    grads = torch.tensor([-15.0, 16.0, -100.0, 2.0**-24, torch.nan, 1.0, 1.0])
    param = torch.nn.Parameter(values.half())
    param.grad = grads.half()
    stepc.torch.SGD([param], lr=1.0).step()
    expected = torch.tensor([65504.0, -torch.inf, torch.inf, 0.0, torch.nan, torch.nan, torch.inf])
    assert torch.equal(param.detach().float().nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_states_of_16_bits(dtype):
    optimizer, params = make("AdamW", state_dtype=dtype)
    run([(optimizer, params)], steps=2)
    state = optimizer.state[params[3]]
    assert state["exp_avg"].dtype is dtype and state["exp_avg_sq"].dtype is dtype
    again, copies = make("AdamW", state_dtype=dtype)
    for param, other in zip(copies, params, strict=True):
        param.data.copy_(other.data)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run([(optimizer, params), (again, copies)], first=2)
    assert bits_equal(params, copies)


def test_a_checkpoint_of_torch_goes_on():
    """Its states are float16, and are float32 from then on."""
    params = make_params(SHAPES[2:], torch.float16)
    theirs = torch.optim.AdamW(params, lr=1e-2)
    run([(theirs, params)], steps=2)
    ours = stepc.torch.AdamW(params, lr=1e-2)
    ours.load_state_dict(theirs.state_dict())
    run([(ours, params)], steps=2, first=2)
    assert ours.state[params[1]]["exp_avg"].dtype is torch.float32


def test_copies_and_scaling():
    """A float16 copy beside float32 parameters; a loss scale that sees an overflow of float16."""
    params = make_params(SHAPES)
    optimizer = stepc.torch.AdamW(params, param_copy=torch.float16)
    set_grads(params)
    optimizer.step()
    assert bits_equal(optimizer.parameter_copies(), [p.detach().half() for p in params])
    narrow = torch.nn.Parameter(torch.ones(40).half())
    scaled = stepc.torch.AdamW([narrow], loss_scale=stepc.torch.DynamicLossScale())
    narrow.grad = torch.full((40,), 1e38).half()
    scaled.step()
    assert bits_equal([narrow.detach()], [torch.ones(40).half()])
    assert "exp_avg" not in scaled.state[narrow]


def test_remainders_are_refused():
    optimizer, params = make("AdamW", master="remainder")
    before = [p.detach().clone() for p in params]
    set_grads(params)
    with pytest.raises(errors.StepcError, match="'remainder' is for bfloat16 parameters, and"):
        optimizer.step()
    assert bits_equal([p.detach() for p in params], before)
