#!/usr/bin/env python3
"""Steps on several Gloo processes of this machine: ours and its peers.

All contestants take turns on the same processes, one thread each, in an order shuffled
per round; a turn is an untimed and a timed step, a step's time that of the slowest
rank. Writes distributed.json and distributed.txt to the output folder.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import machine
import shapes
from run import ROOT, environment
from sharded import ENTRIES, PAIRS, REFERENCE

HERE = Path(__file__).resolve().parent
NOISY = 1.15  # as in report.py: of the reference, the ninth decile over the least


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=shapes.SHAPES, default="gpt2-half")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="names in sharded.py, separated by commas; all need 20 GB")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    return parser.parse_args()


def run(chosen):
    """What rank 0 printed on its last line."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(chosen.ranks),
        "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
        str(HERE / "distributed_rank.py"), chosen.shape, str(chosen.rounds),
        chosen.only or ",".join(ENTRIES),
    ]  # fmt: skip
    variables = environment("default") | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"the ranks ended with status {done.returncode}")
    return json.loads(lines[-1])


def summarize(results):
    """Adds medians, and for each pair the median over rounds of the ratio of a round."""
    seconds = results["seconds"]
    results["median"] = {name: statistics.median(values) for name, values in seconds.items()}
    results["best"] = {name: min(values) for name, values in seconds.items()}
    results["ratios"] = [
        [ours, peer, statistics.median(p / o for o, p in zip(seconds[ours], seconds[peer],
                                                            strict=True))]
        for ours, peer in PAIRS
        if ours in seconds and peer in seconds
    ]  # fmt: skip
    reference = seconds[REFERENCE]
    results["noise"] = (
        statistics.quantiles(reference, n=10)[8] / min(reference) if len(reference) > 1 else 1.0
    )


def text(results):
    label = shapes.LABELS[results["shape"]]
    lines = [
        f"{label}, f32: {results['elements'] / 1e6:.2f} M elements; {results['ranks']} Gloo "
        f"processes of one thread, {results['rounds']} interleaved rounds",
        f"{'':60}{'ms':>9}{'best':>9}{'calls':>7}{'MB sent':>9}",
    ]
    for name, entry in ENTRIES.items():
        if name not in results["median"] and name not in results["absent"]:
            continue
        if name in results["absent"]:
            lines.append(f"  {entry.label:58}  {results['absent'][name]}")
            continue
        sent = results["sent"][name]
        lines.append(
            f"  {entry.label:58}{results['median'][name] * 1e3:9.1f}"
            f"{results['best'][name] * 1e3:9.1f}{sent['calls']:7d}{sent['bytes'] / 1e6:9.2f}"
        )
    lines.append("times faster than a peer, the median over the rounds of their ratio")
    for ours, peer, ratio in results["ratios"]:
        lines.append(f"  {ratio:6.2f}  {ENTRIES[ours].label}, than {ENTRIES[peer].label}")
    if results["noise"] > NOISY:
        lines.append(
            f"noisy: the all-reduce moved by {100 * (results['noise'] - 1):.0f} % "
            f"(more than {100 * (NOISY - 1):.0f} %)"
        )
    return "\n".join(lines) + "\n"


def main():
    chosen = arguments()
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    results = {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
               "load_average": os.getloadavg()}  # fmt: skip
    results |= run(chosen) | {"machine": machine.describe()}
    summarize(results)
    results["took_seconds"] = time.time() - begin
    (out / "distributed.json").write_text(json.dumps(results, indent=1) + "\n")
    written = text(results)
    (out / "distributed.txt").write_text(written)
    print(written + f"\nwritten: distributed.json, distributed.txt in {out}")


if __name__ == "__main__":
    main()
