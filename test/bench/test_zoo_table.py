"""The table of docs/performance.md is made of what a run has measured.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "bench" / "zoo_table.py"


def case(family, medians):
    summary = {n: {"median": m, "ratio": r} for n, (m, r) in medians.items()}
    key = {"family": family, "shape": "gpt2", "dtype": "f32", "mode": "default"}
    return {**key, "summary": summary}


def test_rows(tmp_path):
    """SGD with momentum moves 20 bytes, AdamW 28; the best of torch's ways counts."""
    ways = {"sgd-for-loop": (0.3, 9), "sgd-foreach": (0.2, 7), "sgd-fused": (0.12, 4)}
    results = {
        "started": "2026-11-22T00:00:00Z",
        "machine": {"cpu": "a processor", "cores": 2},
        "settings": {"rounds": 9},
        "cases": [case("sgd", {"stepc-sgd": (0.06, 0.75), **ways}), case("asgd", {})],
    }
    document = tmp_path / "performance.md"
    document.write_text("# A\n<!-- begin: tools/bench/zoo_table.py -->\nold\n<!-- end -->\nlast\n")
    (tmp_path / "bench.json").write_text(json.dumps(results))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "bench.json")]
    for _ in range(2):  # it can be written again
        subprocess.run([*command, "--document", str(document)], check=True)
    lines = document.read_text().splitlines()
    assert lines[:2] == ["# A", "<!-- begin: tools/bench/zoo_table.py -->"] and lines[-1] == "last"
    assert "old" not in lines
    row = next(line for line in lines if line.startswith("| `SGD`"))
    # 20 / 28 of the stream's time is the limit: 0.7143 / 0.75.
    assert row == "| `SGD` | f32 | 20 | 60.0 | 95% | 120.0 (fused) | 2.00 | - | - | - | - |"
    assert next(line for line in lines if line.startswith("| `ASGD`")).endswith(
        "| - " * 7 + "| - |"
    )
    assert "Measured on 2026-11-22, a processor, 2 cores; medians of 9 rounds." in lines


def test_the_document_has_its_place():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text.count("<!-- begin: tools/bench/zoo_table.py -->\n") == 1
