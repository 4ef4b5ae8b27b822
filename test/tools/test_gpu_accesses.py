# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/gpu/accesses.py: what it reads of machine code, and some of the zoo's kernels."""

import subprocess
import sys
from pathlib import Path

import pytest

GPU = Path(__file__).resolve().parents[2] / "tools" / "gpu"
sys.path.insert(0, str(GPU))

import accesses  # noqa: E402
import registers  # noqa: E402

LISTING = """
.text.a_phase0:
        /*0090*/                   LDG.E.64 R8, desc[UR4][R2.64] ;
        /*00a0*/                   LDG.E.128 R8, desc[UR4][R2.64] ;
        /*00b0*/              @!P0 LDG.E.EF.128 R12, desc[UR4][R4.64] ;
        /*00c0*/                   STG.E.EF.128 desc[UR4][R2.64], R8 ;
.text.a_phase0_strided:
        /*0090*/                   LDG.E R8, desc[UR4][R2.64] ;
        /*00a0*/                   LDS.128 R8, [R2] ;
"""


def test_what_is_wide():
    found = accesses.count_wide(LISTING)
    assert found == {"a_phase0": (2, 1), "a_phase0_strided": (0, 0)}
    assert accesses.check("a", "90", found, {"a_phase0": (2, 1)}) == []
    assert accesses.check("a", "90", found, {"a_phase0": (3, 2), "a_phase1": (1, 0)}) == [
        "a: a_phase0 on sm_90 has 2 loads of 128 bits for 3 tensors",
        "a: a_phase0 on sm_90 has 1 stores of 128 bits for 2 tensors",
        "a: a_phase1 on sm_90 has 0 loads of 128 bits for 1 tensors",
    ]


def test_vectors_are_not_counted():
    """Rows of a matrix are read one by one."""
    operands = [
        {"role": role, "dims": dims}
        for role, dims in (("param", ["n", "m"]), ("grad", ["n", "m"]), ("state", ["n", "1"]))
    ]
    schedule = [{"finish": "f"}, {"kernel": "k", "reads": [0, 1, 2], "writes": [0]}]
    manifest = {"variants": [{"operands": operands, "schedule": schedule}]}
    assert accesses.needed(manifest) == {"k": (2, 1)}


@pytest.mark.skipif(
    not (registers.find_tool("nvdisasm") and registers.find_tool("ptxas")),
    reason="nvdisasm or ptxas is not installed",
)
def test_kernels():
    """Some of the table: all of it takes minutes."""
    names = ["adamw f32,f32,f32", "adamw bf16,bf16,f32", "lamb f32,f32,f32"]
    run = subprocess.run(
        [sys.executable, GPU / "accesses.py", *names], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
