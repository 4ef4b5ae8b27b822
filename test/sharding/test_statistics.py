# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of what is a part over some of a tensor's sharded dims and the same along the
axes of the others: each value is counted once, whatever the layout."""

import itertools

import numpy as np
import pytest
from definitions import Definition
from layouts import ShardedPackages, run
from placement import Dims, Flat
from ranks import Sharded
from stepc._mesh import Mesh
from steps import Case, Group, Packages, Tensor, differences, interpret

# Reductions of reductions to depth three, and a contribution of each that is a scalar:
# parts over b, n and m, over two of them, over one, and over none.
DEFINITION = """
step.optimizer @nested {
  %all = step.statistic "all" KIND over model
  %rest = step.statistic "rest" KIND over group
  %last = step.statistic "last" KIND over model
  %whole = step.statistic "whole" KIND over model
  %total = step.scalars over group {
    step.report "rest", %rest
    step.yield %rest : f64
  }
  %both = step.scalars over model {
    step.report "all", %all
    step.report "last", %last
    step.report "whole", %whole
    %one = step.add %all, %last : f64
    %two = step.add %one, %whole : f64
    step.yield %two : f64
  }
  step.rule @block(%p: param[...b, n, m], %g: grad[...b, n, m]) {
    %a = step.sum %g : [...b, n, m]
    step.contribute %all, %a
    %planes = step.amax %g over [FIRST] : [...b, n, m]
    %b = step.sum %planes : [PLANES]
    step.contribute %rest, %b
    %rows = step.amax %planes over [SECOND] : [PLANES]
    %c = step.mean %rows : [ROWS]
    step.contribute %last, %c
    %d = step.amax %rows : [ROWS]
    %e = step.add %d, %d : f64
    step.contribute %whole, %e
    %f = step.add %total, %both : f64
    %u = step.mul %g, %f : [...b, n, m], f64
    %p1 = step.sub %p, %u : [...b, n, m]
    step.return %p1 : [...b, n, m]
  }
}
"""


def definition(kind, first, second):
    planes = ["1" if dim == first else dim for dim in ("...b", "n", "m")]
    rows = ["1" if dim == second else dim for dim in planes]
    text = DEFINITION.replace("KIND", kind).replace("FIRST", first).replace("SECOND", second)
    return text.replace("PLANES", ", ".join(planes)).replace("ROWS", ", ".join(rows))


def placements():
    """Each axis on a dim of its own, one on none, two on one, and flat ranges."""
    axes = ("a", "b", "c")
    for dims in [(0, 1, 2), (2, 0, 1), (1, 2, None), (None, 0, 2), (2, 2, 1)]:
        cut = {}
        for axis, dim in zip(axes, dims, strict=True):
            if dim is not None:
                cut[dim] = (*cut.get(dim, ()), axis)
        yield Dims(cut)
    yield Flat(axes, [0, 7, 16, 25, 32, 40, 48, 64, 64])


@pytest.mark.parametrize("flags", [[], ["--reproducible"]], ids=["plain", "reproducible"])
@pytest.mark.parametrize("kind", ["sum", "amax"])
def test_parts_are_counted_once(kind, flags, tmp_path):
    """Sums of few bits are exact: every bit is that of one process."""
    rng = np.random.default_rng(5)
    mesh, cases = Mesh(("a", "b", "c"), (2, 2, 2)), []
    for number, (first, second) in enumerate(itertools.permutations("nm")):
        path = tmp_path / f"nested{number}.mlir"
        path.write_text(definition(kind, first, second))
        for placement in placements():
            shape = (4, 4, 4)
            arrays = {"param": rng.integers(-8, 8, shape).astype("f4")}
            arrays["grad"] = (rng.integers(-8, 8, shape) / 16).astype("f4")
            tensor = Tensor(shape, ("f32",) * 3, arrays)
            case = Case(Definition(path, flags=flags), [Group()], [tensor], steps=1, threads=1)
            cases.append(Sharded(case, mesh, [placement]))
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case, expected in zip(cases, interpret([c.case for c in cases]), strict=True):
        assert not isinstance(expected, str), expected
        gathered, plain, _ = run(case, packages)
        assert differences(plain, expected) == {}, case.describe()
        assert differences(gathered, expected) == {}, case.describe()
