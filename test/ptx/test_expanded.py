# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""step.exp, step.log, step.pow, step.floor and step.round of tensors on a device: the bits of the
processor's kernels, by correctly rounded operations alone."""

import re

import pytest
from packages import Package
from test_ptx import compare

DEFINITION = """
step.optimizer @functions {
  %decay = step.hyper "decay" = 0.3
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %t: count) {
    %number = step.to_f64 %t
    %short = step.round %g to bf16 : [*]
    %rate = step.pow %number, %decay
    %e = step.exp %short : [*]
    %l = step.log %m : [*]
    %w = step.pow %m, %decay : [*], f64
    %half = step.round %p to f16 : [*]
    %f = step.floor %p : [*]
    %a = step.add %e, %l : [*]
    %b = step.add %w, %f : [*]
    %c = step.add %b, %half : [*]
    %m1 = step.mul %c, %rate : [*], f64
    step.return %a, %m1
  }
}
"""


@pytest.fixture(params=["f32", "bf16 and f32", "f16 and f32", "f64"])
def package(request, tmp_path):
    path = tmp_path / "functions.mlir"
    path.write_text(DEFINITION)
    return Package(path, request.param, tmp_path)


def test_same_bits(package):
    compare(package, [(1100, 0), (37, 1)], [(0, 0, 1100), (1, 0, 37)], strided=False)
    compare(package, [(35, 0)], [(0, 0, 35)], strided=True)


def test_nothing_is_approximate(package):
    text = package.ptx
    assert re.findall(r"\.approx|\.ftz|\bfma\.|ex2|lg2|__nv_", text) == []
    # The instructions that are looked at are there.
    assert re.search(r"\bmul\.rn\.f64", text) and re.search(r"\bdiv\.rn\.f64", text)
    assert re.search(r"\bcvt\.rmi\.f(16\.f16|32\.f32|64\.f64)", text)
