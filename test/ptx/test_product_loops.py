# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loop of a product on devices: what its instructions are."""

import re
from collections import Counter

import pytest
from packages import ZOO, Package

SHARED_MOST = 48 << 10  # bytes of a block without asking for more


def get_loops(text):
    """The blocks of instructions that end with a branch back to their begin or another one's."""
    blocks = re.split(r"^\$?L__BB\w+:.*$", text, flags=re.MULTILINE)
    return [re.findall(r"^\s+(?:@!?%p\d+ )?([a-z][\w.]*)\s", block, re.MULTILINE)
            for block in blocks]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return Package(ZOO / "muon.mlir", "f32", tmp_path_factory.mktemp("muon")).ptx


def get_functions(text):
    found = re.findall(r"^\.func (product\$of\S+?)\((.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert found
    return dict(found)


def test_most_are_multiply_adds(text):
    """Of 8 numbers of the contracted dim 512 fused multiply-adds, with 32 reads of 16 bytes of
    shared memory: at least 60 in a hundred of all that the loop has, whichever way it goes."""
    for name, body in get_functions(text).items():
        loops = get_loops(body)
        (main,) = [k for k, loop in enumerate(loops) if Counter(loop)["fma.rn.f32"] >= 512][:1]
        counts = Counter(loops[main])
        share = counts["fma.rn.f32"] / sum(counts.values())
        assert share >= 0.6, (name, share, counts)
        assert counts["ld.shared.v4.b32"] + counts["ld.shared.v4.f32"] == 32, counts


def test_no_local_memory(text):
    assert ".local" not in text


def test_shared_memory(text):
    """All that a kernel could use of products fits a block that asks for none."""
    sizes = re.findall(r"\.shared \.align 16 \.b8 product_\w+\[(\d+)\]", text)
    assert sizes and sum(map(int, sizes)) <= SHARED_MOST


def test_accesses_are_wide(text):
    """Operands come by 16 bytes where they lie so, whichever way."""
    for name, body in get_functions(text).items():
        wide = re.findall(r"ld\.global\.v4\.[bf]32|ld\.global\.v2\.b64", body)
        assert len(wide) >= 2, name
