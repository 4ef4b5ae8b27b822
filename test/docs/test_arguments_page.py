# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/arguments.md is made of original_arguments.py, and names all that is said there.
test/frontend/test_original_arguments.py compares that with the originals."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "docs"))

import arguments_table  # noqa: E402
from arguments_table import PAGE, original_arguments  # noqa: E402


def test_the_page_is_fresh():
    assert arguments_table.page() == PAGE.read_text()


def test_it_names_every_argument_below_its_library():
    text = PAGE.read_text()
    for row in original_arguments.SAID:
        part = text.split(f"\n### {row.origin}, ")[1].split("\n### ")[0]
        for name in (*row.arguments.split(), *row.names.split()):
            assert name == "*" or f"`{name}`" in part, row
        assert row.here.removeprefix("others: ") in part
