# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The largest of elements: of magnitudes, which lanes keep as integers, and of numbers with a
sign. Infinities, both zeros, NaNs of both signs, in vectors and in what is left of a row."""

import numpy as np
import pytest
from definitions import Definition
from oracle import store
from steps import Case, Group, Packages, Tensor, check

MAXIMA = """
step.optimizer @maxima {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, m], %r: state "r"[n, 1],
                    %c: state "c"[1, m]) {
    %size = step.abs %g : [n, m]
    %largest = step.amax %size : [n, m]
    %most = step.amax %g : [n, m]
    %rows = step.amax %size over [m] : [n, m]
    %cols = step.amax %size over [n] : [n, m]
    %scaled = step.mul %p, %largest : [n, m], f64
    %with_s = step.add %scaled, %s : [n, m]
    %with_r = step.add %with_s, %r : [n, m], [n, 1]
    %p1 = step.add %with_r, %c : [n, m], [1, m]
    %s1 = step.mul %p, %most : [n, m], f64
    step.return %p1, %s1, %rows, %cols : [n, m], [n, m], [n, 1], [1, m]
  }
}
"""
NAN = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)  # of either sign
KINDS = {
    "finite": [],
    "all zero": [0.0],
    "zeros": [-0.0],
    "both zeros": [0.0, -0.0],
    "infinite": [np.inf],
    "minus infinity": [-np.inf],
    "all negative": [-3.0, -1.5, -2.0],
    "a NaN": [NAN[0]],
    "a negative NaN": [NAN[1]],
    "denormal": [1e-42, -1e-44],
}
SHAPES = [(3, 5), (65, 1040), (1, 1), (2, 16), (4, 1024), (0, 3)]


def values(kind, shape, rng):
    made = rng.standard_normal(shape).astype("f4")
    special = KINDS[kind]
    if kind in ("all zero", "zeros", "both zeros", "all negative", "denormal"):
        made = np.resize(np.array(special, "f4"), shape)
    elif special and made.size:
        made.reshape(-1)[rng.integers(made.size)] = special[0]
    return made


@pytest.mark.parametrize("storage", ["f32", "bf16", "f64"])
def test_maxima(storage, tmp_path):
    path, rng = tmp_path / "maxima.mlir", np.random.default_rng(7)
    path.write_text(MAXIMA)
    definition, cases = Definition(path), []
    wide = "f64" if storage == "f64" else "f32"
    for kind in KINDS:
        tensors = []
        for shape in SHAPES:
            grad = values(kind, shape, rng)
            arrays = {"param": np.ones(shape, "f4"), "grad": grad}
            if storage == "f64":
                arrays = {name: array.astype("f8") for name, array in arrays.items()}
            stored = {name: store(array, storage) for name, array in arrays.items()}
            storages = (storage, storage, wide)
            tensors.append(Tensor(shape, storages, stored, count=3, fresh=True))
        cases.append(Case(definition, [Group()], tensors, steps=1, threads=2))
    failures = check(cases, Packages(tmp_path))
    assert not failures, "\n".join(failures)
