# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``info(optimizer)`` and ``print(optimizer)`` say of an optimizer's steps."""

import contextlib

import pytest
import stepc.torch
import torch
from common import make_params, set_grads, train

SHAPES = [(30, 50), (7,), ()]
ELEMENTS = 30 * 50 + 7 + 1


def test_before_a_step():
    optimizer = stepc.torch.AdamW(make_params(SHAPES))
    found = stepc.torch.info(optimizer)
    assert found.parameters == {"float32": 4 * ELEMENTS} and found.states == {}
    assert found.kernels == () and found.moved == found.least == 0
    assert "no step has been compiled yet" in str(found)


def test_adamw():
    """It reads four operands and writes three, each once."""
    params = make_params(SHAPES)
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 2)
    found = stepc.torch.info(optimizer)
    assert found.states == {"step": 12, "exp_avg": 4 * ELEMENTS, "exp_avg_sq": 4 * ELEMENTS}
    (kernel,) = found.kernels
    assert (kernel.rule, kernel.tensors, kernel.elements) == ("any", 3, ELEMENTS)
    assert (kernel.reads, kernel.writes) == (16 * ELEMENTS, 12 * ELEMENTS)
    assert found.moved == found.least == 28 * ELEMENTS
    assert found.rounds == found.calls == found.exchanged == 0
    said = str(optimizer)
    assert said.startswith(repr(optimizer)) and said.endswith(str(found))
    assert "rule 'any', 3 tensors" in said and "state exp_avg_sq" in said


def test_what_is_read_again():
    """As ``stepc --explain`` says of the matrix rule: 20 bytes an element, the least is 12."""
    params = make_params([(64, 48)])
    optimizer = stepc.torch.hf.Adafactor(params)
    train((optimizer,), (params,), 1)
    found = stepc.torch.info(optimizer)
    assert found.moved == 20 * 64 * 48 and found.least == 12 * 64 * 48
    assert {kernel.rule for kernel in found.kernels} == {"matrix"}
    assert found.runtime >= found.workspace > 0
    assert found.states["exp_avg_sq_row"] == 4 * 64 and found.states["exp_avg_sq_col"] == 4 * 48


def test_narrow_storage():
    params = [torch.nn.Parameter(torch.ones(100, dtype=torch.bfloat16))]
    optimizer = stepc.torch.SGD(params, lr=0.1, momentum=0.9, state_dtype=torch.bfloat16)
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    found = stepc.torch.info(optimizer)
    assert found.parameters == {"bfloat16": 200} and found.states["momentum_buffer"] == 200
    assert found.moved == 1000


def test_stochastic_rounding():
    """The places that it draws for are in no memory."""
    params = [torch.nn.Parameter(torch.ones(100, dtype=torch.bfloat16))]
    optimizer = stepc.torch.SGD(params, lr=0.1, rounding="stochastic")
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    assert stepc.torch.info(optimizer).moved == 600


def test_it_changes_nothing():
    ours, twin = make_params(SHAPES), make_params(SHAPES)
    a, b = stepc.torch.AdamW(ours), stepc.torch.AdamW(twin)
    for step in range(3):
        stepc.torch.info(a)
        str(a)
        set_grads(ours, twin, seed=step)
        a.step()
        b.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, twin, strict=True))


def test_torchs_own_step():
    params = make_params(SHAPES)
    optimizer = stepc.torch.Adam(params, capturable=False)
    optimizer.param_groups[0]["capturable"] = True
    set_grads(params)
    with pytest.warns(RuntimeWarning, match="torch's own step"), contextlib.suppress(Exception):
        optimizer.step()
    found = stepc.torch.info(optimizer)
    assert found.eager == "capturable is set in group 0" and found.kernels == ()
    assert "torch's own step runs: capturable is set in group 0" in str(optimizer)
