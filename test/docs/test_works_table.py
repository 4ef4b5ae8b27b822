# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of layouts in docs/distributed.md is what works.py says, and each of its rows has
a case that asserts it. (That the page is fresh, tools/docs/check_docs.sh says too.)"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "distributed"), str(ROOT / "tools" / "docs")]

import layouts_table  # noqa: E402
import works  # noqa: E402
from launch import all_cases  # noqa: E402
from works import FILES, OPTIMIZERS, ROWS  # noqa: E402

# Of the issue that the table is for: plugins of ColossalAI, and what of ours serves them.
PLUGINS = {"TorchDDP", "LowLevelZero", "Gemini", "HybridParallel", "MoeHybrid"}
LAYOUTS = {"ddp", "zero1", "zero2", "fsdp2", "hsdp", "tp_of_dim_0", "tp_of_dim_1",
           "tp_with_zero1", "tp_with_zero2", "pp", "ep", "deepspeed_flat", "hybrid"}  # fmt: skip


def test_the_page_is_fresh():
    assert layouts_table.page() == layouts_table.PAGE.read_text()
    assert layouts_table.colossal_page() == layouts_table.COLOSSAL.read_text()


def test_each_row_has_a_case_and_each_case_a_row():
    for file, ranks in FILES.items():
        assert all_cases(file) == [key for key, row in ROWS.items() if row.ranks == ranks]
    assert {row.ranks for row in ROWS.values()} == set(FILES.values())


def test_no_row_is_missing():
    assert set(ROWS) >= LAYOUTS
    named = " ".join(row.colossal for row in ROWS.values())
    assert [plugin for plugin in PLUGINS if plugin not in named] == []
    for row in ROWS.values():
        assert set(row.refused) <= set(OPTIMIZERS)
        assert len(row.cells()) == len(OPTIMIZERS) + 2 and all(row.cells())


def test_plugins_are_what_rows_say():
    """A cell is "refused", in part or at all, where a row of the plugin is."""
    assert set(works.PLUGINS) == PLUGINS
    for plugin in PLUGINS:
        for _, optimizer in works.COLOSSAL.values():
            rows = [row for row in ROWS.values() if row.colossal.startswith(plugin)]
            refused = any(optimizer in row.refused for row in rows)
            assert ("refused" in works.of_plugin(plugin, optimizer)) == refused
