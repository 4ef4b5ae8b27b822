# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step with states that are codes is one with states of float32 that are what the codes before
it stand for, whose new states are encoded. Bit for bit, for every class."""

import float8
import four_bits
import numpy as np
import pytest
import root4
import stepc.torch as st
import torch
from samples import sample
from stepped import CLASSES, OF_MATRICES, OF_TWO_DIMS

MATRICES = [(64, 128), (100, 70), (128, 700)]
TWO_DIMS = [*MATRICES, (300,), (7, 9)]  # the last have no codes
ORACLES = {torch.uint8: root4, torch.int8: float8, torch.int32: four_bits}
SHAPES = [*TWO_DIMS, (40, 8, 3, 5)]


def make_params(shapes, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]


def roundtrip(optimizer, params, twin, twins, seen):
    """Puts what the codes stand for in place of the twin's floats; they are the codes of these."""
    for param, other in zip(params, twins, strict=True):
        for name, value in twin.state[other].items():
            own = optimizer.state[param][name]
            if own.dtype not in ORACLES:
                continue
            oracle = ORACLES[own.dtype]
            codes, scales = oracle.encode(value.numpy())
            assert np.array_equal(own.numpy(), codes), f"{name} of {tuple(param.shape)}"
            of = optimizer.state[param][f"{name}.scale"].numpy().reshape(-1)
            assert np.array_equal(of, scales, equal_nan=True), f"{name} of {tuple(param.shape)}"
            value.copy_(torch.from_numpy(oracle.decode(codes, scales, value.shape)))
            seen.add((tuple(param.shape), name))


def compare(make, shapes=SHAPES, steps=4, dtype=torch.float32, grads=None, coded="q8"):
    """Returns which states are codes."""
    params, twins = make_params(shapes, dtype), make_params(shapes, dtype)
    optimizer, twin, seen = make(params, state_dtype=coded), make(twins), set()
    for step in range(steps):
        torch.manual_seed(100 + step)
        for number, (param, other) in enumerate(zip(params, twins, strict=True)):
            grad = torch.randn(param.shape).to(dtype)
            param.grad = grads(grad, step, number) if grads else grad
            other.grad = None if param.grad is None else param.grad.clone()
        for one in (optimizer, twin):
            one.step()
        for param, other in zip(params, twins, strict=True):
            assert torch.equal(param.view(torch.uint8), other.view(torch.uint8)), (
                step,
                param.shape,
            )
        roundtrip(optimizer, params, twin, twins, seen)
    return seen


@pytest.mark.parametrize(
    "name", sample([*CLASSES, *OF_TWO_DIMS, *OF_MATRICES], "codes of classes", 2)
)
def test_every_class(name):
    every = {**CLASSES, **OF_TWO_DIMS, **OF_MATRICES}
    shapes = MATRICES if name in OF_MATRICES else TWO_DIMS if name in OF_TWO_DIMS else SHAPES
    seen = {shape for shape, _ in compare(every[name], shapes)}
    assert seen >= set(MATRICES) and not seen & {(300,), (7, 9)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("master", [None, "f32"])
def test_narrow_parameters(dtype, master):
    def make(params, **more):
        return st.AdamW(params, lr=0.05, master=master, **more)

    assert len(compare(make, dtype=dtype)) == 8


def test_the_sixteen_bits_that_a_parameter_lacks():
    def make(params, **more):
        return st.AdamW(params, lr=0.05, master="remainder", **more)

    assert len(compare(make, dtype=torch.bfloat16)) == 8


def test_gradients_that_lie_otherwise_or_come_later():
    def grads(grad, step, number):
        if (step + number) % 3 == 1:
            return None
        return grad.t().contiguous().t() if grad.dim() == 2 else grad

    assert len(compare(CLASSES["AdamW"], grads=grads)) == 8
    assert compare(OF_TWO_DIMS["SOAP"], TWO_DIMS, grads=grads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compare(CLASSES["AdamW"], [(513, 1024), (70, 4000)], steps=2)
        compare(CLASSES["FusedLAMB"], [(513, 1024), (70, 4000)], steps=2)  # large: all threads
    finally:
        torch.set_num_threads(before)


def test_a_step_that_is_skipped_writes_nothing():
    def make(params, **more):
        return st.AdamW(params, lr=0.05, skip_nonfinite=True, **more)

    def grads(grad, step, number):
        if step == 2 and number == 4:
            grad[3] = float("inf")
        return grad

    compare(make, grads=grads)


def test_an_infinity_is_seen():
    """The block is NaN then, and the others are as they were."""
    (param,) = make_params([(64, 128)])
    optimizer = st.AdamW([param], state_dtype="q8")
    for value in (1.0, float("inf"), 1.0):
        param.grad = torch.ones_like(param)
        param.grad[2, 70] = value
        optimizer.step()
    nan = param.isnan()
    assert nan[2, 64:].all() and int(nan.sum()) == 64


def test_clipped_and_accumulated():
    def make(params, **more):
        return st.AdamW(params, lr=0.05, clip=st.ClipByNorm(0.5), accumulation_steps=2, **more)

    compare(make)


def test_some_states_and_some_parameters():
    seen = compare(CLASSES["AdamW"], coded={"exp_avg_sq": "q8"})
    assert {name for _, name in seen} == {"exp_avg_sq"}
    named = [("embed.weight", (64, 128)), ("head.weight", (128, 64)), ("up", (100, 70))]

    def make(params, **more):
        return st.AdamW([(n, p) for (n, _), p in zip(named, params, strict=True)], **more)

    shapes = [shape for _, shape in named]
    for coded, expected in (
        ({"*": "q8", "embed.*": torch.float32}, {(128, 64), (100, 70)}),
        ({"exp_avg": "q8", "head.*": torch.float32}, {(64, 128), (100, 70)}),
        ({"up": "q8"}, {(100, 70)}),
    ):
        assert {shape for shape, _ in compare(make, shapes, coded=coded)} == expected


def test_parameters_of_float64_have_states_of_float64():
    assert not compare(CLASSES["AdamW"], dtype=torch.float64)


def test_a_step_in_the_backward_pass():
    """Tensor by tensor, as its gradient comes."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(96, 128), torch.nn.Linear(128, 64))
    twin = torch.nn.Sequential(torch.nn.Linear(96, 128), torch.nn.Linear(128, 64))
    twin.load_state_dict(model.state_dict())
    fused = st.AdamW(model.parameters(), state_dtype="q8", fused_backward=True)
    plain = st.AdamW(twin.parameters(), state_dtype="q8")
    for _ in range(3):
        batch = torch.randn(5, 96)
        model(batch).square().sum().backward()
        fused.step()
        plain.zero_grad()
        twin(batch).square().sum().backward()
        plain.step()
    for own, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(own, other)
        for name, value in plain.state[other].items():
            assert torch.equal(fused.state[own][name], value), name


@pytest.mark.parametrize("name", sample(["AdamW", "FusedLAMB", "SOAP", "Muon"], "float8", 2))
def test_float8(name):
    every = {**CLASSES, **OF_TWO_DIMS, **OF_MATRICES}
    shapes = MATRICES if name in OF_MATRICES else TWO_DIMS if name in OF_TWO_DIMS else SHAPES
    assert compare(every[name], shapes, coded="f8_e4m3")


def test_a_format_for_each_state():
    seen = compare(CLASSES["AdamW"], coded={"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"})
    assert {name for _, name in seen} == {"exp_avg", "exp_avg_sq"}
