#!/usr/bin/env python3
"""AdamW with states as codes, beside bitsandbytes and torchao: bytes a parameter, and the time of a
step by the step benchmark.

    tools/bench/states.py                      # GPT-2; peers where they are installed
    tools/bench/states.py --shapes tiny --rounds 3
    PYTHONPATH=folder tools/bench/states.py    # with peers of `pip install --target folder`

Writes states.txt beside the benchmark's files, and says which of the wanted ratios are reached.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from optimizers import ENTRIES, FAMILIES
from run import HERE, ROOT, environment
from summary import ADAMW, paired

FAMILY = "states"
# How many times faster than a peer codes of 8 bits are to be at least, and of ours at most slower.
TARGETS = {ADAMW: 1 / 1.4, "bnb-8bit": 15.0, "torchao-8bit": 25.0}
CODED = "stepc-states-q8"
SHAPE = (1024, 1024)  # of the parameter whose states are counted


def tensors_of(value):
    """Those that a state is made of; a tensor of a subclass has them inside."""
    if not isinstance(value, torch.Tensor):
        return []
    if type(value) is torch.Tensor:
        return [value]
    inner = [tensors_of(own) for own in vars(value).values()]
    return [tensor for own in inner for tensor in own] or [value]


def bytes_of(name, dtype):
    """Of the states of a parameter, per element."""
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    param = torch.nn.Parameter(torch.ones(SHAPE, dtype=kind))
    param.grad = torch.ones_like(param)
    optimizer = ENTRIES[name].make([param])
    optimizer.step()
    own = optimizer.state[param]
    own = [inner for v in own.values() for inner in (v.values() if isinstance(v, dict) else [v])]
    return sum(t.nbytes for value in own for t in tensors_of(value)) / param.numel()


def names_of(dtype):
    about = FAMILIES[FAMILY]
    return [n for n in about.contestants("gpt2", dtype, about.peers) if ENTRIES[n].make]


def table(case, sizes):
    lines = [
        f"{case['shape']}, {case['dtype']}",
        f"{'':36}{'ms':>9}{'bytes':>9}{'q8 is times faster':>20}",
    ]
    for name in names_of(case["dtype"]):
        label = ENTRIES[name].label
        if name not in case["summary"]:
            lines.append(f"{label:36}{case['absent'].get(name, 'failed'):>9}")
            continue
        median = case["summary"][name]["median"] * 1e3
        faster = paired(case, name, CODED)
        lines.append(f"{label:36}{median:>9.2f}{sizes.get(name, 0):>9.3f}{faster:>20.2f}")
    for name, least in TARGETS.items():
        if name in case["summary"]:
            faster = paired(case, name, CODED)
            said = "reached" if faster >= least else "missed"
            lines.append(f"  {ENTRIES[name].label}: {faster:.2f}, at least {least:.2f}: {said}")
    return "\n".join(lines)


def counted():
    """This script again, as the packages are found there: {dtype: {name: bytes}}."""
    command = [sys.executable, __file__, "--bytes"]
    done = subprocess.run(
        command, env=environment("default"), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="gpt2")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each contestant")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-states")
    parser.add_argument("--bytes", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.bytes:
        from contestants import why_absent  # needs the frontend, whose place that process knows

        found = {
            dtype: {n: bytes_of(n, dtype) for n in names_of(dtype) if why_absent(n) is None}
            for dtype in ("f32", "bf16")
        }
        print(json.dumps(found))
        return 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    given = ["--optimizers", FAMILY, "--shapes", chosen.shapes, "--dtypes", chosen.dtypes]
    given += ["--rounds", str(chosen.rounds), "--budget", str(chosen.budget)]
    given += ["--no-compile-time", "--no-host-time", "--out", str(chosen.out)]
    subprocess.run([sys.executable, str(HERE / "run.py"), *given], env=os.environ, check=True)
    results = json.loads((chosen.out / "bench.json").read_text())
    sizes = counted()
    text = "\n\n".join(table(case, sizes[case["dtype"]]) for case in results["cases"])
    (chosen.out / "states.txt").write_text(text + "\n")
    print(text)
    return 0 if results["cases"] and not results["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
