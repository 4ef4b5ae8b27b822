#!/usr/bin/env python3
"""Trains one small GPT twice, with torch's fused AdamW and with ours, and compares.

Writes report.png and report.json to the output folder.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import corpus
import model
import torch
import train

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
PEER, OURS = "torch AdamW fused", "stepc AdamW"


def fused(params):
    return torch.optim.AdamW(params, lr=train.LR, weight_decay=train.WEIGHT_DECAY, fused=True)


def ours(params):
    import stepc.torch

    return stepc.torch.AdamW(params, lr=train.LR, weight_decay=train.WEIGHT_DECAY)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", type=int, default=8, help="pieces of text in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="of the benchmark; 0: leave it out")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "demo")
    return parser.parse_args()


def train_both(chosen):
    data, held_out = corpus.load()
    parameters = sum(parameter.numel() for parameter in model.make(0).parameters())
    print(
        f"the same GPT twice, {model.LAYERS} layers and {parameters / 1e6:.2f} M parameters, "
        f"{chosen.steps} steps of {chosen.rows} x {model.LENGTH} bytes\n"
        f"text: Python's standard library, {len(data) / 1e6:.1f} MB; "
        f"kept aside: {len(held_out) / 1e6:.1f} MB of other files",
        flush=True,
    )
    makers = {PEER: fused, OURS: ours}
    return train.train(makers, data, held_out, chosen.steps, chosen.rows)


def largest_difference(outcomes):
    """(difference, step) of the two loss curves."""
    pairs = zip(outcomes[PEER]["losses"], outcomes[OURS]["losses"], strict=True)
    return max((abs(a - b), step) for step, (a, b) in enumerate(pairs, start=1))


def table(outcomes):
    rows = [
        ("held-out loss at the start", lambda run: f"{run['held_out_before']:.4f}"),
        ("held-out loss at the end", lambda run: f"{run['held_out']:.4f}"),
        ("optimizer step, median ms", lambda run: f"{run['step_median'] * 1e3:.2f}"),
    ]
    lines = [" " * 32 + "".join(f"{title:>20}" for title in outcomes)]
    for title, show in rows:
        lines.append(f"{title:<32}" + "".join(f"{show(run):>20}" for run in outcomes.values()))
    difference, step = largest_difference(outcomes)
    lines.append(f"largest difference of the loss curves: {difference:.2g} at step {step}")
    return "\n".join(lines)


def step_benchmark(chosen):
    """Results of a short run of tools/bench, or None."""
    if chosen.rounds == 0:
        return None
    out = chosen.out / "bench"
    command = [sys.executable, str(BENCH / "run.py"), "--shapes", "gpt2,tiny", "--dtypes", "f32"]
    command += ["--modes", "default", "--peers", "fused,foreach", "--no-compile-time"]
    command += ["--optimizers", "adamw"]
    command += ["--no-host-time", "--rounds", str(chosen.rounds), "--out", str(out)]
    print("\nthe step alone, a short run of tools/bench/run.py", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, "the benchmark failed")
        return None
    wanted = (out / "bench.txt").read_text().split("\n\n")
    print("\n\n".join(part for part in wanted[1:] if "traffic a step" in part))
    return json.loads((out / "bench.json").read_text())


def draw(outcomes, benchmark, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sys.path.insert(0, str(BENCH))
    import report

    cases = report.groups(benchmark) if benchmark else {}
    figure = pyplot.figure(figsize=(10, 4.2 + 2.4 * len(cases)), layout="constrained")
    heights = [4.2] + [2.4] * len(cases)
    axes = figure.subplots(1 + len(cases), 1, squeeze=False, height_ratios=heights)[:, 0]
    styles = {PEER: ("#d98f4e", 3.0, "-"), OURS: ("#1f6f8b", 1.2, "--")}
    for title, run in outcomes.items():
        color, width, line = styles[title]
        label = f"{title} (held out: {run['held_out']:.4f})"
        axes[0].plot(run["losses"], line, label=label, color=color, linewidth=width)
    axes[0].set(xlabel="step", ylabel="training loss, nats a byte")
    axes[0].set_title("the same model, seed and batches", fontsize=10)
    axes[0].legend()
    for row, (key, by_mode) in zip(axes[1:], cases.items(), strict=True):
        report.draw_case(row, key, by_mode)
    figure.savefig(path, dpi=110)


def main():
    chosen = arguments()
    chosen.out = chosen.out.resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    outcomes = train_both(chosen)
    print("\n" + table(outcomes), flush=True)
    benchmark = step_benchmark(chosen)
    draw(outcomes, benchmark, chosen.out / "report.png")
    everything = {"runs": outcomes, "benchmark": benchmark}
    (chosen.out / "report.json").write_text(json.dumps(everything))
    print(f"\nwritten: {chosen.out / 'report.png'}")


if __name__ == "__main__":
    main()
