# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The checks of driver.py see what they are there to see."""

import numpy as np
import pytest
from driver import Checker, Operand, make_tensors
from formulas import HYPERS


@pytest.mark.parametrize("strides", [None, [14, 2]])
def test_bytes_beside_an_operand_are_watched(strides):
    values = np.arange(12, dtype="f4").reshape(3, 4)
    operand = Operand(values, offset=3, strides=strides)
    operand.remember()
    operand.view += 1
    assert operand.has_only_its_elements_changed()
    assert np.array_equal(operand.view, values + 1)
    start = operand.view.ctypes.data - operand.memory.ctypes.data
    positions = [0, start - 1, len(operand.memory) - 1] + ([start + 4] if strides else [])
    for position in positions:
        operand.memory[position] ^= 1
        assert not operand.has_only_its_elements_changed()
        operand.memory[position] ^= 1
    assert operand.has_only_its_elements_changed()


def test_one_wrong_bit_is_noticed(packages):
    tensors = make_tensors("lion", ("f32", "f32", "f32"), HYPERS["lion"], {}, [(50,)])
    tensors.bind(packages("lion", "f32"))
    good, bad = Checker(), Checker()
    tensors.step(good)
    good.verify()
    tensors.step(bad)
    position = int(np.argmax(np.isfinite(bad.expected[0]["exp_avg"])))
    bad.expected[0]["exp_avg"].view(np.uint32)[position] ^= 1
    with pytest.raises(AssertionError, match=f"exp_avg: 1 of 50 differ, first element {position}"):
        bad.verify()


def test_a_written_gradient_is_noticed(packages):
    tensors = make_tensors("lion", ("f32", "f32", "f32"), HYPERS["lion"], {}, [(50,)])
    tensors.bind(packages("lion", "f32"))

    def take(plan):
        plan.step()
        tensors.rows[0]["grad"].view[7] = 1.25

    with pytest.raises(AssertionError, match="the gradient changed"):
        tensors.step(Checker(), take)


def test_nothing_checked_is_an_error():
    with pytest.raises(AssertionError, match="nothing was checked"):
        Checker().verify()


def test_special_values_are_there():
    rows = make_tensors("adamw", ("bf16", "f32", "f64"), HYPERS["adamw"], {}, [(2000,)]).rows
    grad = rows[0]["grad"].view
    magnitude = np.abs(grad)
    assert np.isnan(grad).any()
    assert np.isinf(grad).any()
    assert (grad == 0).any()
    assert ((magnitude > 0) & (magnitude < np.finfo("f4").tiny)).any()
    assert (rows[0]["exp_avg_sq"].view < 0).sum() == 0
