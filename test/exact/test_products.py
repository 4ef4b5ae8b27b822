# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of matrices, transposes and states of other dims than the param's: compiled code has
the interpreter's bits, for each processor that this one can be."""

import numpy as np
import pytest
from oracle import store
from steps import Case, Group, Packages, check, interpret, launch
from whole_matrices import SHAPES, TYPES, assert_exact, define, tensor

DEFINITIONS = {
    # Both sides' grams, of which the products are symmetric, and a product of three.
    "grams": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n],
                 %r: state "r"[...b, m, m]) {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %rr = step.matmul %gt, %g : [...b, m, n], [...b, n, m]
    %l1 = step.lerp %l, %gg, %half : [...b, n, n], [...b, n, n], f64
    %r1 = step.lerp %r, %rr, %half : [...b, m, m], [...b, m, m], f64
    %u = step.matmul %l1, %g : [...b, n, n], [...b, n, m]
    %v = step.matmul %u, %r1 : [...b, n, m], [...b, m, m]
    %d = step.mul %v, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %l1, %r1 : [...b, n, m], [...b, n, n], [...b, m, m]
  }""",
    # States of the param's dims turned, multiplied by each other and by what is turned again.
    "turned states": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %t: state "t"[m, n] = 0.5, %s: state "s"[n, m],
                 %q: state "q"[n, n]) {
    %gt = step.transpose %g : [n, m]
    %t1 = step.lerp %t, %gt, %half : [m, n], [m, n], f64
    %tt = step.transpose %t1 : [m, n]
    %s1 = step.add %s, %tt : [n, m]
    %st = step.matmul %s1, %t1 : [n, m], [m, n]
    %qt = step.transpose %st : [n, n]
    %sum = step.add %st, %qt : [n, n]
    %q1 = step.sub %sum, %q : [n, n]
    %old = step.matmul %q, %s1 : [n, n], [n, m]
    %new = step.matmul %q1, %tt : [n, n], [n, m]
    %u = step.sub %new, %old : [n, m]
    %d = step.mul %u, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %t1, %s1, %q1 : [n, m], [m, n], [n, m], [n, n]
  }""",
    # Squares of symmetric matrices, norms of products, extents and vectors of rows: several
    # traversals, each of which keeps what the next product needs.
    "a chain": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %v: state "v"[n, m], %w: state "w"[n, 1]) {
    %v1 = step.lerp %v, %g, %half : [n, m], [n, m], f64
    %vv = step.mul %v1, %v1 : [n, m]
    %total = step.sum %vv : [n, m]
    %norm = step.sqrt %total : f64
    %least = step.maximum %norm, %half : f64
    %x = step.div %v1, %least : [n, m], f64
    %xt = step.transpose %x : [n, m]
    %a = step.matmul %x, %xt : [n, m], [m, n]
    %aa = step.matmul %a, %a : [n, n]
    %c = step.lerp %a, %aa, %half : [n, n], [n, n], f64
    %cc = step.matmul %c, %c : [n, n]
    %rows = step.mean %cc over [n] : [n, n]
    %top = step.amax %cc : [n, n]
    %y = step.matmul %cc, %x : [n, n], [n, m]
    %yy = step.mul %y, %y : [n, m]
    %w0 = step.mean %yy over [m] : [n, m]
    %w1 = step.add %w, %w0 : [n, 1]
    %z = step.mul %y, %w1 : [n, m], [n, 1]
    %z1 = step.mul %z, %rows : [n, m], [1, 1]
    %zt = step.transpose %z1 : [n, m]
    %b = step.matmul %zt, %x : [m, n], [n, m]
    %u = step.matmul %z1, %b : [n, m], [m, m]
    %n = step.extent n
    %m = step.extent m
    %ratio = step.div %n, %m : f64
    %rate = step.mul %ratio, %top : f64
    %d = step.mul %u, %rate : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %v1, %w1 : [n, m], [n, m], [n, 1]
  }""",
    # Operands and results of bf16, which are computed with in the compute type.
    "narrow": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %t: state "t"[m, n]) {
    %short = step.round %g to bf16 : [n, m]
    %small = step.round %p to f16 : [n, m]
    %turned = step.transpose %short : [n, m]
    %gram = step.matmul %short, %turned : [n, m], [m, n]
    %narrow = step.round %gram to bf16 : [n, n]
    %u = step.matmul %narrow, %small : [n, n], [n, m]
    %scaled = step.mul %u, %lr : [n, m], f64
    %d = step.round %scaled to f32 : [n, m]
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %turned : [n, m], [m, n]
  }""",
    # Lower halves for the whole: of products that are no more symmetric than others, and of what
    # is made of them, which is.
    "symmetric": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n],
                 %r: state "r"[...b, m, m]) {
    %gt = step.transpose %g : [...b, n, m]
    %pg = step.matmul %p, %gt {symmetric} : [...b, n, m], [...b, m, n]
    %gp = step.matmul %gt, %p {accumulate = f64, symmetric} : [...b, m, n], [...b, n, m]
    %l0 = step.matmul %l, %pg {symmetric} : [...b, n, n], [...b, n, n]
    %square = step.matmul %l0, %l0 : [...b, n, n], [...b, n, n]
    %l1 = step.lerp %square, %l0, %half : [...b, n, n], [...b, n, n], f64
    %r1 = step.add %r, %gp : [...b, m, m]
    %lt = step.transpose %pg : [...b, n, n]
    %u = step.matmul %lt, %g : [...b, n, n], [...b, n, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %l1, %r1 : [...b, n, m], [...b, n, n], [...b, m, m]
  }""",
    # Factors of bf16, in pairs: of whatever is stored, read either way, and halves.
    "factors": """
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n],
                 %r: state "r"[...b, m, m]) {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt {factors = bf16} : [...b, n, m], [...b, m, n]
    %gp = step.matmul %gt, %p {factors = bf16} : [...b, m, n], [...b, n, m]
    %l1 = step.matmul %l, %gg {factors = bf16, symmetric} : [...b, n, n]
    %l2 = step.add %l1, %gg : [...b, n, n]
    %r1 = step.sub %r, %gp : [...b, m, m]
    %u = step.matmul %l2, %g {factors = bf16} : [...b, n, n], [...b, n, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    step.return %p1, %l2, %r1 : [...b, n, m], [...b, n, n], [...b, m, m]
  }""",
    # The param times itself, and products that are stored as they are.
    "squares": """
  step.rule @any(%p: param[n, n], %g: grad[n, n], %s: state "s"[n, n], %t: state "t"[n, n]) {
    %s1 = step.matmul %p, %g : [n, n]
    %gt = step.transpose %g : [n, n]
    %t1 = step.matmul %gt, %s : [n, n]
    %d = step.mul %t1, %lr : [n, n], f64
    %p1 = step.sub %p, %d : [n, n]
    step.return %p1, %s1, %t1 : [n, n], [n, n], [n, n]
  }""",
}
# What is contributed to a statistic is made of a product; a step is skipped where that is large.
ROUNDS = """
  %trace = step.statistic "trace" sum over model
  %rate = step.scalars over model {
    %most = step.constant 1.0e6
    %large = step.compare gt, %trace, %most : f64
    step.report "trace", %trace
    step.skip_if %large
    %root = step.sqrt %trace : f64
    %rate = step.mul %root, %lr : f64
    step.yield %rate : f64
  }
  step.rule @any(%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n], %t: state "t"[m, n]) {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %ggg = step.matmul %gg, %g : [n, n], [n, m]
    %both = step.mul %ggg, %g : [n, m]
    %s = step.sum %both : [n, m]
    step.contribute %trace, %s
    %l1 = step.add %l, %gg : [n, n]
    %t1 = step.mul %gt, %rate : [m, n], f64
    %tl = step.matmul %t1, %l1 : [m, n], [n, n]
    %u = step.transpose %tl : [m, n]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %l1, %t1 : [n, m], [n, n], [m, n]
  }"""


@pytest.mark.parametrize("what", DEFINITIONS, ids=lambda what: what.replace(" ", "-"))
def test_tiles(what, target, tmp_path):
    """Several tensors and threads; each type with some of the shapes."""
    rng, definition, tensors = np.random.default_rng(1), define(tmp_path, DEFINITIONS[what]), []
    for number, storages in enumerate(TYPES):
        for index, shape in enumerate(SHAPES):
            if number < 2 or index % 3 == number % 3:
                shape = (max(shape),) * 2 if what == "squares" else shape
                tensors.append(tensor(rng, shape, storages))
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2, threads=3)], target)


@pytest.mark.parametrize(
    ("what", "shapes"),
    [
        ("grams", [(5, 513), (513, 3)]),
        ("factors", [(5, 513), (513, 3), (3, 511), (2, 1026)]),
        ("turned states", [(7, 1025), (6, 512), (13, 511), (5, 513)]),
    ],
    ids=["grams", "factors", "turned-states"],
)
def test_leaves(what, shapes, target, tmp_path):
    rng, definition = np.random.default_rng(2), define(tmp_path, DEFINITIONS[what])
    tensors = [tensor(rng, s, storages) for s in shapes for storages in (TYPES[0], TYPES[3])]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2)], target)


def test_batches(target, tmp_path):
    rng, definition = np.random.default_rng(3), define(tmp_path, DEFINITIONS["grams"])
    shapes = [(3, 7, 13), (2, 2, 17, 5), (1, 12, 16), (0, 3, 4), (5, 1, 1), (2, 0, 3)]
    tensors = [tensor(rng, shape, storages) for shape in shapes for storages in TYPES]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2, threads=2)], target)


def test_states_of_other_storages(target, tmp_path):
    rng, definition = np.random.default_rng(4), define(tmp_path, DEFINITIONS["turned states"])
    tensors = [
        tensor(rng, shape, ("f32", "bf16", "f32"), states=states)
        for shape in [(13, 17), (17, 6)]
        for states in ({"t": "bf16", "q": "f32"}, {"t": "f32", "q": "bf16", "s": "bf16"})
    ]
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=3, threads=2)], target)


def column_major(shape):
    return [1, shape[0]]


def padded(shape):
    return [shape[1] + 3, 1]


def every_second(shape):
    return [2 * shape[1], 2]


@pytest.mark.parametrize("what", ["grams", "turned states", "a chain"], ids=str.split)
def test_strides(what, target, tmp_path):
    """Of params and gradients, each another one; states of other dims are dense."""
    rng, definition, tensors = np.random.default_rng(5), define(tmp_path, DEFINITIONS[what]), []
    layouts = [column_major, padded, every_second, None]
    for param in layouts:
        for grad in layouts if what == "grams" else layouts[len(tensors) % 2 :: 2]:
            shape = (7, 17) if param is grad else (13, 12)
            places = {"param": param, "grad": grad}
            places = {
                n: {"strides": made(shape), "offset": 1} for n, made in places.items() if made
            }
            tensors.append(tensor(rng, shape, TYPES[len(tensors) % 4], places=places))
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2, threads=2)], target)


def test_expanded_gradients(target, tmp_path):
    """One number for all elements, as autograd makes them."""
    rng, definition = np.random.default_rng(6), define(tmp_path, DEFINITIONS["grams"])
    one = tensor(rng, (13, 17), TYPES[0], places={"grad": {"strides": [0, 0]}})
    for name in ("grad", "grad:0", "grad:1"):
        one.arrays[name] = np.full((13, 17), 0.25, "f4")
    assert_exact(tmp_path, [Case(definition, [Group()], [one], steps=2)], target)


def test_numbers_that_are_none(target, tmp_path):
    """Infinity, NaN, -0.0 and subnormal numbers, where zeros are packed beside them."""
    rng, definition, tensors = np.random.default_rng(7), define(tmp_path, DEFINITIONS["grams"]), []
    for special in (np.inf, -np.inf, np.nan, -0.0, 1e-42, 3e38):
        for shape in [(7, 13), (6, 16), (1, 1)]:
            one = tensor(rng, shape, TYPES[0])
            for name in ("grad:0", "grad:1", "param"):
                one.arrays[name][-1, -1] = special
            if special == -0.0:
                one.arrays["grad:0"][...] = special
            if special == 1e-42:
                one.arrays["grad:1"][...] = rng.standard_normal(shape) * 1e-22
            tensors.append(one)
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2)], target)


def pairs_near_the_least(rng, shape):
    """Products around 2^-126, and numbers that are denormal in bf16."""
    signs = rng.choice([-1.0, 1.0], shape)
    numbers = signs * (1 + rng.integers(0, 128, shape) / 128) * 2.0 ** rng.integers(-70, -55, shape)
    numbers[rng.random(shape) < 0.1] = 2.0**-130
    return numbers.astype("f4")


def test_factors_that_are_none(target, tmp_path):
    """As above, of factors of bf16, where sums below 2^-126 are zeros."""
    rng, definition = np.random.default_rng(17), define(tmp_path, DEFINITIONS["factors"])
    tensors = []
    for special in (np.inf, np.nan, -0.0, 1e-42, 3.4e38):
        for shape in [(7, 13), (6, 16), (1, 1)]:
            one = tensor(rng, shape, TYPES[0])
            for name in ("grad:0", "param"):
                one.arrays[name][-1, -1] = special
            tensors.append(one)
    for shape in [(7, 13), (12, 16), (17, 5), (5, 513)]:
        one = tensor(rng, shape, TYPES[0])
        for name in ("grad:0", "grad:1", "param"):
            one.arrays[name] = pairs_near_the_least(rng, shape)
        tensors.append(one)
    assert_exact(tmp_path, [Case(definition, [Group()], tensors, steps=2)], target)


def test_rounds_and_skipped_steps(target, tmp_path):
    rng, definition = np.random.default_rng(8), define(tmp_path, ROUNDS)
    shapes = [(7, 13), (17, 6), (12, 16), (96, 5)]
    tensors = [tensor(rng, shape, types, steps=3) for types in TYPES for shape in shapes]
    # The second step's are too large.
    tensors[0].arrays["grad:1"] = store(rng.standard_normal((7, 13)) * 1e3, "f32")
    case = Case(definition, [Group()], tensors, steps=3, threads=2)
    packages = Packages(tmp_path, target=target)
    failures = check([case], packages)
    assert not failures, "\n".join(failures)

    compiled = launch(case, packages)
    assert list(compiled["step:skipped"]) == [0, 1, 0]
    # Nothing is written in a step that is skipped: after two steps all is as after one.
    once, twice = (
        launch(Case(definition, [Group()], tensors, steps=steps, threads=2), packages)
        for steps in (1, 2)
    )
    for name in once:
        if name.startswith("t"):
            assert np.array_equal(once[name], twice[name], equal_nan=True), name
            assert not np.array_equal(once[name], compiled[name]), name


def test_the_interpreter_multiplies(tmp_path):
    """Both being wrong in the same way is not what the tests above would find."""
    rng, definition = np.random.default_rng(9), define(tmp_path, DEFINITIONS["grams"])
    one = tensor(rng, (7, 13), ("f64",) * 3, steps=1)
    [result] = interpret([Case(definition, [Group()], [one])])
    p, g = one.arrays["param"], one.arrays["grad"]
    left, right = g @ g.T / 2, g.T @ g / 2
    np.testing.assert_allclose(result["t0/l"], left, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(result["t0/r"], right, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(result["t0/param"], p - (left @ g @ right) / 8, rtol=1e-12)


def round_to_bf16(numbers):
    """To nearest, ties to even; zeros for what is denormal."""
    bits = np.asarray(numbers, "f4").view("u4").astype("u8")
    bits += 0x7FFF + (bits >> 16 & 1)
    rounded = (bits & 0xFFFF0000).astype("u4").view("f4")
    return np.where(np.abs(rounded) < 2.0**-126, np.copysign(0, rounded), rounded)


def add_pairs(row, column):
    """One element by the order of docs/language.md, where no sum is near the least number: a
    product of two bf16 and a sum of f32 that are of like size have fewer than 53 bits."""
    total = 0.0
    for begin in range(0, len(row), 512):
        leaf = np.float32(0)
        for k in range(begin, min(begin + 512, len(row)), 2):
            for index in (k + 1, k):
                if index < len(row):
                    leaf = np.float32(float(row[index]) * float(column[index]) + float(leaf))
        total += float(leaf)
    return np.float32(total)


def test_the_interpreter_multiplies_factors_of_bf16(tmp_path):
    rng, definition = np.random.default_rng(18), define(tmp_path, DEFINITIONS["factors"])
    one = tensor(rng, (3, 1027), ("f32",) * 3, steps=1)
    [result] = interpret([Case(definition, [Group()], [one])])
    g = round_to_bf16(one.arrays["grad"])
    expected = [[add_pairs(x, y) for y in g] for x in g]
    np.testing.assert_array_equal(result["t0/l"], np.array(expected))


READ_LATE = {
    "a matrix": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %l: state "l"[n, n] = 1.0) {
    %lt = step.transpose %l : [n, n]
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %l1 = step.lerp %l, %gg, %half : [n, n], [n, n], f64
    %q = step.matmul %lt, %l1 : [n, n]
    %u = step.matmul %q, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %l1 : [n, m], [n, n]
  }""",
    "a row": """
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "r"[1, m] = 0.5) {
    %column = step.transpose %r : [1, m]
    %sum = step.sum %g over [n] : [n, m]
    %r1 = step.lerp %r, %sum, %half : [1, m], [1, m], f64
    %outer = step.matmul %column, %r1 : [m, 1], [1, m]
    %u = step.matmul %g, %outer : [n, m], [m, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %r1 : [n, m], [1, m]
  }""",
}


@pytest.mark.parametrize("what", READ_LATE, ids=lambda what: what.replace(" ", "-"))
def test_a_state_is_read_as_it_was_where_a_product_needs_its_transpose(what, tmp_path):
    definition = define(tmp_path, READ_LATE[what])
    one = tensor(np.random.default_rng(10), (7, 13), TYPES[0])
    assert_exact(tmp_path, [Case(definition, [Group()], [one], steps=2)], None)
