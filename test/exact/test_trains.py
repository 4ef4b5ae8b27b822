# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traversals that trail another, strip of rows by strip of rows, have the interpreter's bits."""

import json
import subprocess
import zipfile

import numpy as np
import pytest
from definitions import Definition
from driver import STEPC
from oracle import ZOO, store
from papers import HYPERS
from steps import Case, Group, Packages, Tensor, check

# Two traversals trail the first, the second of them with what the first has left of rows.
CHAIN = """
step.optimizer @chain {
  %lr = step.hyper "lr" = 0.1
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m], %s: state "sum"[...b, n, m],
                    %r: state "row"[...b, n, 1] = 0.5, %c: state "col"[...b, 1, m]) {
    %gg = step.mul %g, %g : [...b, n, m]
    %rows = step.mean %gg over [m] : [...b, n, m]
    %r1 = step.lerp %r, %rows, %lr : [...b, n, 1], [...b, n, 1], f64
    %root = step.sqrt %r1 : [...b, n, 1]
    %u = step.div %g, %root : [...b, n, m], [...b, n, 1]
    %s1 = step.lerp %s, %u, %lr : [...b, n, m], [...b, n, m], f64
    %off = step.sub %u, %s1 : [...b, n, m]
    %most = step.amax %off over [m] : [...b, n, m]
    %both = step.add %most, %rows : [...b, n, 1]
    %scaled = step.mul %s1, %both : [...b, n, m], [...b, n, 1]
    %cols = step.sum %scaled over [n] : [...b, n, m]
    %c1 = step.lerp %c, %cols, %lr : [...b, 1, m], [...b, 1, m], f64
    %all = step.mean %r1 : [...b, n, 1]
    %step = step.mul %scaled, %c1 : [...b, n, m], [...b, 1, m]
    %small = step.mul %step, %all : [...b, n, m], f64
    %p1 = step.sub %p, %small : [...b, n, m]
    step.return %p1, %s1, %r1, %c1
      : [...b, n, m], [...b, n, m], [...b, n, 1], [...b, 1, m]
  }
}
"""
# Rows beside and below a block, one tile and two beside each other, several items, nothing.
SHAPES = [(1, 1), (63, 5), (64, 17), (65, 33), (130, 1025), (2, 70, 40), (66, 4200),
          (2, 4096), (5, 4097), (0, 3), (3, 0), (2, 0, 4)]  # fmt: skip
# A transposed tensor, and one whose rows lie apart.
PLACES = {(65, 33): [1, 65], (130, 1025): [1100, 1]}


def schedule(path, folder):
    package = folder / "x.stepc"
    subprocess.run([STEPC, path, "-o", package], check=True, capture_output=True)
    manifest = json.loads(zipfile.ZipFile(package).read("manifest.json"))
    (variant, *_) = [v for v in manifest["variants"] if v["space"] == "tiles"]
    return [
        ("finish" if "finish" in entry else "kernel", entry.get("trailing", False))
        for entry in variant["schedule"]
    ]


def make_cases(definition, hypers):
    rng, cases = np.random.default_rng(7), []
    for storages in [("f32", "f32", "f32"), ("bf16", "bf16", "f32")]:
        tensors = []
        for shape in SHAPES:
            arrays = {
                role: store(rng.standard_normal(shape).astype("f4"), storage)
                for role, storage in zip(("param", "grad"), storages, strict=False)
            }
            place = {"strides": PLACES[shape]} if shape in PLACES else {}
            tensors.append(
                Tensor(shape, storages, arrays, count=3, fresh=True,
                       places={"param": place, "grad": place})
            )  # fmt: skip
        group = Group(hypers=hypers)
        cases.append(Case(definition, [group], tensors, steps=2, threads=len(cases) + 1))
    return cases


@pytest.mark.parametrize("name", ["adafactor", "came", "adalomo"])
def test_the_zoo(name, tmp_path):
    assert ("kernel", True) in schedule(ZOO / f"{name}.mlir", tmp_path)
    cases = make_cases(Definition(ZOO / f"{name}.mlir"), HYPERS[name])
    failures = check(cases, Packages(tmp_path))
    assert not failures, "\n".join(failures)


def test_a_train_of_three(tmp_path):
    path = tmp_path / "chain.mlir"
    path.write_text(CHAIN)
    assert schedule(path, tmp_path) == [
        ("kernel", False), ("finish", True), ("kernel", True), ("finish", True), ("kernel", True),
        ("finish", False), ("kernel", False),
    ]  # fmt: skip
    failures = check(make_cases(Definition(path), {}), Packages(tmp_path))
    assert not failures, "\n".join(failures)


# Nothing of a tensor: no entry behind the train, so none at which its workers meet.
ROWS = """
step.optimizer @rows {
  %lr = step.hyper "lr" = 0.1
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    %gg = step.mul %g, %g : [n, m]
    %rows = step.mean %gg over [m] : [n, m]
    %root = step.sqrt %rows : [n, 1]
    %u = step.div %g, %root : [n, m], [n, 1]
    %step = step.mul %u, %lr : [n, m], f64
    %p1 = step.sub %p, %step : [n, m]
    step.return %p1 : [n, m]
  }
}
"""


def test_large_tensors_without_a_meeting(tmp_path):
    """Of different shapes, so that their workspaces lie otherwise: workers that have run on
    would write what a slow one still reads."""
    path = tmp_path / "rows.mlir"
    path.write_text(ROWS)
    assert schedule(path, tmp_path) == [("kernel", False), ("finish", True), ("kernel", True)]
    rng, tensors = np.random.default_rng(3), []
    for shape in [(700, 500), (350, 1000), (1400, 250), (175, 2000), (2800, 125), (999, 400)]:
        arrays = {role: rng.standard_normal(shape).astype("f4") for role in ("param", "grad")}
        tensors.append(Tensor(shape, ("f32",) * 3, arrays, count=3, fresh=True))
    group = Group(hypers={})
    case = Case(Definition(path), [group], tensors, steps=3, threads=4, chunk=4096)
    failures = check([case], Packages(tmp_path))
    assert not failures, "\n".join(failures)
