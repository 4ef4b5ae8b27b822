# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps have the interpreter's bits on tensors of any layout."""

import numpy as np
import pytest
from driver import STORAGES, make_tensors
from formulas import HYPERS, OPTIONS

SHAPES = [(5,), (130,), (6, 7), (33, 17), (3, 4, 5), (2, 3, 4, 5), (1, 9, 1), (4, 0, 3), (1, 1)]


def row_major(shape, step=1):
    """Strides in elements; the last dim's is `step`."""
    strides, size = [], step
    for extent in reversed(shape):
        strides.insert(0, size)
        size *= max(extent, 1)
    return strides


def column_major(shape):
    return row_major(shape[::-1])[::-1]


def rolled(shape):
    """The first dim innermost, as channels_last does with the second."""
    return [1, *(stride * shape[0] for stride in row_major(shape[1:]))] if shape else []


def padded(shape):
    """Rows with three elements between them."""
    if len(shape) < 2:
        return row_major(shape, 2)
    wide = (*shape[:-1], shape[-1] + 3)
    return row_major(wide)


LAYOUTS = {"row": row_major, "column": column_major, "every third": lambda s: row_major(s, 3),
           "rolled": rolled, "padded": padded}  # fmt: skip


@pytest.mark.parametrize("storages", STORAGES[:3], ids="-".join)
@pytest.mark.parametrize("name", HYPERS)
@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "row"])
def test_all_operands_with_one_layout(layout, name, storages, packages, checker):
    options = dict.fromkeys(OPTIONS[name], False)

    def place(row, operand, shape):
        return {"strides": LAYOUTS[layout](shape), "offset": operand}

    tensors = make_tensors(name, storages, HYPERS[name], options, SHAPES, place)
    tensors.bind(packages(name, storages[2]), count=2).step(checker)
    tensors.new_gradients(1)
    tensors.step(checker)


@pytest.mark.parametrize("storages", STORAGES, ids="-".join)
@pytest.mark.parametrize("name", HYPERS)
def test_each_operand_with_another_layout(name, storages, packages, checker):
    options = dict.fromkeys(OPTIONS[name], True)
    rng, layouts = np.random.default_rng(0), list(LAYOUTS.values())

    def place(row, operand, shape):
        return {"strides": layouts[rng.integers(len(layouts))](shape), "offset": operand}

    shapes = [shape for shape in SHAPES for _ in range(6)]
    tensors = make_tensors(name, storages, HYPERS[name], options, shapes, place)
    tensors.bind(packages(name, storages[2]), threads=2, chunk=7).step(checker)


def test_expanded_gradients(packages, checker):
    # As autograd makes them: one number for all elements.
    for storages in STORAGES[:3]:
        rows = make_tensors("adamw", storages, HYPERS["adamw"], {}, [(6, 7), (40,), (2, 3, 4)],
                            lambda row, operand, shape:
                            {"strides": [0] * len(shape)} if operand == 1 else {})  # fmt: skip
        rows.bind(packages("adamw", storages[2])).step(checker)
