# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stochastic rounding to bfloat16: what the random bits follow from, and their statistics.
That they are those of the paper is checked in test/exact."""

import copy
import math
import pickle

import pytest
import stepc.torch as st
import torch
from common import bits_equal, clone_params, make_params, set_grads, states
from stepc import _runtime, _structures, errors

SHAPES = [(), (0,), (7,), (33, 129), (2, 3, 4, 5), (70, 5000)]
KINDS = {
    "adamw": lambda params, **k: st.AdamW(params, lr=1e-2, rounding="stochastic", **k),
    "sgd": lambda params, **k: st.SGD(params, lr=1e-2, rounding="stochastic", **k),
    "lion": lambda params, **k: st.Lion(params, lr=1e-3, rounding="stochastic", **k),
    "came": lambda params, **k: st.came.CAME(params, lr=1e-2, rounding="stochastic", **k),
}
BF16_STATES = {"state_dtype": torch.bfloat16}


def params_of(shapes=SHAPES):
    return make_params(shapes, torch.bfloat16)


def run(optimizer, params, steps=3, first=0):
    for step in range(first, first + steps):
        set_grads(params, seed=step)
        optimizer.step()


# --- What the bits follow from --------------------------------------------------


def transposed(param):
    return param.t().contiguous().t() if param.dim() == 2 else param


def spaced(param):
    wide = torch.empty((*param.shape, 3), dtype=param.dtype)
    wide[..., 1] = param
    return wide[..., 1]


def channels_last(param):
    return param.to(memory_format=torch.channels_last) if param.dim() == 4 else param


@pytest.mark.parametrize("place", [transposed, spaced, channels_last])
@pytest.mark.parametrize("kind", ["adamw", "came"])
def test_strides_make_no_difference(kind, place):
    ours = params_of()
    moved = [torch.nn.Parameter(place(p.detach().clone())) for p in ours]
    first, second = (KINDS[kind](p, seed=5, **BF16_STATES) for p in (ours, moved))
    run(first, ours)
    run(second, moved)
    assert bits_equal(ours, moved)
    assert bits_equal(states(first, "exp_avg"), states(second, "exp_avg"))


@pytest.mark.parametrize("kind", ["adamw", "came"])
def test_threads_and_chunks_make_no_difference(kind, monkeypatch):
    whole = params_of()
    cut = clone_params(whole)
    run(KINDS[kind](whole, **BF16_STATES), whole)
    threads = torch.get_num_threads()

    class Config(_structures.PlanConfig):
        def __init__(self, size, _, huge_pages, chunk):
            super().__init__(size, 2, huge_pages, 37)

    monkeypatch.setattr(_runtime, "PlanConfig", Config)
    torch.set_num_threads(1)
    try:
        run(KINDS[kind](cut, **BF16_STATES), cut)
    finally:
        torch.set_num_threads(threads)
    assert bits_equal(whole, cut)


def test_each_tensor_step_and_seed_has_other_bits():
    """Tensors of the same values; where half of all are rounded up, half differ."""

    def rounded(seed=0, steps=1):
        params = [torch.nn.Parameter(torch.ones(4096).bfloat16()) for _ in range(2)]
        optimizer = KINDS["sgd"](params, seed=seed)
        optimizer.param_groups[0]["lr"] = 2.0**-9  # half of the unit below 1
        for _ in range(steps):
            for param in params:
                param.data.fill_(1.0)
                param.grad = torch.ones_like(param)
            optimizer.step()
        return [param.detach().float() for param in params]

    (a, b), (c, _), (d, _) = rounded(), rounded(seed=1), rounded(steps=2)
    for other in (b, c, d):
        assert 0.45 < (a != other).float().mean() < 0.55
    assert bits_equal(rounded(), rounded()) and set(a.tolist()) == {1.0, 1 - 2.0**-8}


def test_other_parameters_make_no_difference():
    """A gradient that comes later, and parameters that are added behind."""
    ours = params_of([(100,), (50,), (30,)])
    theirs = clone_params(ours)
    first, second = KINDS["adamw"](ours), KINDS["adamw"](theirs[:2])
    for step in range(4):
        set_grads(ours, theirs, seed=step)
        if step < 2:
            ours[0].grad = None
            ours[2].grad = None
            theirs[0].grad = None
        if step == 2:
            second.add_param_group({"params": theirs[2:]})
        first.step()
        second.step()
    assert bits_equal(ours, theirs)


# --- Statistics -----------------------------------------------------------------


def test_mean_and_variance_of_64_million_draws():
    """Of 1 - x, in units of the distance of its neighbours, 1 - 2^-8 and 1."""
    elements, steps, down = 2**22, 16, 0.3
    param = torch.nn.Parameter(torch.empty(elements, dtype=torch.bfloat16))
    param.grad = torch.ones_like(param)
    optimizer = st.SGD([param], lr=down * 2.0**-8, rounding="stochastic", seed=3)
    # What is rounded is an f32.
    share = float(
        (1 - torch.tensor(1 - optimizer.param_groups[0]["lr"], dtype=torch.float32)) * 2**8
    )
    rows, before, alike = [], None, 0.0
    for _ in range(steps):
        param.data.fill_(1.0)
        optimizer.step()
        error = (1 - param.detach().float()) * 2**8
        assert torch.equal(error, error.square())  # 0 or 1
        rows.append(error.view(-1, 1024).sum(1))
        neighbours = float((error[1:] * error[:-1]).mean())
        alike += float((error * before).mean()) if before is not None else 0.0
        before = error
        assert abs(neighbours - share**2) < 6 * share / math.sqrt(elements)
    draws, variance = elements * steps, share * (1 - share)
    assert draws >= 64_000_000
    sums = torch.cat(rows).double()
    assert abs(float(sums.sum()) / draws - share) < 5 * math.sqrt(variance / draws)
    # Sums of 1024 draws vary as those of independent ones do.
    spread = float(sums.var() / (1024 * variance))
    assert abs(spread - 1) < 5 * math.sqrt(2 / len(sums))
    assert abs(alike / (steps - 1) - share**2) < 6 * share / math.sqrt(draws)


def test_the_mean_is_the_value_wherever_it_lies():
    """All lower halves: the random numbers are uniform to the last bit."""
    lower = torch.arange(2**16).repeat(16)
    values = (lower + 0x3F800000).to(torch.int32).view(torch.float32)
    param = torch.nn.Parameter(torch.zeros(values.numel(), dtype=torch.bfloat16))
    param.grad_dtype = None
    param.grad = -values
    optimizer = st.SGD([param], lr=1.0, rounding="stochastic")
    optimizer.step()
    up = (param.detach() > 1).view(16, -1).double().mean(0)
    share = torch.arange(2**16).double() / 2**16
    assert up[0] == 0.0
    # Each bit of the lower half by itself.
    for bit in range(16):
        chosen = (torch.arange(2**16) >> bit) % 2 == 1
        excess = float((up - share)[chosen].mean())
        assert abs(excess) < 5 * 0.41 / math.sqrt(16 * 2**15)


def test_what_is_a_bfloat16_never_moves():
    """All of them, through a step that changes nothing."""
    every = torch.arange(2**16).to(torch.int16).view(torch.bfloat16)
    for kind in ("sgd", "adamw"):
        param = torch.nn.Parameter(every.clone())
        param.grad = torch.zeros_like(param)
        optimizer = KINDS[kind]([param], seed=1)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        for _ in range(3):
            optimizer.step()
        number = ~every.isnan()
        assert param.detach()[number].view(torch.int16).equal(every[number].view(torch.int16))
        assert param.detach()[~number].isnan().all()


def test_small_updates_add_up():
    """Where rounding to nearest stands still."""
    for keywords, moved in (({}, False), ({"rounding": "stochastic"}, True)):
        param = torch.nn.Parameter(torch.ones(4096, dtype=torch.bfloat16))
        optimizer = st.SGD([param], lr=2.0**-13, **keywords)
        for _ in range(256):
            param.grad = torch.ones_like(param)
            optimizer.step()
        mean = float(param.detach().float().mean())
        assert mean == pytest.approx(1 - 2.0**-5, abs=1e-3) if moved else mean == 1.0


# --- Saving ---------------------------------------------------------------------


def copied(optimizer, params, how):
    if how == "state_dict":
        again = clone_params(params)
        other = type(optimizer)(again, lr=1e-2, rounding="stochastic", seed=99)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        return other, again
    pair = (optimizer, params)
    return copy.deepcopy(pair) if how == "deepcopy" else pickle.loads(pickle.dumps(pair))


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_run_goes_on_with_its_bits(kind, how):
    """Also where torch's class counts no steps."""
    params = params_of([(300,), (33, 20)])
    optimizer = KINDS[kind](params, seed=2**52 + 1)
    run(optimizer, params, 3)
    other, again = copied(optimizer, params, how)
    assert other.seed == 2**52 + 1
    for one, own in ((optimizer, params), (other, again)):
        run(one, own, 3, first=3)
    assert bits_equal(params, again)


def test_a_checkpoint_without_a_seed():
    params = params_of([(300,)])
    plain = st.AdamW(clone_params(params))
    run(plain, plain.param_groups[0]["params"], 1)
    optimizer = KINDS["adamw"](params, seed=4)
    optimizer.load_state_dict(plain.state_dict())
    assert optimizer.seed == 4
    run(optimizer, params, 1)
    other = st.AdamW(params)
    other.load_state_dict(optimizer.state_dict())  # which says a seed, that this has no use for
    run(other, params, 1)


# --- With others, and what is refused ---------------------------------------------


def test_float32_parameters_beside_are_not_rounded():
    params = [*params_of([(300,)]), *make_params([(300,)])]
    alone = clone_params(params[1:])
    first, second = KINDS["adamw"](params), st.AdamW(alone, lr=1e-2)
    for step in range(3):
        set_grads(params[1:], alone, seed=step)
        params[0].grad = torch.ones_like(params[0])
        first.step()
        second.step()
    assert bits_equal(params[1:], alone)


def test_a_state_that_one_rule_lacks():
    """Matrices have other states than vectors: nothing of theirs is rounded so."""
    params = [torch.nn.Parameter(torch.full(shape, 1.0)) for shape in ((8, 4), (33,))]
    narrow = {"exp_avg_sq": torch.bfloat16}
    optimizer = st.hf.Adafactor(params, state_dtype=narrow, rounding="stochastic", seed=3)
    for param in params:
        param.grad = torch.linspace(0.1, 1.0, param.numel()).reshape(param.shape)
    optimizer.step()
    assert optimizer.state[params[0]]["exp_avg_sq_row"].dtype is torch.float32
    assert optimizer.state[params[1]]["exp_avg_sq"].dtype is torch.bfloat16


def test_states_beside_a_master():
    params = params_of([(300,)])
    nearest = clone_params(params)
    keywords = {"master": "remainder", **BF16_STATES}
    first, second = KINDS["adamw"](params, **keywords), st.AdamW(nearest, lr=1e-2, **keywords)
    run(first, params)
    run(second, nearest)
    assert not bits_equal(states(first, "exp_avg"), states(second, "exp_avg"))


@pytest.mark.parametrize(
    ("keywords", "dtype"), [({}, torch.float32), ({"master": "f32"}, torch.bfloat16)]
)
def test_refused_where_nothing_is_rounded(keywords, dtype):
    params = make_params([(3,)], dtype)
    before = clone_params(params)
    optimizer = KINDS["adamw"](params, **keywords)
    set_grads(params)
    with pytest.raises(errors.TensorError, match=f"stored as bfloat16, and the .* are {dtype}"):
        optimizer.step()
    assert bits_equal(params, before) and not optimizer.state


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"rounding": "up"}, "rounding is 'up', expected 'stochastic' or None"),
        (
            {"rounding": "stochastic", "seed": -1},
            r"seed is -1, expected an integer from 0 to 2\*\*53",
        ),
        ({"seed": 2**53 + 1}, "seed is 9007199254740993, expected"),
        ({"seed": 0.5}, "seed is 0.5, expected"),
    ],
)
def test_values_that_are_refused(keywords, words):
    with pytest.raises(ValueError, match=words):
        st.AdamW(params_of([(3,)]), **keywords)


def test_torchs_own_step_rounds_to_nearest_and_is_refused():
    optimizer = KINDS["adamw"](params_of([(3,)]), capturable=False, differentiable=True)
    set_grads(optimizer.param_groups[0]["params"])
    with pytest.raises(errors.StepcError, match="rounding='stochastic'"):
        optimizer.step()
