# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products on a device, at the ends of tiles, leaves and vectors: the bits of the processor's."""

from pathlib import Path

import pytest
from device_rules import make_rule_models, make_rule_package, step_both

# Tiles of 128 and of 64, leaves of 512, eight numbers at a time, vectors of 4 and 2: one less,
# one more, and rows that miss 16 bytes.
SHAPES = [((1, 1), 0, False), ((1, 31), 0, False), ((33, 1), 1, False), ((31, 33), 0, False),
          ((4, 511), 0, False), ((513, 8), 0, False), ((3, 1025), 1, False), ((129, 36), 0, False),
          ((0, 7), 0, False)]  # fmt: skip
# In f32, factors of bf16, and f64; with the half of a symmetric result.
CASES = {
    "muon": ["param=f32"],
    "gram_muon": ["param=f32"],
    "moonlight_muon": ["param=bf16,grad=bf16,state=f32"],
}


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name", CASES)
def test_bits(name, double, tmp_path):
    package = make_rule_package(name, tmp_path, storages=CASES[name])
    models = make_rule_models(package, double, specs=SHAPES, storages=CASES[name])
    for seed in range(2):
        step_both(models, seed)
    for one, other in zip(*(model.results() for model in models), strict=True):
        assert one.tobytes() == other.tobytes()
    assert double.fault() == ""


def test_a_finish_of_one_product(double, tmp_path):
    """It is spread, too: all blocks have memory of their own, for sums over several leaves."""
    definition = Path(__file__).parent / "one_product.mlir"
    package = make_rule_package(definition, tmp_path, storages=["param=f32"])
    stages = [entry.get("stages") for variant in package.manifest["variants"]
              for entry in variant["schedule"] if entry.get("products")]  # fmt: skip
    assert stages == [["spread"]]
    models = make_rule_models(
        package,
        double,
        specs=[((513, 40), 0, False), ((1100, 3), 0, False)],
        storages=["param=f32"],
    )
    step_both(models, 0)
    for one, other in zip(*(model.results() for model in models), strict=True):
        assert one.tobytes() == other.tobytes()
    assert double.fault() == ""
