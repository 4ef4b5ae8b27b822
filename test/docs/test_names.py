"""Names of stepc.torch that documents tell are there.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import functools
import re
from pathlib import Path

import pytest
import stepc.torch

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def missing(text):
    """``stepc.torch.X`` and ``stepc.torch.LIBRARY.X`` stand for any."""
    text = text.replace("stepc.torch.LIBRARY", "")
    names = sorted(set(re.findall(r"\bstepc\.torch((?:\.[A-Za-z]\w+)+)", text)))
    found = []
    for name in names:
        try:
            functools.reduce(getattr, name[1:].split("."), stepc.torch)
        except AttributeError:
            found.append(name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_there(page):
    assert missing(page.read_text()) == []


def test_a_wrong_name_is_found():
    assert missing("`stepc.torch.AdamV` and `stepc.torch.hf.Adafactor`") == [".AdamV"]
