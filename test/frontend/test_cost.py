# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step of a tensor costs, by which owners are chosen: exact numbers of small definitions,
as the library says them of the interface and of the package."""

import json
import zipfile
from io import BytesIO

import pytest
from stepc import _compiler
from stepc._describe import Query, choose_owners
from stepc.definition import _zoo_text
from stepc.interface import Interface

GAP = """step.optimizer @now_and_then {
  %lr = step.hyper "lr" = 1.0e-3
  %gap = step.hyper "gap" = 4.0
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %l: state "gram"[n, n],
                    %first: fresh("gram"), %t: count) {
    %gt = step.transpose %g : [n, m]
    %due = step.every %gap, %t
    %often = step.or %due, %first : i1
    %both = step.and %due, %first : i1
    %never = step.not %often : i1
    %l1 = step.when %due, %l : [n, n] {
      %gram = step.matmul %g, %gt : [n, m], [m, n]
      step.yield %gram : [n, n]
    }
    %l2 = step.when CONDITION, %l1 : [n, n] {
      %new = step.eigh %l1 : [n, n]
      step.yield %new : [n, n]
    }
    %u = step.matmul %l2, %g : [n, n], [n, m]
    %d = step.mul %u, %lr : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %l2 : [n, m], [n, n]
  }
}
"""


def interface_of(text, name="definition"):
    return Interface.from_text(_compiler.interface(text, name).encode())


def cost_of(interface, shape, **options):
    values = interface.resolve(options, [default for _, default in interface.hypers])
    [found] = interface.describe([Query(interface.in_order(values), shape)])
    return found


@pytest.mark.parametrize(
    "condition, share",
    [("%first", 0), ("%both", 0), ("%due", 0.25), ("%often", 0.25), ("%never", 1)],
)
def test_what_is_done_in_some_steps_counts_with_its_share(condition, share):
    """By the hyper-parameter's default; what is done where a state is created counts nothing."""
    n, m = 8, 12
    found = cost_of(interface_of(GAP.replace("CONDITION", condition)), (n, m))
    # A symmetric product, eigenvectors, a product.
    gram, basis, product = n * n * m / 4, 9 * n**3 * share, 2 * n * n * m
    assert found.flops == pytest.approx(gram + basis + product, rel=1e-15)
    # Param read and written, gradient, state read and written; operands and results of each.
    moved = 12 * n * m + 8 * n * n + (4 * n * m * 2 + 4 * n * n) / 4
    moved += 8 * n * n * share + 8 * n * m + 4 * n * n
    assert found.cost == pytest.approx(found.flops + 10 * moved, rel=1e-15)


@pytest.mark.parametrize(
    "name, shape, flops",
    [
        ("muon", (64, 4096), 15 * 64 * 64 * 4096 + 5 * 64**3),
        ("muon", (512, 512), 20 * 512**3),
        ("soap", (6, 10), 5 * 36 * 10 + 5 * 6 * 100
         + (26 / 3 * (6**3 + 10**3) + 2 * 36 * 10 + 2 * 6 * 100) / 10),
        ("soap", (7,), 0),
        ("galore_adamw", (6, 10), 4 * 6 * 10 * 6 + (36 * 10 + 9 * 6**3) / 200),
        ("adamw", (6, 10), 0),
    ],
)  # fmt: skip
def test_of_the_zoo(name, shape, flops):
    path, text = _zoo_text(name)
    found = cost_of(interface_of(text, path), shape)
    assert found.flops == pytest.approx(flops, rel=1e-14, abs=0)
    assert found.cost > 10 * 12 * found.elements


def test_a_package_says_the_same():
    path, text = _zoo_text("soap")
    data = _compiler.compile_package(text, path, ["--param=f32"])
    with zipfile.ZipFile(BytesIO(data)) as archive:
        manifest = archive.read("manifest.json")
    made, printed = Interface.from_text(manifest), interface_of(text, path)
    rules = json.loads(manifest)["rules"]
    assert [rule["cost"] for rule in rules] == [
        rule["cost"] for rule in json.loads(printed.text)["rules"]
    ]
    for shape in ((6, 10), (33,), (20000, 4)):
        ours, theirs = cost_of(made, shape), cost_of(printed, shape)
        assert (ours.flops, ours.cost) == (theirs.flops, theirs.cost)


def test_a_range_has_its_share():
    path, text = _zoo_text("adamw")
    interface = interface_of(text, path)
    values = interface.in_order(interface.resolve({}, [d for _, d in interface.hypers]))
    query = Query(values, (6, 10))
    whole, part = interface.describe([query, query._replace(range=(5, 20))])
    assert part.cost == whole.cost / 4


def test_the_dearest_first():
    loads = [0.0, 0.0]
    assert choose_owners([1.0, 5.0, 3.0, 3.0], loads) == [0, 0, 1, 1]
    assert loads == [6.0, 6.0]
    assert choose_owners([], loads) == [] and loads == [6.0, 6.0]
    assert choose_owners([0.0, 0.0], loads) == [0, 1]
