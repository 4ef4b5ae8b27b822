# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eigenvectors, eigenvalues, identities, bases, columns in order, random numbers, first columns,
what is done in some steps or again and again, and products that add up in f64: compiled code has
the interpreter's bits, for each processor that this one can be."""

import numpy as np
import pytest
from steps import Case, Group
from whole_matrices import SHAPES, TYPES, assert_exact, define, tensor

GAP = '\n  %gap = step.hyper "gap" = 2.0\n  %rank = step.option "rank" = 3\n'
DEFINITIONS = {
    # A basis of each side, of its own dim, in every second step.
    "bases": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %q: state "q"[m, r], %l: state "l"[n, n],
                 %t: count) dim r = min %rank, n, m {
    %due = step.every %gap, %t
    %q1, %l1 = step.when %due, %q, %l : [m, r], [n, n] {
      %gt = step.transpose %g : [n, m]
      %right = step.matmul %gt, %g {accumulate = f64} : [m, n], [n, m]
      %left = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
      %v = step.eigh %right : [m, m]
      %first = step.first %v, r : [m, m]
      %u = step.eigh %left : [n, n]
      step.yield %first, %u : [m, r], [n, n]
    }
    %low = step.matmul %g, %q1 : [n, m], [m, r]
    %qt = step.transpose %q1 : [m, r]
    %back = step.matmul %low, %qt : [n, r], [r, m]
    %turned = step.matmul %l1, %back : [n, n], [n, m]
    %d = step.mul %turned, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %q1, %l1 : [n, m], [m, r], [n, n]
  }""",
    # Of batches; what is decomposed is a state, and what it was is needed again.
    "batches": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %c: state "c"[...b, n, n],
                 %f: fresh, %t: count) dim r = min %rank, n, m {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %c1 = step.lerp %c, %gg, %half : [...b, n, n], [...b, n, n], f64
    %q = step.eigh %c1 : [...b, n, n]
    %first = step.first %q, r : [...b, n, n]
    %firstt = step.transpose %first : [...b, n, r]
    %low = step.matmul %firstt, %g : [...b, r, n], [...b, n, m]
    %u = step.matmul %first, %low : [...b, n, r], [...b, r, m]
    %every = step.every %gap, %t
    %either = step.or %every, %f : i1
    %v = step.when %either, %u : [...b, n, m] {
      %old = step.matmul %c, %g : [...b, n, n], [...b, n, m]
      step.yield %old : [...b, n, m]
    }
    %d = step.mul %v, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %c1 : [...b, n, m], [...b, n, n]
  }""",
    # States as they are stored: in 16 bits they become f64 where these are added up.
    "stored": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n] = 1.0, %s: state "s"[n, m],
                 %t: count) {
    %st = step.transpose %s : [n, m]
    %ss = step.matmul %s, %st {accumulate = f64} : [n, m], [m, n]
    %ls = step.matmul %l, %s {accumulate = f64} : [n, n], [n, m]
    %q = step.eigh %l : [n, n]
    %qs = step.matmul %q, %ls : [n, n], [n, m]
    %l1 = step.lerp %l, %ss, %half : [n, n], [n, n], f64
    %s1 = step.lerp %s, %g, %half : [n, m], [n, m], f64
    %d = step.mul %qs, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %l1, %s1 : [n, m], [n, n], [n, m]
  }""",
    # A step of the power iteration on each side: columns in the order of what they keep.
    "powers": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %q: state "q"[...b, n, n] = 0.5,
                 %s: state "s"[...b, m, r] = 1.0, %t: count) dim r = min %rank, n, m {
    %due = step.every %gap, %t
    %gt = step.transpose %g : [...b, n, m]
    %gram = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %q1 = step.when %due, %q : [...b, n, n] {
      %lq = step.matmul %gram, %q : [...b, n, n], [...b, n, n]
      %qt = step.transpose %q : [...b, n, n]
      %qlq = step.matmul %qt, %lq : [...b, n, n], [...b, n, n]
      %keys = step.diagonal %qlq : [...b, n, n]
      %double = step.add %keys, %keys : [...b, 1, n]
      %sorted = step.sort %lq by %double : [...b, n, n], [...b, 1, n]
      %basis = step.qr %sorted : [...b, n, n]
      step.yield %basis : [...b, n, n]
    }
    %y = step.matmul %g, %s : [...b, n, m], [...b, m, r]
    %left = step.qr %y : [...b, n, r]
    %z = step.matmul %gt, %left : [...b, m, n], [...b, n, r]
    %s1 = step.qr %z : [...b, m, r]
    %s1t = step.transpose %s1 : [...b, m, r]
    %low = step.matmul %left, %s1t : [...b, n, r], [...b, r, m]
    %u = step.matmul %q1, %low : [...b, n, n], [...b, n, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %q1, %s1 : [...b, n, m], [...b, n, n], [...b, m, r]
  }""",
    # Values along with vectors, and alone; identities that are added, multiplied, and chosen by.
    "roots": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n],
                 %x: state "x"[...b, n, n], %w: state "w"[...b, 1, m], %t: count) {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %one = step.identity : [...b, n, n]
    %damp = step.mul %one, %half : [...b, n, n], f64
    %l1 = step.add %gg, %damp : [...b, n, n]
    %due = step.every %gap, %t
    %x1 = step.when %due, %x : [...b, n, n] {
      %values = step.eigenvalues %l1 : [...b, n, n]
      %q = step.eigh %l1 : [...b, n, n]
      %root = step.sqrt %values : [...b, 1, n]
      %scaled = step.div %q, %root : [...b, n, n], [...b, 1, n]
      %qt = step.transpose %q : [...b, n, n]
      %new = step.matmul %scaled, %qt : [...b, n, n]
      step.yield %new : [...b, n, n]
    }
    %gtg = step.matmul %gt, %g : [...b, m, n], [...b, n, m]
    %own = step.eigenvalues %gtg : [...b, m, m]
    %column = step.index : [...b, 1, m]
    %w1 = step.add %own, %column : [...b, 1, m]
    %row = step.index : [...b, n, 1]
    %below = step.compare gt, %row, %column : [...b, n, 1], [...b, 1, m]
    %turned = step.matmul %x1, %g : [...b, n, n], [...b, n, m]
    %twice = step.matmul %one, %turned : [...b, n, n], [...b, n, m]
    %u = step.select %below, %twice, %g : mask[...b, n, m], [...b, n, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %l1, %x1, %w1 : [...b, n, m], [...b, n, n], [...b, n, n], [...b, 1, m]
  }""",
    # Random numbers of their own for each tensor, matrix and step, some of which nobody needs.
    "normals": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %o: state "o"[...b, m, r],
                 %t: count) dim r = min %rank, n, m {
    %due = step.every %gap, %t
    %o1 = step.when %due, %o : [...b, m, r] {
      %fresh = step.random_normal "o" %half, %t : [...b, m, r]
      step.yield %fresh : [...b, m, r]
    }
    %low = step.matmul %g, %o1 : [...b, n, m], [...b, m, r]
    %ot = step.transpose %o1 : [...b, m, r]
    %back = step.matmul %low, %ot : [...b, n, r], [...b, r, m]
    %noise = step.random_normal "noise" %gap, %t : [...b, n, m]
    %column = step.random_normal "noise" %gap, %t : [...b, n, 1]
    %both = step.add %noise, %column : [...b, n, m], [...b, n, 1]
    %u = step.add %back, %both : [...b, n, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %o1 : [...b, n, m], [...b, m, r]
  }""",
    # Products of products, as often as it says, of which some are not needed in some steps.
    "repeated": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %v: state "v"[n, m], %t: count) {
    %v1 = step.lerp %v, %g, %half : [n, m], [n, m], f64
    %due = step.every %gap, %t
    %x = step.when %due, %v1 : [n, m] {
      %y = step.repeat 3 (%a: [n, m] = %v1) {
        %at = step.transpose %a : [n, m]
        %gram = step.matmul %a, %at : [n, m], [m, n]
        %u = step.matmul %gram, %a : [n, n], [n, m]
        %b = step.lerp %a, %u, %half : [n, m], [n, m], f64
        step.yield %b : [n, m]
      }
      step.yield %y : [n, m]
    }
    %d = step.mul %x, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %v1 : [n, m], [n, m]
  }""",
}
SMALL = [shape for shape in SHAPES if max(shape) < 40]


def make(folder, what):
    return define(folder, GAP + DEFINITIONS[what])


@pytest.mark.parametrize("what", DEFINITIONS)
def test_steps(what, target, tmp_path):
    """Due and undue ones, of several tensors by several threads."""
    rng, definition, tensors = np.random.default_rng(1), make(tmp_path, what), []
    for number, storages in enumerate(TYPES):
        for index, shape in enumerate(SMALL):
            if number < 1 or index % 3 == number % 3:
                tensors.append(tensor(rng, shape, storages, steps=4))
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=4, threads=3)], target)


@pytest.mark.parametrize("gap", [1.0, 3.0, 100.0, 0.0])
def test_gaps(gap, target, tmp_path):
    rng, definition = np.random.default_rng(2), make(tmp_path, "bases")
    tensors = [tensor(rng, shape, TYPES[0], steps=5) for shape in [(5, 7), (7, 5), (1, 1)]]
    group = Group(hypers={"gap": gap}, options={"rank": 2})
    assert_exact(tmp_path, [Case(definition, [group], tensors, steps=5)], target)


def test_many_columns(target, tmp_path):
    """More than what waiting rotations are applied to together, and than a vector has."""
    rng, definition = np.random.default_rng(3), make(tmp_path, "bases")
    tensors = [
        tensor(rng, shape, TYPES[k], steps=1) for k, shape in [(0, (97, 70)), (3, (33, 130))]
    ]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=1)], target)


def test_many_columns_of_bases(target, tmp_path):
    """More than one panel of reflections, and than columns they are applied to together."""
    rng, definition = np.random.default_rng(3), make(tmp_path, "powers")
    tensors = [tensor(rng, (97, 33), TYPES[0], steps=2), tensor(rng, (70, 130), TYPES[3], steps=2)]
    group = Group(options={"rank": 40})
    assert_exact(tmp_path, [Case(definition, [group], tensors, steps=2)], target)


def test_leaves(target, tmp_path):
    rng, definition = np.random.default_rng(4), make(tmp_path, "bases")
    tensors = [tensor(rng, shape, TYPES[0], steps=1) for shape in [(7, 513), (1025, 6)]]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors[1:], steps=1)], target)


@pytest.mark.parametrize("what", ["batches", "powers", "roots"])
def test_batches(what, target, tmp_path):
    rng, definition = np.random.default_rng(5), make(tmp_path, what)
    shapes = [(3, 7, 13), (2, 2, 17, 5), (0, 3, 4), (5, 1, 1), (2, 0, 3)]
    tensors = [tensor(rng, shape, kind, steps=3) for shape in shapes for kind in TYPES]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=3, threads=2)], target)


def test_states_of_sixteen_bits(target, tmp_path):
    """An old value is stored as it was."""
    rng, definition = np.random.default_rng(6), make(tmp_path, "bases")
    tensors = [
        tensor(rng, shape, ("f32", "bf16", "f32"), states={"q": "bf16", "l": "f16"}, steps=4)
        for shape in [(13, 17), (17, 6)]
    ]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=4)], target)


@pytest.mark.parametrize("what", ["bases", "powers", "roots"])
def test_numbers_that_are_none(what, target, tmp_path):
    """In due steps and others: a basis that is NaN is so until the next."""
    rng, definition, tensors = np.random.default_rng(7), make(tmp_path, what), []
    for special in (np.inf, -np.inf, np.nan, 1e-42, 3e38, 0.0):
        for step in range(3):
            one = tensor(rng, (7, 5), TYPES[0], steps=4)
            one.arrays[f"grad:{step}"][-1, -1] = special
            if special in (0.0, 1e-42):
                one.arrays[f"grad:{step}"][...] = special
            tensors.append(one)
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=4)], target)
