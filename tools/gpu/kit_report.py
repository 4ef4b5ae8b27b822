#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the table and the plot of docs/gpu.md of a results.json of the kit.

    .venv/bin/python tools/gpu/kit_report.py results.json

Replaces what is between the page's two markers, and writes docs/images/gpu.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, PLOT = ROOT / "docs" / "gpu.md", ROOT / "docs" / "images" / "gpu.png"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--plot", type=Path, default=PLOT)
    return parser.parse_args()


def measured(results: dict) -> list[dict]:
    return [c for c in results.get("benchmark", []) if "stepc" in c.get("contestants", {})]


def share(case: dict) -> float:
    """Of the copy ceiling, by the least bytes of the optimizer."""
    return case["least_bytes"] / case["contestants"]["stepc"]["seconds"] / case["ceiling"]


def others(case: dict) -> dict[str, float]:
    """Times of ours, of each contestant."""
    ours = case["contestants"]["stepc"]["seconds"]
    named = case["contestants"].items()
    return {label: found["seconds"] / ours for label, found in named if label != "stepc"}


def table(results: dict) -> list[str]:
    lines = [
        "| optimizer | model | storage | ms | of a copy | host, µs | others, times ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in measured(results):
        ours = case["contestants"]["stepc"]
        beside = ", ".join(f"{label} {ratio:.2f}" for label, ratio in others(case).items())
        lines.append(
            f"| {case['optimizer']} | {case['model']} | {case['storage']} "
            f"| {ours['seconds'] * 1e3:.3f} | {share(case):.1%} "
            f"| {ours['host_seconds'] * 1e6:.0f} | {beside or '-'} |"
        )
    return lines


def summary(results: dict) -> list[str]:
    """What it ran on, and what was wrong."""
    machine = results["machine"]
    words = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "device")
    lines = [f"Measured on {machine['device']} ({words}).", ""]
    parts = (found for part, found in results.items() if part not in ("machine", "benchmark"))
    checks = [check for found in parts for check in found]
    wrong = [check for check in checks if check["wrong"]]
    lines.append(f"Correctness: {len(checks)} checks, {len(wrong)} of them wrong.")
    for check in wrong:
        what = {key: value for key, value in check.items() if key != "wrong"}
        lines.append(f"- {what}: {check['wrong']}")
    left = [case for case in results.get("benchmark", []) if "left_out" in case]
    if left:
        named = "; ".join(f"{c['optimizer']}, {c['model']}, {c['storage']}" for c in left)
        lines += ["", f"Left out, as they do not fit in memory: {named}."]
    return [*lines, ""]


def plot(results: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = measured(results)
    labels = [f"{c['optimizer']}, {c['model']}, {c['storage']}" for c in found]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.22 * len(found)), layout="constrained")
    axes.barh(range(len(found)), [share(case) for case in found], color="#3465a4")
    axes.axvline(1.0, color="#555753", linewidth=1)
    axes.set_yticks(range(len(found)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("share of the copy ceiling", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    chosen = read_arguments()
    results = json.loads(chosen.results.read_text())
    text = chosen.page.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    body = summary(results)
    if measured(results):
        plot(results, chosen.plot)
        body += [*table(results), "", "![Share of the copy ceiling](images/gpu.png)"]
    chosen.page.write_text(f"{head}{BEGIN}\n" + "\n".join(body) + f"\n{END}{tail}")


if __name__ == "__main__":
    main()
