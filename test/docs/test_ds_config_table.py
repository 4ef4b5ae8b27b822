# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of keys in docs/deepspeed.md are those that from_config follows, and the page's lists
of classes and schedules name what is there."""

import re
import sys
from pathlib import Path

import stepc.torch
from stepc.torch import schedules
from stepc.torch.deepspeed import classes
from stepc.torch.deepspeed.keys import KEYS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))

import ds_config_table  # noqa: E402

PAGE = (ROOT / "docs" / "deepspeed.md").read_text()


def test_the_page_is_fresh():
    assert ds_config_table.page() == PAGE


def test_it_has_every_key_once():
    rows = re.findall(r"^\| (?:`([a-z_.0-9]+)`)? ?\| (`.*?`.*?) \| .* \|$", PAGE, re.M)
    named = [
        f"{block}.{name}".lstrip(".")
        for block, cell in rows
        for name in re.findall(r"`(\w+)` \(", cell)
    ]
    assert sorted(named) == sorted(KEYS)


def test_it_names_every_optimizer():
    table = PAGE.split("## Optimizers")[1].split("## Schedules")[0].lower()
    assert [name for name in (*classes._OWN, *classes._ABSENT) if f"`{name}`" not in table] == []
    for path in re.findall(r"`stepc\.torch\.([\w.]+)`", PAGE):
        own = stepc.torch
        for part in path.split("."):
            own = getattr(own, part)


def test_the_page_of_schedules_names_every_one():
    page = (ROOT / "docs" / "schedules.md").read_text()
    assert [name for name in schedules.__all__ if f"`{name}`" not in page] == []
