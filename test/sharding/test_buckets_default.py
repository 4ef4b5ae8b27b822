# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What crosses at a time where nobody says is the same to the planner, which has no plan to ask,
as to the runtime."""

import re
from pathlib import Path

from stepc import _mesh

HEADER = Path(__file__).resolve().parents[2] / "runtime" / "core" / "Transfers.h"


def test_the_defaults_are_the_runtimes():
    text = HEADER.read_text()
    for name in ("gradients", "parameters"):
        (mib,) = re.findall(rf"int64_t {name} = int64_t\((\d+)\) << 20;", text)
        assert int(mib) * 2**20 == _mesh.BUCKET_BYTES
    assert re.findall(r"int64_t underWay = (\d+);", text) == [str(_mesh.UNDER_WAY)]
