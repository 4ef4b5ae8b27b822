# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`*` in a fragment stands for the dims of the rule that it comes before."""

import os
import subprocess

import numpy as np
import pytest
from oracle import ROOT, ZOO, Batch, assert_same

STEPC_OPT = os.environ.get("STEPC_OPT", str(ROOT / "build" / "bin" / "stepc-opt"))
CLIP = ZOO / "fragments" / "clip_by_norm.mlir"
SHAPES = [(129, 1025), (3, 5, 7), (2, 3, 65, 17), (4097,), (1,), ()]


@pytest.mark.parametrize("name", ["adafactor", "came", "lamb"])
def test_order_of_additions(name, tmp_path):
    whole, inlined = tmp_path / "whole.mlir", tmp_path / "inlined.mlir"
    whole.write_text((ZOO / f"{name}.mlir").read_text() + CLIP.read_text())
    subprocess.run([STEPC_OPT, whole, "-step-inline-fragments", "-o", inlined], check=True)
    rng, batch = np.random.default_rng(0), Batch()
    for path in (whole, inlined):
        for shape in SHAPES:
            rng = np.random.default_rng(len(shape))
            arrays = {n: rng.standard_normal(shape).astype("f4") for n in ("param", "grad")}
            batch.add(path, {n: np.asarray(a) for n, a in arrays.items()})
    results = batch.run()
    for one, other in zip(results[: len(SHAPES)], results[len(SHAPES) :], strict=True):
        for key, array in one.items():
            assert_same(other[key], array, key)
