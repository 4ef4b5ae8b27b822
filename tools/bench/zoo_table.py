"""Writes the table of torch.optim's optimizers into docs/performance.md, from a run's
bench.json: `run.py --optimizers adam,adamw,... --shapes gpt2,tiny`, then this.

The limit of an optimizer is the in-place stream of the bytes that it must move: twice those of
the parameter and of states of its dims, once those of the gradient. A case's stream moves
AdamW's, so its time is scaled by bytes.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import os
import sys
from pathlib import Path

import report
import torch
from optimizers import ENTRIES, FAMILIES, TORCH
from summary import ADAMW

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- begin: tools/bench/zoo_table.py -->", "<!-- end -->"
NAMES = sorted({**TORCH, "AdamW": None})
SHAPES = {"gpt2": "GPT-2", "tiny": "10 000 x 64"}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def own_entry(name):
    return ADAMW if name == "AdamW" else f"stepc-{name.lower()}"


def moved_bytes(name, dtype):
    """Bytes per element that a step of ours must read and write."""
    param = torch.nn.Parameter(torch.ones(64, dtype=DTYPES[dtype]))
    param.grad = torch.ones_like(param)
    optimizer = ENTRIES[own_entry(name)].make([param])
    optimizer.step()
    states = [t for t in optimizer.state[param].values() if t.shape == param.shape]
    return 3 * param.itemsize + 2 * sum(state.itemsize for state in states)


def find_case(results, name, shape, dtype):
    for case in results["cases"]:
        key = (case["family"], case["shape"], case["dtype"], case["mode"])
        if key == (name.lower(), shape, dtype, "default"):
            return case
    return None


def cells(case, name, dtype):
    """Ours in ms, its share of the limit, torch's best in ms, and how often it is ours."""
    if case is None or own_entry(name) not in case["summary"]:
        return ["-"] * 4
    own = case["summary"][own_entry(name)]
    share = moved_bytes(name, dtype) / moved_bytes("AdamW", dtype) / own["ratio"]
    peers = [p for p in FAMILIES[name.lower()].peers if ENTRIES[p].needs == "torch"]
    found = {p: case["summary"][p]["median"] for p in peers if p in case["summary"]}
    if not found:
        return [report.milliseconds(own["median"]), f"{share:.0%}", "-", "-"]
    best = min(found, key=found.get)
    way = next(w for w in ("for-loop", "foreach", "fused") if best.endswith(w))
    return [
        report.milliseconds(own["median"]),
        f"{share:.0%}",
        f"{report.milliseconds(found[best])} ({way})",
        report.times(found[best] / own["median"]),
    ]


def table(results):
    """Lines of Markdown, a row for each optimizer and dtype that was measured."""
    heads = [f"{label}: {what}" for label in SHAPES.values()
             for what in ("ms", "of the stream", "torch's best, ms", "times faster")]  # fmt: skip
    lines = [f"| | | bytes | {' | '.join(heads)} |", "|" + "---|" * (len(heads) + 3)]
    for name in NAMES:
        for dtype in DTYPES:
            own = [find_case(results, name, shape, dtype) for shape in SHAPES]
            if any(own):
                row = [cell for case in own for cell in cells(case, name, dtype)]
                head = [f"`{name}`", dtype, str(moved_bytes(name, dtype))]
                lines.append(f"| {' | '.join(head + row)} |")
    machine = results["machine"]
    when = f"Measured on {results['started'][:10]}, {machine['cpu']}, {machine['cores']} cores"
    return [*lines, "", f"{when}; medians of {results['settings']['rounds']} rounds."]


def written(document, lines):
    """The document with these lines between the marks."""
    before, rest = document.split(BEGIN)
    after = rest.split(END, 1)[1]
    return "\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="bench.json of a run")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    chosen = parser.parse_args()
    os.environ.setdefault("STEPC_CACHE_DIR", str(chosen.results.resolve().parent / "cache"))
    sys.path.insert(0, str(ROOT / "frontend"))
    results = json.loads(chosen.results.read_text())
    chosen.document.write_text(written(chosen.document.read_text(), table(results)))


if __name__ == "__main__":
    main()
