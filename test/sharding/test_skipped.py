# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a skipped step still reports and updates does not depend on the layout, though
ranks need more rounds for some statistics. Found by test/fuzz."""

import numpy as np
import pytest
from definitions import Definition
from layouts import ShardedPackages, run
from placement import Dims, Flat
from ranks import Sharded
from stepc._mesh import Mesh
from steps import Case, Group, Packages, Tensor, differences, interpret

# The sum of maxima is there a round later where rows are cut: its call ran in that round,
# so not in a step that the other one skips.
DEFINITION = """
step.optimizer @skips {
  %lr = step.hyper "lr" = 0.5
  %one = step.constant 1.0
  %steps = step.scalar "steps" = 0.0 over model
  %late = step.scalar "late" = 0.0 over model
  %largest = step.statistic "largest" amax over model
  %sum = step.statistic "sum" sum over group
  step.scalars over model {
    %more = step.add %steps, %one : f64
    step.update %steps, %more always
    %over = step.compare gt, %largest, %lr : f64
    step.skip_if %over
    step.report "largest", %largest
    step.yield
  }
  %total = step.scalars over group {
    step.report "sum", %sum
    step.yield %sum : f64
  }
  step.scalars over model {
    %more = step.add %late, %one : f64
    step.update %late, %more BEHIND
    step.yield
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, m]) {
    %all = step.amax %g : [n, m]
    step.contribute %largest, %all
    %columns = step.amax %g over [n] : [n, m]
    %of_columns = step.sum %columns : [1, m]
    step.contribute %sum, %of_columns
    %u = step.mul %g, %total : [n, m], f64
    %p1 = step.sub %p, %u : [n, m]
    %s1 = step.add %s, %g : [n, m]
    step.return %p1, %s1 : [n, m], [n, m]
  }
}
"""


@pytest.mark.parametrize("always", ["", "always"])
def test_the_rounds_of_a_skipped_step(always, tmp_path):
    path = tmp_path / "skips.mlir"
    path.write_text(DEFINITION.replace("BEHIND", always))
    rng = np.random.default_rng(5)
    arrays = {"param": rng.integers(-8, 8, (6, 4)).astype("f4")}
    # The second step is skipped; sums are exact.
    for step, scale in enumerate([0.0625, 1.0, 0.03125]):
        values = rng.integers(-8, 8, (6, 4))
        values[0, 0] = 8
        arrays[f"grad:{step}" if step else "grad"] = (values * scale).astype("f4")
    mesh = Mesh(("dp",), (3,))
    cases = []
    for placement in (Dims({0: ("dp",)}), Dims({1: ("dp",)}), Flat(("dp",), [0, 5, 11, 24])):
        tensor = Tensor((6, 4), ("f32",) * 3, dict(arrays))
        case = Case(Definition(path), [Group()], [tensor], steps=3, threads=1)
        cases.append(Sharded(case, mesh, [placement]))
    packages = ShardedPackages(Packages(tmp_path))
    packages.prepare(cases)
    for case, expected in zip(cases, interpret([c.case for c in cases]), strict=True):
        assert not isinstance(expected, str), expected
        gathered, plain, _ = run(case, packages)
        assert list(expected["step:skipped"]) == [0, 1, 0]
        assert differences(plain, expected) == {}, case.describe()
        assert differences(gathered, expected) == {}, case.describe()
