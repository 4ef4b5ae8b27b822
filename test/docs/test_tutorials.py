# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tutorials in the tree. test/install has the first where Stepc was installed."""

import os
import re

import pytest
from samples import BREADTH
from tutorial import BLOCK, PAGES, ROOT, follow, setup

# torchrun's own processes import torch one after the other; test_leaving.py has it in each check.
FORKED = f"""
torchrun() {{ python '{ROOT}/test/docs/forked_torchrun.py' "$@"; }}
"""


@pytest.mark.parametrize("page", PAGES)
def test_tutorial(page, tmp_path):
    """With STEPC_BREADTH=1 by torchrun itself."""
    follow(page, tmp_path, setup() + ("" if BREADTH else FORKED), dict(os.environ))


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
