# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of one to four named dims: operands and reductions over any of them."""

import numpy as np
import pytest
from definitions import Definition
from steps import Case, Group, Packages, Tensor, check

RULES = {
    # The lane, the row and an outer dim are each reduced and each kept; a state of two dims.
    "three dims": (
        """
  step.rule @any(%p: param[k, n, m], %g: grad[k, n, m], %s: state "s"[1, n, m],
                 %c: state "c"[k, 1, m], %d: state "d"[1, n, 1]) {
    %gg = step.mul %g, %g : [k, n, m]
    %a = step.mean %gg over [k] : [k, n, m]
    %b = step.mean %gg over [n] : [k, n, m]
    %e = step.mean %gg over [k, m] : [k, n, m]
    %f = step.sum %a over [m] : [1, n, m]
    %s1 = step.add %s, %a : [1, n, m]
    %c1 = step.add %c, %b : [k, 1, m]
    %d1 = step.add %d, %e : [1, n, 1]
    %d2 = step.add %d1, %f : [1, n, 1]
    %u = step.mul %g, %s1 : [k, n, m], [1, n, m]
    %v = step.mul %u, %c1 : [k, n, m], [k, 1, m]
    %w = step.mul %v, %d2 : [k, n, m], [1, n, 1]
    %p1 = step.sub %p, %w : [k, n, m]
    step.return %p1, %s1, %c1, %d2 : [k, n, m], [1, n, m], [k, 1, m], [1, n, 1]
  }""",
        [(3, 5, 7), (70, 3, 1030), (2, 130, 33), (1, 1, 1), (0, 3, 4), (200, 2, 2)],
    ),
    # Outer dims that do not lie side by side, and batches of all of it.
    "four dims and leading ones": (
        """
  step.rule @any(%p: param[...b, o, i, h, w], %g: grad[...b, o, i, h, w],
                 %x: state "x"[...b, 1, i, 1, 1], %y: state "y"[...b, o, 1, h, 1]) {
    %a = step.mean %g over [o, h, w] : [...b, o, i, h, w]
    %m = step.abs %g : [...b, o, i, h, w]
    %b = step.amax %m over [i, w] : [...b, o, i, h, w]
    %x1 = step.add %x, %a : [...b, 1, i, 1, 1]
    %y1 = step.add %y, %b : [...b, o, 1, h, 1]
    %z = step.mul %x1, %y1 : [...b, 1, i, 1, 1], [...b, o, 1, h, 1]
    %u = step.mul %g, %z : [...b, o, i, h, w], [...b, o, i, h, 1]
    %s = step.sum %u : [...b, o, i, h, w]
    %v = step.mul %u, %s : [...b, o, i, h, w], f64
    %p1 = step.sub %p, %v : [...b, o, i, h, w]
    step.return %p1, %x1, %y1 : [...b, o, i, h, w], [...b, 1, i, 1, 1], [...b, o, 1, h, 1]
  }""",
        [(3, 2, 5, 3), (2, 3, 2, 65, 17), (66, 2, 1, 3), (2, 70, 3, 3), (1, 2, 2, 2, 1030)],
    ),
    # What is written 1 has no lanes.
    "a column": (
        """
  step.rule @any(%p: param[n, 1], %g: grad[n, 1], %s: state "s"[1, 1]) {
    %gg = step.mul %g, %g : [n, 1]
    %m = step.mean %gg over [n] : [n, 1]
    %s1 = step.add %s, %m : [1, 1]
    %all = step.sum %gg : [n, 1]
    %u = step.mul %g, %s1 : [n, 1], [1, 1]
    %v = step.mul %u, %all : [n, 1], f64
    %p1 = step.sub %p, %v : [n, 1]
    step.return %p1, %s1 : [n, 1], [1, 1]
  }""",
        [(5, 1), (3000, 1), (1, 1), (0, 1)],
    ),
}


@pytest.mark.parametrize("what", RULES, ids=lambda what: what.replace(" ", "-"))
def test_rules(what, tmp_path):
    rule, shapes = RULES[what]
    path, rng, tensors = tmp_path / "dims.mlir", np.random.default_rng(0), []
    path.write_text(f"step.optimizer @dims {{{rule}\n}}\n")
    for shape in shapes:
        for storage, kind in [("f32", "f4"), ("f64", "f8")]:
            arrays = {n: rng.standard_normal(shape).astype(kind) for n in ("param", "grad")}
            tensors.append(Tensor(shape, (storage,) * 3, arrays, count=3, fresh=True))
    case = Case(Definition(path), [Group()], tensors, steps=2, threads=2)
    failures = check([case], Packages(tmp_path))
    assert not failures, "\n".join(failures)
