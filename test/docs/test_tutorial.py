"""The tutorial in the tree. test/install has it where Stepc was installed.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import re

from tutorial import BLOCK, ROOT, TUTORIAL, follow, setup


def test_tutorial(tmp_path):
    follow(tmp_path, setup(), dict(os.environ))


def test_every_example_is_a_file():
    """A definition that is shown and not written to a file would not be tried."""
    blocks = BLOCK.findall(TUTORIAL)
    assert all(name for name, kind, _, _ in blocks if kind in ("mlir", "python"))


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", TUTORIAL)
    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
