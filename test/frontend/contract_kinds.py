# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The optimizers whose contract with users and libraries is tested."""

import pytest
import stepc.torch
from common import OURS, ZOO, make_params

SHAPES = [(3,), (2, 4)]


def lion_from_file(params, **kwargs):
    return stepc.torch.Optimizer(params, ZOO / "lion.mlir", **kwargs)


KINDS = {**OURS, "file": lion_from_file}
each_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, shapes=SHAPES, **kwargs):
    params = make_params(shapes)
    return params, KINDS[kind](params, lr=0.1, **kwargs)
