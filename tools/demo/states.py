#!/usr/bin/env python3
"""Trains two GPTs with states of several formats, and compares the losses.

One is the demo's. The other has words for tokens, few dims and an output of its own: rows of its
embeddings get gradients that differ by orders of magnitude, as tokens are frequent or rare.
Writes states.png and states.json to the output folder; a run of one model keeps the other's.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import os
import sys
from pathlib import Path

import corpus
import model
import torch
import train
from dynamic_map import DynamicMapAdamW

ROOT = Path(__file__).resolve().parents[2]
WIDE = model.Shape(layers=2, width=64, heads=4, length=64, vocabulary=8192, tied=False)
TITLES = {
    "f32": "float32",
    "bnb": "bitsandbytes AdamW8bit, on this processor",
    "bnb-cuda": "bitsandbytes' codes as its CUDA kernels make them",
    "bnb-never-0": "the same, no second moment being stored as 0",
    "torchao": "torchao AdamW8bit",
}
COLORS = ("#c8c8c8", "#1f6f8b", "#5aa469", "#d98f4e", "#b5495b", "#7d5ba6", "#888888")


def find_ours():
    """What was built in this checkout, where the user has set nothing else."""
    sys.path.insert(0, str(ROOT / "frontend"))
    library = ROOT / "build" / "lib" / "libstepc_runtime.so"
    os.environ.setdefault("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
    os.environ.setdefault("STEPC_RUNTIME_LIBRARY", str(library))


def maker(name):
    """Makes an AdamW whose states have a format; any that is not of others is ``state_dtype``."""

    def make(params):
        common = {"lr": train.LR, "weight_decay": train.WEIGHT_DECAY}
        if name == "bnb":
            import bitsandbytes

            return bitsandbytes.optim.AdamW8bit(params, **common)
        if name in ("bnb-cuda", "bnb-never-0"):
            return DynamicMapAdamW(params, **common, never_0=name == "bnb-never-0")
        if name == "torchao":
            from torchao.optim import AdamW8bit

            return AdamW8bit(params, **common)
        import stepc.torch

        return stepc.torch.AdamW(params, **common, state_dtype=None if name == "f32" else name)

    return make


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--formats",
        nargs="+",
        default=["f32", "q8", "bnb-cuda"],
        help="f32, a state_dtype, bnb, bnb-cuda, bnb-never-0 or torchao",
    )
    parser.add_argument("--models", nargs="+", default=["demo", "wide"], choices=["demo", "wide"])
    parser.add_argument("--steps", type=int, nargs=2, default=[300, 600], help="demo's and wide's")
    parser.add_argument("--rows", type=int, nargs=2, default=[8, 8], help="likewise")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo")
    return parser.parse_args()


def table(outcomes):
    """Held-out losses, how far each is from that of float32, and the highest loss of a batch behind
    the first tenth."""
    lines = [f"{'':52}{'held out':>10}{'to float32':>12}{'highest loss':>14}"]
    base = outcomes.get("f32")
    for name, run in outcomes.items():
        apart = f"{100 * (run['held_out'] / base['held_out'] - 1):+.2f} %" if base else ""
        lines.append(
            f"{TITLES.get(name, name):52}{run['held_out']:>10.4f}{apart:>12}"
            f"{max(run['losses'][len(run['losses']) // 10 :]):>14.3f}"
        )
    return "\n".join(lines)


def smooth(losses, over=20):
    """Means over the last steps: single batches differ by more than the formats do."""
    padded = torch.tensor([losses[0]] * (over - 1) + losses)
    return padded.unfold(0, over, 1).mean(1).tolist()


def draw(found, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(found), figsize=(6 * len(found), 4.4), layout="constrained", squeeze=False
    )
    titles = {"demo": "the demo's GPT, bytes", "wide": "words, frequent and rare ones"}
    for axis, (kind, outcomes) in zip(axes[0], found.items(), strict=True):
        width = 4.0
        for color, (name, run) in zip(COLORS, outcomes.items(), strict=False):
            label = f"{TITLES.get(name, name)}: {run['held_out']:.4f}"
            axis.plot(smooth(run["losses"]), label=label, color=color, linewidth=width)
            width = 1.0  # the first lies wide below the others
        lows = [min(smooth(run["losses"])) for run in outcomes.values()]
        first = max(run["losses"][0] for run in outcomes.values())
        axis.set_ylim(0.95 * min(lows), 1.1 * first)
        axis.set(xlabel="step", ylabel="training loss, nats a token", title=titles[kind])
        axis.legend(title="held-out loss", fontsize=8)
    figure.savefig(path, dpi=110)


def keep(folder, kind, outcomes):
    path = folder / "states.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found[kind] = outcomes
    path.write_text(json.dumps(found))
    draw(dict(sorted(found.items())), folder / "states.png")


def main():
    chosen = arguments()
    find_ours()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for place, kind in enumerate(("demo", "wide")):
        if kind not in chosen.models:
            continue
        shape = model.DEMO if kind == "demo" else WIDE
        data, held_out = corpus.load() if kind == "demo" else corpus.load_words(shape.vocabulary)
        makers = {name: maker(name) for name in chosen.formats}
        steps, rows = chosen.steps[place], chosen.rows[place]
        print(f"{kind}: {shape}, {steps} steps of {rows} x {shape.length}", flush=True)
        outcomes = train.train(makers, data, held_out, steps, rows, shape)
        print(table(outcomes), flush=True)
        keep(chosen.out, kind, outcomes)
    print(f"written: {chosen.out / 'states.png'}")


if __name__ == "__main__":
    main()
