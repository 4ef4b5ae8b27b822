"""The table of docs/measurements.md is made of what a run has measured.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "bench" / "zoo_table.py"


def case(family, medians, above=None):
    """A case of three rounds in which everybody took as long in each; ``above``: seconds of
    it above the kernel."""
    summary = {n: {"median": m, "ratio": r} for n, (m, r) in medians.items()}
    for name, seconds in (above or {}).items():
        summary[name]["above_kernel"] = seconds
    return {
        "family": family,
        "shape": "gpt2",
        "dtype": "f32",
        "mode": "default",
        "summary": summary,
        "rounds": {name: [0, 1, 2] for name in medians},
        "seconds": {name: [m] * 3 for name, (m, _) in medians.items()},
    }


def rows_of(tmp_path, cases):
    """The rows of the table by optimizer, and all lines of the document."""
    results = {
        "started": "2026-11-22T00:00:00Z",
        "machine": {"cpu": "a processor", "cores": 2},
        "settings": {"rounds": 3},
        "cases": cases,
    }
    document = tmp_path / "measurements.md"
    document.write_text("# A\n<!-- begin: tools/bench/zoo_table.py -->\nold\n<!-- end -->\nlast\n")
    (tmp_path / "bench.json").write_text(json.dumps(results))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "bench.json")]
    for _ in range(2):  # it can be written again
        subprocess.run([*command, "--document", str(document)], check=True)
    lines = document.read_text().splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}, lines


def test_rows(tmp_path):
    """The limit is the stream of the optimizer's own states; the best of the peers counts."""
    ways = {"sgd-for-loop": (0.3, 9), "sgd-foreach": (0.2, 7), "sgd-fused": (0.12, 4)}
    own_stream = {"stream-one-state": (0.057, 0.8)}
    hybrid = {"stepc-colossal-hybridadam": (0.08, 1.25), "fused": (0.16, 2), "foreach": (0.5, 6)}
    lion = {**own_stream, "stepc-lion": (0.076, 1), "po-lion-foreach": (0.38, 5)}
    rows, lines = rows_of(
        tmp_path,
        [
            case("sgd", {"stepc-sgd": (0.06, 0.75), **own_stream, **ways}, {"stepc-sgd": 0.003}),
            case("asgd", {}),
            case("peer-adams", hybrid),
            case("lion", lion),
        ],
    )
    assert lines[:2] == ["# A", "<!-- begin: tools/bench/zoo_table.py -->"] and lines[-1] == "last"
    assert "old" not in lines
    rest = "| - | - | - | - | - |"
    assert rows["SGD"] == (
        f"| `SGD` | f32 | 20 | 60.0 | 95% | 100% | 120.0 (torch SGD fused) | 2.00 {rest}"
    )
    assert rows["Lion"] == (
        "| `Lion` | f32 | 20 | 76.0 | 75% | - | 380.0 (pytorch_optimizer Lion foreach) | 5.00 "
        + rest
    )
    assert rows["colossal.HybridAdam"] == (
        "| `colossal.HybridAdam` | f32 | 28 | 80.0 | 80% | - | 160.0 (torch AdamW fused) | 2.00 "
        + rest
    )
    assert rows["deepspeed.FusedAdam"].endswith(f"| 28 | - | - | - | - | - {rest}")
    assert rows["ASGD"].endswith(f"| 20 | - | - | - | - | - {rest}")
    assert "Measured on 2026-11-22, a processor, 2 cores; medians of 3 rounds." in lines


STATES = """
import os, sys
sys.path[:0] = sys.argv[1:3]
import run
os.environ.update(run.environment("default"))
import zoo_table
from optimizers import FAMILIES, ZOO
for name, family in ZOO.items():
    one = "stream-one-state" in FAMILIES[family].limits
    assert zoo_table.moved_bytes(name, "f32") == (20 if one else 28), name
"""


def test_the_streams_move_what_the_optimizers_move():
    folders = [str(SCRIPT.parent), str(ROOT / "frontend")]
    subprocess.run([sys.executable, "-c", STATES, *folders], check=True)


def test_the_document_has_its_place():
    text = (ROOT / "docs" / "measurements.md").read_text()
    assert text.count("<!-- begin: tools/bench/zoo_table.py -->\n") == 1
