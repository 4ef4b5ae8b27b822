"""Writes the table of the zoo's elementwise optimizers into docs/measurements.md, from a run's
bench.json: `run.py --optimizers zoo --modes default --shapes gpt2,tiny`, then this.

The limit of an optimizer is the in-place stream of the bytes that it must move: twice those of
the parameter and of states of its dims, once those of the gradient. The stream that is run
beside everybody has two states; for optimizers of one there is a stream of one, in the
same rounds.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import os
import sys
from pathlib import Path

import report
import torch
from optimizers import ENTRIES, FAMILIES, ZOO, own_entry
from summary import paired

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "measurements.md"
BEGIN, END = "<!-- begin: tools/bench/zoo_table.py -->", "<!-- end -->"
SHAPES = {"gpt2": "GPT-2", "tiny": "10 000 x 64"}
SMALL = {"tiny"}  # whose time goes to calls, and not to bytes
LEAST_SHARE = 0.9
COLUMNS = ("ms", "of the stream", "the kernel alone", "the best peer, ms", "times faster")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


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
        if key == (ZOO[name], shape, dtype, "default"):
            return case
    return None


def share_of_stream(case, name):
    """The time of the stream of the optimizer's own bytes, divided by ours; or None where a
    stream of one state is missing."""
    if "stream-one-state" in FAMILIES[ZOO[name]].limits:
        return paired(case, "stream-one-state", own_entry(name))
    return 1 / case["summary"][own_entry(name)]["ratio"]


def kernel_share(case, name):
    """The time of that stream divided by that of our kernel alone, called below Python on the
    tensors of the step, or None where that was not measured."""
    above = case["summary"][own_entry(name)].get("above_kernel")
    share = share_of_stream(case, name)
    if above is None or share is None:
        return None
    median = case["summary"][own_entry(name)]["median"]
    return share * median / (median - above)


def best_peer(case, name):
    """The fastest of the peers that were measured, or None."""
    medians = {peer: case["summary"].get(peer) for peer in FAMILIES[ZOO[name]].peers}
    found = {peer: figures["median"] for peer, figures in medians.items() if figures}
    return min(found, key=found.get, default=None)


def percent(share):
    return "-" if share is None else f"{share:.0%}"


def is_noisy(case):
    return case.get("stream_spread", 1.0) > report.NOISY


def mark(case, share):
    """A share; with a star where the stream beside it moved too much."""
    return percent(share) + ("*" if share is not None and is_noisy(case) else "")


def cells(case, name):
    """Ours in ms, its share of the limit and that of the kernel alone, the best peer in ms, and
    how many times as long as ours that is, the median over the rounds."""
    if case is None or own_entry(name) not in case["summary"]:
        return ["-"] * len(COLUMNS)
    best = best_peer(case, name)
    own = [report.milliseconds(case["summary"][own_entry(name)]["median"])]
    own += [mark(case, share_of_stream(case, name)), mark(case, kernel_share(case, name))]
    if best is None:
        return [*own, "-", "-"]
    median = report.milliseconds(case["summary"][best]["median"])
    return [
        *own,
        f"{median} ({ENTRIES[best].label})",
        report.times(paired(case, best, own_entry(name))),
    ]


def measured(results):
    """Every optimizer's name and case, with the shape's and the type's names."""
    for name in ZOO:
        for shape in SHAPES:
            for dtype in DTYPES:
                case = find_case(results, name, shape, dtype)
                if case is not None and own_entry(name) in case["summary"]:
                    yield name, shape, dtype, case


def verdict(results):
    """What of the two goals is not reached: 90 % of the stream, and ahead of all peers. Of
    small tensors, whose time goes to calls, what the kernels alone reach."""
    slow, behind, alone = [], [], {}
    for name, shape, dtype, case in measured(results):
        share, best = share_of_stream(case, name), best_peer(case, name)
        what = f"`{name}` {dtype} on {SHAPES[shape]}"
        if shape in SMALL:
            alone.setdefault((shape, dtype), []).append(kernel_share(case, name))
        elif share is not None and share < LEAST_SHARE:
            slow.append(f"{what} ({share:.1%})")
        if best is not None and paired(case, best, own_entry(name)) <= 1:
            behind.append(what)
    lines = [
        f"Below {LEAST_SHARE:.0%} of the stream, of large tensors: {', '.join(slow) or 'none'}. "
        f"Not ahead of the best peer: {', '.join(behind) or 'none'}."
    ]
    for (shape, dtype), shares in alone.items():
        found = [share for share in shares if share is not None]
        if found:
            least, most = percent(min(found)), percent(max(found))
            lines.append(f"The kernels alone on {SHAPES[shape]}, {dtype}: {least} to {most}.")
    return lines


def table(results):
    """Lines of Markdown, a row for each optimizer and dtype that was measured."""
    heads = [f"{label}: {what}" for label in SHAPES.values() for what in COLUMNS]
    lines = [f"| | | bytes | {' | '.join(heads)} |", "|" + "---|" * (len(heads) + 3)]
    for name in ZOO:
        for dtype in DTYPES:
            own = [find_case(results, name, shape, dtype) for shape in SHAPES]
            if any(own):
                row = [cell for case in own for cell in cells(case, name)]
                head = [f"`{name}`", dtype, str(moved_bytes(name, dtype))]
                lines.append(f"| {' | '.join(head + row)} |")
    machine = results["machine"]
    when = f"Measured on {results['started'][:10]}, {machine['cpu']}, {machine['cores']} cores"
    when += f"; medians of {results['settings']['rounds']} rounds."
    noisy = f"With *: the stream itself moved by more than {report.NOISY - 1:.0%}."
    return [*lines, "", when, noisy, *verdict(results)]


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
