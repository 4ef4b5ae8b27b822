# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bfloat16 parameters: with the float32 behind them, and with narrow states."""

import copy
import io
import pickle

import pytest
import stepc
import stepc.torch
import torch
from common import SHAPES, clone_params, make_params, set_grads, states
from stepc import _compiler
from stepc.definition import Definition

FORMS = {"f32": "master", "remainder": "remainder"}
KINDS = {
    "adamw": (stepc.torch.AdamW, {"lr": 1e-2}),
    "sgd": (stepc.torch.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "nadam": (stepc.torch.NAdam, {"lr": 1e-2}),
    "clipped": (stepc.torch.Lion, {"lr": 1e-2, "clip": stepc.torch.ClipByNorm(1.0)}),
}


def bits_equal(a, b):
    left, right = (t.detach().reshape(-1).view(torch.uint8) for t in (a, b))
    return a.dtype is b.dtype and torch.equal(left, right)


def upper_half(values):
    """The nearest bfloat16, ties away from zero, as float32."""
    bits = values.detach().float().contiguous().view(torch.int32)
    return ((bits + 0x8000) & -0x10000).view(torch.float32).reshape(values.shape)


def step_all(pairs, number):
    set_grads(*[params for _, params in pairs], seed=number)
    # The same gradients for all: those of bfloat16.
    for row in zip(*[params for _, params in pairs], strict=True):
        for param in row:
            param.grad = param.grad.bfloat16().to(param.dtype)
    for optimizer, _ in pairs:
        optimizer.step()


def make(kind, shapes=SHAPES, **keywords):
    maker, settings = KINDS[kind]
    params = make_params(shapes, torch.bfloat16)
    return maker(params, **settings, **keywords), params


@pytest.mark.parametrize("kind", ["sgd", "nadam", "clipped"])
def test_both_forms_are_the_float32_run_to_the_bit(kind):
    shapes = [*SHAPES, (3, 40000)]
    master, first = make(kind, shapes, master="f32")
    remainder, second = make(kind, shapes, master="remainder")
    maker, settings = KINDS[kind]
    wide = [torch.nn.Parameter(p.detach().float()) for p in first]
    whole = maker(wide, **settings)
    pairs = [(master, first), (remainder, second), (whole, wide)]
    for number in range(4):
        step_all(pairs, number)
    for one, other, full in zip(first, second, wide, strict=True):
        if not full.numel():
            continue
        assert bits_equal(one, other)
        assert bits_equal(master.state[one]["master"], full)
        assert bits_equal(one.float(), upper_half(full))
        assert remainder.state[other]["remainder"].dtype is torch.int16
        for name, value in whole.state[full].items():
            assert bits_equal(master.state[one][name], value), name
            assert bits_equal(remainder.state[other][name], value), name
    # Without either the parameter cannot hold what a step adds.
    plain, third = make(kind, shapes)
    for number in range(4):
        step_all([(plain, third)], number)
    assert any(not bits_equal(p, q) for p, q in zip(first, third, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_float32_parameters_beside_have_no_master(form):
    narrow, wide = make_params([(5, 3)], torch.bfloat16) + make_params([(5, 3)])
    optimizer = stepc.torch.AdamW([narrow, wide], master=form)
    alone = clone_params([wide])
    other = stepc.torch.AdamW(alone)
    for number in range(2):
        set_grads([wide], alone, seed=number)
        narrow.grad = torch.ones_like(narrow)
        optimizer.step()
        other.step()
    assert FORMS[form] in optimizer.state[narrow]
    assert optimizer.state[wide].keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert bits_equal(wide, alone[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_step_that_does_nothing_keeps_every_bit(form):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    param = torch.nn.Parameter(bits.view(torch.bfloat16).clone())
    optimizer = stepc.torch.SGD([param], lr=0.0, master=form)
    for _ in range(2):
        param.grad = torch.zeros_like(param)
        optimizer.step()
    number = ~param.isnan()
    assert torch.equal(param.detach().view(torch.int16)[number], bits[number])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keywords", [{}, {"static_grads": True}])
def test_a_parameter_written_between_steps_is_seen(form, keywords):
    (optimizer, params), (expected, copies) = make("adamw", master=form, **keywords), make("adamw")
    wide = [torch.nn.Parameter(p.detach().float()) for p in copies]
    expected = KINDS["adamw"][0](wide, **KINDS["adamw"][1])
    model = torch.nn.ParameterList(params)
    pairs = [(optimizer, params), (expected, wide)]
    set_grads(params, wide, seed=9)
    step_all(pairs, 0)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for value in state.values():
        value.mul_(2)
    model.load_state_dict(state)
    with torch.no_grad():
        for param, full in zip(params, wide, strict=True):
            full.copy_(param)
    if keywords:
        for param, full in zip(params, wide, strict=True):
            param.grad.fill_(0.5)
            full.grad.fill_(0.5)
        optimizer.step()
        expected.step()
    else:
        step_all(pairs, 1)
    for param, full in zip(params, wide, strict=True):
        if full.numel():
            assert bits_equal(param.float(), upper_half(full))


def test_what_was_not_written_keeps_its_master():
    optimizer, [param] = make("sgd", [(1000,)], master="f32")
    step_all([(optimizer, [param])], 0)
    before = optimizer.state[param]["master"].clone()
    with torch.no_grad():
        param[:10] += 1.0
        param.data[10:20] += 1.0  # moves no version counter
    param.grad = torch.zeros_like(param)
    optimizer.param_groups[0].update(lr=0.0, weight_decay=0.0)
    optimizer.step()
    after = optimizer.state[param]["master"]
    assert bits_equal(after[20:], before[20:])
    assert bits_equal(after[:20], param[:20].float())


def test_a_remainder_outlives_a_new_binding():
    optimizer, [param] = make("sgd", [(1000,)], master="remainder")
    step_all([(optimizer, [param])], 0)
    before = optimizer.state[param]["remainder"].clone()
    optimizer.param_groups[0].update(lr=0.0, weight_decay=0.0, nesterov=True)
    param.grad = torch.zeros_like(param)
    optimizer.step()
    assert before.any()
    assert bits_equal(optimizer.state[param]["remainder"], before)
    optimizer.param_groups[0].update(nesterov=False)
    with torch.no_grad():
        param.add_(1.0)
    optimizer.step()
    assert not optimizer.state[param]["remainder"].any()


# --- Saving -------------------------------------------------------------------


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model_first", [True, False])
def test_a_run_goes_on_from_a_checkpoint(form, model_first):
    optimizer, params = make("adamw", master=form)
    for number in range(2):
        step_all([(optimizer, params)], number)
    saved = through_a_file([optimizer.state_dict(), [p.detach() for p in params]])
    other, others = make("adamw", master=form)
    step_all([(other, others)], 7)

    def load_model():
        with torch.no_grad():
            for param, value in zip(others, saved[1], strict=True):
                param.copy_(value)

    if model_first:
        load_model()
    other.load_state_dict(saved[0])
    if not model_first:
        load_model()
    for number in range(2, 4):
        step_all([(optimizer, params), (other, others)], number)
    for one, two in zip(params, others, strict=True):
        assert bits_equal(one, two)
    for name in (FORMS[form], "exp_avg"):
        for one, two in zip(states(optimizer, name), states(other, name), strict=True):
            assert one.dtype is two.dtype
            assert bits_equal(one, two)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["deepcopy", "pickle"]
)
def test_copies(form, copied):
    optimizer, params = make("adamw", master=form, state_dtype={"exp_avg": torch.bfloat16})
    step_all([(optimizer, params)], 0)
    other = copied(optimizer)
    others = other.param_groups[0]["params"]
    for number in range(1, 3):
        step_all([(optimizer, params), (other, others)], number)
    for one, two in zip(params, others, strict=True):
        assert bits_equal(one, two)
        assert optimizer.state[one].keys() == other.state[two].keys()
        for name, value in optimizer.state[one].items():
            assert other.state[two][name].dtype is value.dtype
            assert bits_equal(other.state[two][name], value)


@pytest.mark.parametrize("form", FORMS)
def test_checkpoints_without_masters_and_of_the_other_form(form):
    optimizer, params = make("adamw", master=form)
    plain, others = make("adamw")
    for pair in ((optimizer, params), (plain, others)):
        step_all([pair], 0)
    plain.load_state_dict(optimizer.state_dict())
    assert plain.state[others[1]].keys() == {"step", "exp_avg", "exp_avg_sq"}
    optimizer.load_state_dict(plain.state_dict())
    step_all([(optimizer, params)], 1)
    assert FORMS[form] in optimizer.state[params[1]]
    other = {"f32": "remainder", "remainder": "f32"}[form]
    third, _ = make("adamw", master=other)
    with pytest.raises(ValueError, match=f"has '{FORMS[form]}' of its parameters, this"):
        third.load_state_dict(optimizer.state_dict())


# --- Narrow states ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_of_bfloat16(dtype):
    params = make_params([(33, 5), (20000,)], dtype)
    others = clone_params(params)
    some = stepc.torch.AdamW(params, state_dtype={"exp_avg": torch.bfloat16})
    every = stepc.torch.AdamW(others, state_dtype=torch.bfloat16)
    for number in range(2):
        set_grads(params, others, seed=number)
        some.step()
        every.step()
    for one, two in zip(params, others, strict=True):
        assert some.state[one]["exp_avg"].dtype is torch.bfloat16
        assert some.state[one]["exp_avg_sq"].dtype is torch.float32
        assert every.state[two]["exp_avg_sq"].dtype is torch.bfloat16
        # The first moment does not depend on what the second is kept in.
        assert bits_equal(some.state[one]["exp_avg"], every.state[two]["exp_avg"])
    saved = through_a_file(every.state_dict())
    every.load_state_dict(saved)
    again = clone_params(others)
    loaded = stepc.torch.AdamW(again, state_dtype=torch.bfloat16)
    loaded.load_state_dict(saved)
    set_grads(others, again, seed=5)
    every.step()
    loaded.step()
    for one, two in zip(others, again, strict=True):
        assert bits_equal(one, two)
        assert loaded.state[two]["exp_avg_sq"].dtype is torch.bfloat16


def test_states_of_one_element_stay_as_they_are():
    optimizer, params = make("nadam", [(4,)], state_dtype=torch.bfloat16)
    step_all([(optimizer, params)], 0)
    state = optimizer.state[params[0]]
    assert state["mu_product"].dtype is torch.float32
    assert state["exp_avg"].dtype is torch.bfloat16


def test_float64_parameters_keep_float64_states():
    [param] = make_params([(4,)], torch.float64)
    optimizer = stepc.torch.AdamW([param], master="f32", state_dtype=torch.bfloat16)
    set_grads([param])
    optimizer.step()
    assert {s.dtype for s in optimizer.state[param].values()} == {torch.float64, torch.float32}
    assert "master" not in optimizer.state[param]


# --- Refusals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"master": "f16"}, "master is 'f16', expected 'f32', 'remainder' or None"),
        ({"state_dtype": torch.int16}, "state_dtype is torch.int16, expected torch.float32"),
        ({"state_dtype": {"exp_avg": 8}}, "state_dtype of 'exp_avg' is 8, expected"),
    ],
)
def test_values_that_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        make("adamw", **keywords)


def test_a_state_that_there_is_not_is_refused_at_the_first_step():
    optimizer, params = make("adamw", state_dtype={"momentum": torch.bfloat16})
    set_grads(params)
    with pytest.raises(TypeError, match="optimizer 'adamw' has no state 'momentum'; states: exp_"):
        optimizer.step()


def test_torchs_own_step_keeps_no_master():
    optimizer, params = make("adamw", master="f32", differentiable=True)
    set_grads(params)
    with pytest.raises(stepc.errors.StepcError, match="was asked for: master='f32'"):
        optimizer.step()


def test_a_package_without_masters_is_refused(tmp_path):
    file = tmp_path / "sgd.stepc"
    definition = Definition.from_zoo("sgd")
    specs = ["--variant=param=bf16,grad=bf16"]
    file.write_bytes(_compiler.compile_package(definition.text, definition.path, specs))
    params = make_params([(3,)], torch.bfloat16)
    optimizer = stepc.torch.Optimizer(params, file, master="remainder")
    set_grads(params)
    with pytest.raises(stepc.errors.TensorError, match="its f32 kept as 'remainder'"):
        optimizer.step()
