# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tutorials in the tree. test/install has the first where Stepc was installed."""

import os
import re

import pytest
from tutorial import BLOCK, PAGES, ROOT, follow, setup


@pytest.mark.parametrize("page", PAGES)
def test_tutorial(page, tmp_path):
    follow(page, tmp_path, setup(), dict(os.environ))


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_a_file(page):
    """A program that is shown and not written to a file would not be tried."""
    blocks = BLOCK.findall(PAGES[page])
    assert all(name for name, kind, _, _ in blocks if kind in ("mlir", "python", "cpp"))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)\)", PAGES[page])
    assert links
    assert not [link for link in links if not (ROOT / "docs" / "tutorials" / link).exists()]
