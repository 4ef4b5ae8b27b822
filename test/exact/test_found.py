# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Definitions that were compiled wrongly, or not at all, until test/fuzz found them."""

import numpy as np
import pytest
from definitions import Definition
from steps import Case, Group, Packages, Tensor, check

FOUND = {
    # The round was erased when programs no longer named its result.
    "a step.scalars that only yields": """
  %s = step.statistic "s" sum over model
  %r = step.scalars over model {
    %root = step.sqrt %s : f64
    step.yield %root : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %sum = step.sum %gg : [*]
    step.contribute %s, %sum
    %p1 = step.div %g, %r : [*], f64
    step.return %p1
  }""",
    # The runtime refused a contribution with no round behind it.
    "a statistic that nothing reads": """
  %s = step.statistic "s" sum over model
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %sum = step.sum %m : [*]
    step.contribute %s, %sum
    %p1 = step.add %p, %g : [*]
    %m1 = step.add %m, %g : [*]
    step.return %p1, %m1
  }""",
    # A kernel of elements would have read the row with the matrix's index.
    "a row that is read, and nothing reduced": """
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "r"[1, m] = 0.5) {
    %p1 = step.mul %p, %r : [n, m], [1, m]
    step.return %p1, %r : [n, m], [1, m]
  }""",
    # A program without a phase.
    "a tensor that stays, and a scalar that does not": """
  %lr = step.hyper "lr" = 0.5
  %k = step.scalar "k" = 1.0 over model
  step.scalars over model {
    %k1 = step.mul %k, %lr : f64
    step.update %k, %k1
    step.report "k", %k1
    step.yield
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    step.return %p : [n, m]
  }""",
    # The count of a cohort in a scalar of the tensor.
    "a power of the tensor's own scalar": """
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    %most = step.amax %g : [*]
    %power = step.powi %most, %t
    %p1 = step.mul %p, %power : [*], f64
    step.return %p1
  }""",
    # A slot of the segment before the round.
    "a contribution of a round's result": """
  %lr = step.hyper "lr" = 0.5
  %s = step.statistic "s" sum over model
  %r = step.scalars over model {
    %half = step.sqrt %lr : f64
    step.yield %half : f64
  }
  %q = step.scalars over model {
    step.report "s", %s
    step.yield %s : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.contribute %s, %r
    %p1 = step.mul %g, %q : [*], f64
    step.return %p1
  }""",
    # Reports were numbered before results went that no variant uses.
    "a result that only another variant uses": """
  %o = step.option "o" = false
  %s = step.statistic "s" sum over model
  %t = step.statistic "t" sum over model
  %r = step.scalars over model {
    %root = step.sqrt %t : f64
    step.yield %root : f64
  }
  step.scalars over model {
    step.report "s", %s
    step.yield
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %sum = step.sum %g : [*]
    step.contribute %s, %sum
    %most = step.amax %g : [*]
    step.contribute %t, %most
    %by = step.mul %g, %r : [*], f64
    %p1 = step.select %o, %by, %g : [*]
    step.return %p1
  }""",
    # The second was given what the first had just become.
    "two states of fewer dims that change places": """
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %q: state "q"[1, m] = 1.0,
                    %r: state "r"[1, m] = 2.0) {
    %p1 = step.add %g, %r : [n, m], [1, m]
    step.return %p1, %r, %q : [n, m], [1, m], [1, m]
  }""",
    # The interpreter added up as if `*` were one dim, whatever the rule.
    "a fragment before a matrix": """
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    %p1 = step.add %p, %g : [n, m]
    step.return %p1 : [n, m]
  }
}
step.fragment @norm {
  %s = step.statistic "s" sum over model
  %root = step.scalars over model {
    %r = step.sqrt %s : f64
    step.report "norm2", %s
    step.yield %r : f64
  }
  step.rule @any(%g: grad[*]) {
    %gg = step.mul %g, %g : [*]
    %sum = step.sum %gg : [*]
    step.contribute %s, %sum
    %g1 = step.mul %g, %root : [*], f64
    step.return %g1
  }""",
    # Not found: traversals that some of the tensors leave out, by flags of all kinds.
    "reductions that are left out": """
  %a = step.hyper "a" = 0.2
  %zero = step.constant 0.0
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1], %t: count) {
    %number = step.to_f64 %t
    %four = step.constant 4.0
    %even = step.compare eq, %number, %four : f64
    %mean = step.mean %p : [n, m]
    %size = step.select %even, %zero, %mean : f64
    %most = step.amax %g : [n, m]
    %two = step.constant 2.5
    %large = step.compare gt, %most, %two : f64
    %gg = step.mul %g, %most : [n, m], f64
    %g_sum = step.sum %gg : [n, m]
    %sum = step.select %large, %zero, %g_sum : f64
    %pp = step.mul %p, %most : [n, m], f64
    %p_most = step.amax %pp : [n, m]
    %least = step.select %large, %p_most, %zero : f64
    %rows = step.mean %g over [m] : [n, m]
    %row_sum = step.sum %rows : [n, 1]
    %all = step.select %even, %zero, %row_sum : f64
    %x = step.add %size, %sum : f64
    %y = step.add %x, %all : f64
    %z = step.add %y, %least : f64
    %rate = step.mul %a, %z : f64
    %u = step.mul %g, %rate : [n, m], f64
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %rows : [n, m], [n, 1]
  }""",
    # The write of `s`, deferred to the last traversal that reads the old one, was left out
    # with it.
    "a write beside what is left out": """
  %a = step.hyper "a" = 0.2
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, m],
                    %r: state "r"[n, 1]) {
    %s1 = step.add %s, %g : [n, m]
    %sum = step.sum %g : [n, m]
    %positive = step.compare gt, %sum, %a : f64, f64
    %zero = step.constant 0.0
    %old = step.mul %s, %sum : [n, m], f64
    %mean = step.mean %old : [n, m]
    %size = step.select %positive, %zero, %mean : f64
    %r1 = step.add %r, %size : [n, 1], f64
    %u = step.mul %s1, %a : [n, m], f64
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %s1, %r1 : [n, m], [n, m], [n, 1]
  }""",
    # The segment of the contribution was never begun: nothing else is in it.
    "a scalar of a round that is contributed, and nothing else": """
  %k = step.scalar "k" = 1.0e-3 over model
  %s = step.statistic "s" sum over model
  %r = step.scalars over group {
    step.yield %k : f64
  }
  step.scalars over group {
    step.report "s", %s
    step.yield
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.contribute %s, %r
    step.return %g
  }""",
}


@pytest.mark.parametrize("what", FOUND, ids=lambda what: what.replace(" ", "-"))
def test_found_by_fuzzing(what, tmp_path):
    path, rng = tmp_path / "found.mlir", np.random.default_rng(0)
    path.write_text(f"step.optimizer @found {{{FOUND[what]}\n}}\n")
    definition, tensors = Definition(path), []
    for shape in [(3, 5), (129, 1025), (1, 1), (0, 3), (65, 17)]:
        for storages in [("f32", "f32", "f32"), ("f64", "f64", "f64")]:
            kind = "f8" if storages[0] == "f64" else "f4"
            arrays = {n: rng.standard_normal(shape).astype(kind) for n in ("param", "grad")}
            tensors.append(Tensor(shape, storages, arrays, count=3, fresh=True))
    case = Case(definition, [Group()], tensors, steps=2, threads=2)
    failures = check([case], Packages(tmp_path))
    assert not failures, "\n".join(failures)
