# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PTX of definitions with reductions, run by an interpreter, has the bits of the
processor's kernels of the same package, in kernels and finishes, statistics and rounds.

STEPC_PTX_FULL=1 runs every definition in every storage and random shapes, which takes some
minutes; else each definition has one storage.
"""

import os
import re

import numpy as np
import pytest
from packages import STORAGES, ZOO, Package, bits
from ptx import Fault
from tiles import Step, Tensors, words

FULL = os.environ.get("STEPC_PTX_FULL") == "1"
TILED = {
    "adafactor": "f32", "adalomo": "bf16 and f32", "asgd": "bf16 and f32", "came": "bf16 and f32",
    "dadapt_adam": "f32", "dadapt_sgd": "bf16", "deepspeed_lamb": "bf16", "fused_lamb": "f32",
    "jordan_muon": "f32", "lamb": "bf16 and f32", "lars": "all bf16", "muon": "f32",
    "nadam": "f32", "normuon": "f32", "sm3": "f32", "torch_adafactor": "f64",
}  # fmt: skip
CASES = [
    (name, storage)
    for name, chosen in TILED.items()
    for storage in STORAGES
    if FULL or storage == chosen
]
# Each with the elements by which its operands miss 64 bytes. Tiles end at 64 rows and 4096
# columns, leaves at 1024 columns, vectors at 16 bytes.
WHOLE = [((1030,), 1), ((5200,), 0), ((16, 3), 0), ((1,), 3), ((0,), 0)]
MATRICES = [((67, 40), 0), ((66, 37), 0), ((3, 2, 20), 1), ((2, 4128), 0), ((1, 1), 0), ((0, 7), 0)]
STRIDED = [((9, 5), 0), ((1028, 4), 1)]
STRIDED_MATRICES = [((9, 5), 0), ((2, 3, 4), 1)]
# Of rules with products: small, as each thread has long chains. Every second one that is not
# tiny has numbers whose squares are infinite in f32.
PRODUCTS = [((17, 20), 0), ((1, 1), 0), ((5, 9), 1), ((0, 7), 0), ((9, 5), 0), ((20, 17), 1)]
STRIDED_PRODUCTS = [((9, 5), 0), ((1, 7), 0), ((17, 20), 1)]
# Of rules without leading dims, by how many they name.
EXACT = {
    1: ([((1030,), 1), ((4100,), 0), ((1,), 3), ((0,), 0)], [((9,), 0)]),
    2: ([shape for shape in MATRICES if len(shape[0]) == 2], [((9, 5), 0)]),
    3: ([((3, 67, 40), 0), ((2, 66, 37), 1), ((5, 1, 3), 0), ((2, 0, 7), 0)], [((2, 3, 4), 1)]),
    4: ([((2, 3, 66, 20), 0), ((3, 2, 3, 3), 1), ((2, 1, 1, 1040), 0)], [((2, 3, 4, 5), 1)]),
}


def get_shapes(rule, strided):
    if rule == ["*"]:
        return STRIDED if strided else WHOLE
    if rule[0] != "...b":
        return EXACT[len(rule)][strided]
    return STRIDED_MATRICES if strided else MATRICES


def compare(package, shapes, strided, steps=1, parts=(), **hypers):
    """Steps on both, which must leave the same; returns what the device left, and whether
    anything changed.
    """
    runs = []
    for on_device in (False, True):
        tensors = Tensors(package, shapes, strided, parts)
        before = [array.copy() for array in tensors.results()]
        step = Step(tensors, on_device, hypers)
        for _ in range(steps):
            step.run()
        runs.append([*tensors.results(), step.results, step.statistics])
    for own, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(bits(own), bits(other))
    pairs = zip(runs[0], before, strict=False)
    return tensors, any((bits(x) != bits(y)).any() for x, y in pairs)


@pytest.mark.sample(one_of=6)
@pytest.mark.parametrize(("definition", "storage"), CASES)
def test_same_bits(definition, storage, tmp_path):
    package = Package(ZOO / f"{definition}.mlir", storage, tmp_path)
    check(package)


def check(package):
    made = {variant["rule"] for variant in package.manifest["variants"]}
    for rule in package.manifest["rules"]:
        if rule["name"] in made:
            package.choose_rule(rule["name"])
            if package.variant["space"] == "elements":  # test_ptx.py
                continue
            for strided in (False, True):
                shapes = get_shapes(rule["dims"], strided)
                if any("products" in entry for entry in package.variant["schedule"]):
                    shapes = STRIDED_PRODUCTS if strided else PRODUCTS
                _, changed = compare(package, shapes, strided)
                assert changed


@pytest.mark.skipif(not FULL, reason="STEPC_PTX_FULL is not 1")
@pytest.mark.parametrize("definition", ["adafactor", "came", "lamb", "nadam"])
def test_random_shapes(definition, tmp_path):
    """Extents from 0 to 300, of any rank that the rule takes."""
    random = np.random.default_rng(7)
    package = Package(ZOO / f"{definition}.mlir", "f32", tmp_path)
    for rule in sorted({variant["rule"] for variant in package.manifest["variants"]}):
        package.choose_rule(rule)
        (dims,) = [r["dims"] for r in package.manifest["rules"] if r["name"] == rule]
        most = 4 if "...b" in dims or dims == ["*"] else len(dims)
        for strided in (False, True):
            shapes = []
            for _ in range(4):
                rank = random.integers(max(1, len(dims) - ("...b" in dims)), most + 1)
                shape = [int(random.integers(0, 301 if k > rank - 3 else 4)) for k in range(rank)]
                if strided and not np.prod(shape):
                    shape = [3] * rank
                shapes.append((shape, int(random.integers(0, 5))))
            compare(package, shapes, strided)


@pytest.mark.parametrize(
    ("definition", "fragments"),
    [("adamw", ["clip_by_norm"]), ("sgd", ["grad_scaler", "clip_by_inf_norm"])],
)
def test_statistics(definition, fragments, tmp_path):
    """Sums and maxima over tensors, and rounds that use them."""
    files = [f"--fragment={ZOO / 'fragments' / f'{name}.mlir'}" for name in fragments]
    package = Package(ZOO / f"{definition}.mlir", "f32", tmp_path, *files)
    assert package.manifest["statistics"]
    check(package)


def test_traversals_that_are_left_out(tmp_path):
    """A kernel looks itself whether its slot says so."""
    package = Package(ZOO / "torch_adafactor.mlir", "f32", tmp_path)
    package.choose_rule("matrix")
    slots = [e["unless_slot"] for e in package.variant["schedule"] if "unless_slot" in e]
    assert len(slots) == 1
    for least, expected in ((1e-30, True), (1e30, False)):
        tensors, _ = compare(package, [((5, 7), 0), ((9, 4), 0)], False, eps1=least)
        assert [bool(own[slots[0]]) for own in tensors.slots] == [expected, expected]


def test_sums_of_several_tensors(tmp_path):
    """Those of the terms of reproducible sums, and statistics of them."""
    clip = f"--fragment={ZOO / 'fragments' / 'clip_by_norm.mlir'}"
    check(Package(ZOO / "adamw.mlir", "f32", tmp_path, clip, "--reproducible"))


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize(
    ("definition", "storage"),
    [("lamb", "bf16 and f32"), ("lamb", "f64")],
)
def test_rows_that_are_staged_in_parts(definition, storage, tmp_path):
    """More sums along rows than a row of a strip has room for in shared memory."""
    package = Package(ZOO / f"{definition}.mlir", storage, tmp_path, "--reproducible")
    assert ".shared .align 16 .b8 waiting_" in package.ptx
    check(package)


def test_lanes_wait_for_the_rest_of_their_leaf(tmp_path):
    """A lane that begins anew in each part of a leaf has other bits."""
    package = Package(ZOO / "lamb.mlir", "f32", tmp_path, "--reproducible")
    right, shapes = package.ptx, [((1000,), 0)] * 4
    compare(package, shapes, strided=False)
    # What is staged is f32: only lanes are read as f64.
    package.ptx, found = re.subn(r"ld\.shared\.b64(\s+%rd\d+), \S+;", r"mov.b64\1, 0;", right)
    assert found
    with pytest.raises(AssertionError):
        compare(package, shapes, strided=False)


# Ranges within a row, from the middle of one to that of another, of whole blocks of rows and
# of several items; and one of nothing.
RANGES = [((67, 40), (530, 2600)), ((3, 66, 5), (7, 671)), ((2, 4128), (1030, 5200)),
          ((3, 2, 20), (21, 39)), ((130, 3), (0, 390)), ((9, 4), (12, 12))]  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "storage", "ranges", "flags"),
    [
        ("came", "f32", RANGES, ()),
        ("adafactor", "bf16", RANGES, ()),
        ("adafactor", "f32", RANGES[1:4:2], ("--reproducible",)),
    ],
)
def test_flat_ranges(definition, storage, ranges, flags, tmp_path):
    """What one rank does with its part; what crosses stays as it is."""
    variant = f"--variant={STORAGES[storage]},layout.flat=dp"
    package = Package(ZOO / f"{definition}.mlir", storage, tmp_path, variant, *flags)
    rule = next(r["name"] for r in package.manifest["rules"] if "...b" in r["dims"])
    sharded = [v for v in package.manifest["variants"] if v["rule"] == rule and v["layout"]]
    package.choose(sharded)
    shapes = [(shape, number % 3) for number, (shape, _) in enumerate(ranges)]
    _, changed = compare(package, shapes, False, parts=[part for _, part in ranges])
    assert changed


@pytest.mark.parametrize("flags", [[0, 0], [0, 3]])
def test_rounds_of_groups_that_take_no_part(flags, tmp_path):
    """The device leaves out their functions, and they say not to skip."""
    package = Package(ZOO / "dadapt_sgd.mlir", "f32", tmp_path)
    step = Step(Tensors(package, [((5,), 0)], False), True, {})
    step.statistics[:] = 2.0
    before = [array.copy() for array in (step.results, step.updated)]
    arrays = [step.hypers, step.options, step.statistics, step.scalars, step.results, step.updated]
    skip, own = words(-1), words(*flags)
    entry = words(*(array.ctypes.data for array in (*arrays, skip, own)), 2)
    memory = [array for array in arrays if array is not step.scalars]
    (call,) = package.manifest["rounds"][0]["calls"]
    step.launch(call["function"], [entry.ctypes.data, 0, 1], [*memory, entry, skip, own])
    assert skip[0] == 0
    pairs = zip(before, (step.results, step.updated), strict=True)
    assert any((bits(a) != bits(b)).any() for a, b in pairs) == any(flags)


def test_carried_statistics(tmp_path):
    """A traversal that a kernel leaves out in the second step, but not in the first."""
    package = Package(ZOO / "adafactor.mlir", "f32", tmp_path, "--exclusive-writes")
    package.choose_rule("any")
    assert package.variant["carried"]
    assert any("unless_slot" in entry for entry in package.variant["schedule"])
    compare(package, [((1500,), 0), ((7,), 0)], strided=False, steps=2)


def test_another_order_has_other_bits(tmp_path):
    package = Package(ZOO / "lamb.mlir", "f32", tmp_path)
    right = package.ptx
    # Not every sum changes with the order.
    shapes = [((1000,), 0)] * 8
    compare(package, shapes, strided=False)
    # Lanes folded in another order.
    package.ptx = re.sub(
        r"(shfl\.sync\.bfly\.b32.*), (8|1), 31, -1;",
        lambda match: f"{match[1]}, {9 - int(match[2])}, 31, -1;",
        right,
    )
    with pytest.raises(AssertionError):
        compare(package, shapes, strided=False)
    # Without barriers threads read what others write.
    package.ptx = re.sub(r"\n\s*bar\.sync\s+0;", "", right)
    with pytest.raises(Fault, match="another one"):
        compare(package, shapes, strided=False)


GRAM = """
step.optimizer @gram {
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n]) {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %gl = step.matmul %gg, %l {symmetric} : [...b, n, n], [...b, n, n]
    %l1 = step.add %gl, %gg : [...b, n, n]
    %u = step.matmul %l1, %g : [...b, n, n], [...b, n, m]
    step.return %u, %l1 : [...b, n, m], [...b, n, n]
  }
}
"""
# Factors of bf16, in pairs, and sums that are flushed where the scale is small.
GRAM_OF_BF16 = """
step.optimizer @gram {
  %scale = step.hyper "scale" = 1.0
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n]) {
    %x = step.mul %g, %scale : [...b, n, m], f64
    %xt = step.transpose %x : [...b, n, m]
    %gg = step.matmul %x, %xt {factors = bf16} : [...b, n, m], [...b, m, n]
    %gl = step.matmul %gg, %l {factors = bf16, symmetric} : [...b, n, n], [...b, n, n]
    %l1 = step.add %gl, %gg : [...b, n, n]
    %u = step.matmul %l1, %x {factors = bf16} : [...b, n, n], [...b, n, m]
    step.return %u, %l1 : [...b, n, m], [...b, n, n]
  }
}
"""
# One, two and three leaves; matrices side by side; more elements than threads.
LEAVES = [((2, 600), 0), ((2, 3, 3, 7), 1), ((1, 1030), 0), ((0, 3), 0), ((18, 5), 1)]


def make_gram(folder, storage, text=GRAM):
    path = folder / "gram.mlir"
    path.write_text(text)
    return Package(path, storage, folder)


def test_products(tmp_path):
    """Of matrices with more columns and with more rows, whatever a check leaves out of the zoo."""
    check(Package(ZOO / "muon.mlir", "bf16 and f32", tmp_path))


@pytest.mark.parametrize("storage", ["f32", "bf16 and f32", "f64"])
def test_leaves_of_products(storage, tmp_path):
    package = make_gram(tmp_path, storage)
    for strided in (False, True):
        shapes = [shape for shape in LEAVES if not strided or 0 not in shape[0]]
        _, changed = compare(package, shapes, strided)
        assert changed


@pytest.mark.parametrize("storage", ["bf16 and f32", "f64"])
def test_products_of_bf16(storage, tmp_path):
    package = make_gram(tmp_path, storage, GRAM_OF_BF16)
    for scale in (1.0, 2.0**-60):
        _, changed = compare(package, LEAVES, strided=False, scale=scale)
        assert changed


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_another_product_has_other_bits(kind, tmp_path):
    package = make_gram(tmp_path, kind)
    right, shapes = package.ptx, [((2, 600), 0)]
    compare(package, shapes, strided=False)
    # Rounded twice.
    package.ptx, found = re.subn(
        r"fma(\.rn\.\w+)\s+(\S+), (\S+), (\S+), (\S+);",
        r"mul\1\t%rd999, \3, \4;\nadd\1\t\2, %rd999, \5;",
        right,
    )
    assert found
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        compare(package, shapes, strided=False)
    # Threads read what others of the block have not made yet.
    package.ptx = re.sub(r"\n\s*bar\.sync\s+0;", "", right)
    with pytest.raises(Fault, match="another one"):
        compare(package, shapes, strided=False)


IDENTITIES = """
step.optimizer @identities {
  %half = step.constant 0.5
  step.rule @any(%p: param[...b, n, m], %g: grad[...b, n, m], %l: state "l"[...b, n, n]) {
    %one = step.identity : [...b, n, n]
    %damp = step.mul %one, %half : [...b, n, n], f64
    %l1 = step.add %l, %damp : [...b, n, n]
    %row = step.index : [...b, n, 1]
    %column = step.index : [...b, 1, m]
    %below = step.compare gt, %row, %column : [...b, n, 1], [...b, 1, m]
    %turned = step.matmul %one, %g : [...b, n, n], [...b, n, m]
    %u = step.select %below, %turned, %row : mask[...b, n, m], [...b, n, m], [...b, n, 1]
    step.return %u, %l1 : [...b, n, m], [...b, n, n]
  }
}
"""


@pytest.mark.parametrize("storage", ["f32", "bf16 and f32", "f64"])
def test_identities(storage, tmp_path):
    """More rows than threads of a block, and matrices side by side."""
    package = make_gram(tmp_path, storage, IDENTITIES)
    shapes = [((2, 3, 3, 7), 1), ((19, 5), 0), ((300, 2), 0), ((0, 3), 0)]
    _, changed = compare(package, shapes, strided=False)
    assert changed
