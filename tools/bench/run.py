#!/usr/bin/env python3
"""The step benchmark: ours and its peers beside the machine's limit.

Every case (a shape, a storage type, a mode of the allocator) is a process of its
own in which all contestants take turns. Writes bench.json, bench.txt and bench.png
to the output folder, and says for each target whether it is reached.

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

import compile_time
import contestants
import machine
import report
import shapes
import targets

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MODES = {
    "default": {},
    "heap-kept": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"},
    "huge-pages": {"THP_MEM_ALLOC_ENABLE": "1"},
}


def environment(mode):
    """The variables that lead to what was built, where the user has not set them."""
    variables = dict(os.environ)
    variables.setdefault("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
    variables.setdefault(
        "STEPC_RUNTIME_LIBRARY", str(ROOT / "build" / "lib" / "libstepc_runtime.so")
    )
    inherited = variables.get("PYTHONPATH")
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "frontend"), *filter(None, [inherited])])
    return variables | MODES[mode]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def names(text):
        return [name for name in text.split(",") if name]

    parser.add_argument("--shapes", type=names, default=["gpt2", "vit", "tiny"])
    parser.add_argument("--dtypes", type=names, default=["f32", "bf16"])
    parser.add_argument("--modes", type=names, default=list(MODES))
    parser.add_argument("--peers", type=names, default=list(contestants.PEERS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--no-compile-time", action="store_true")
    parser.add_argument("--no-host-time", action="store_true")
    chosen = parser.parse_args()
    for given, known, what in (
        (chosen.shapes, shapes.SHAPES, "shape"),
        (chosen.dtypes, ("f32", "bf16"), "dtype"),
        (chosen.modes, MODES, "mode"),
        (chosen.peers, contestants.PEERS, "peer"),
    ):
        for name in given:
            if name not in known:
                parser.error(f"unknown {what} '{name}'; known: {', '.join(known)}")
    if chosen.rounds < 1:
        parser.error("at least one round")
    return chosen


def cases(chosen):
    """(shape, dtype, mode, contestants) of each process to start."""
    for shape in chosen.shapes:
        for dtype in chosen.dtypes:
            limit = ["stream", "stream-plain"] + (["stream-f32"] if dtype == "bf16" else [])
            for mode in chosen.modes:
                yield shape, dtype, mode, [*limit, *contestants.OURS, *chosen.peers]
    if not chosen.no_host_time:
        yield "host", "f32", "default", ["stream", "kernel", "stepc", "stepc-static", "fused"]


def summarize(case):
    """Adds medians, bests and ratios to a case's raw seconds."""
    case["summary"] = {}
    for name, seconds in case["seconds"].items():
        beside = case["stream_beside"][name]
        case["summary"][name] = {
            "median": statistics.median(seconds),
            "best": min(seconds),
            "ratio": statistics.median(a / b for a, b in zip(seconds, beside, strict=True)),
        }
    for name, seconds in case["above_kernel"].items():
        case["summary"][name]["above_kernel"] = statistics.median(seconds)
    stream = [value for values in case["stream_beside"].values() for value in values]
    case["stream_spread"] = statistics.quantiles(stream, n=10)[8] / min(stream) if stream else 1.0
    return case


def run_case(shape, dtype, mode, names, rounds, folder):
    command = [sys.executable, str(HERE / "case.py"), shape, dtype, ",".join(names)]
    done = subprocess.run(
        [*command, str(rounds), str(folder)],
        env=environment(mode),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the case {shape} {dtype} ({mode}) ended with {done.returncode}")
    return summarize(json.loads(done.stdout.splitlines()[-1]) | {"mode": mode})


def measure(chosen):
    results = {
        "format": 1,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "settings": {
            name: value for name, value in vars(chosen).items() if not isinstance(value, Path)
        },
        "modes": MODES,
        "cases": [],
        "compile": {"absent": "not asked for"},
    }
    for shape, dtype, mode, names in cases(chosen):
        begin = time.perf_counter()
        print(f"{shape} {dtype} ({report.MODES[mode]}) ...", end=" ", flush=True)
        results["cases"].append(run_case(shape, dtype, mode, names, chosen.rounds, chosen.out))
        print(f"{time.perf_counter() - begin:.0f} s", flush=True)
    if not chosen.no_compile_time:
        print("compile time ...", flush=True)
        results["compile"] = compile_time.measure(chosen.rounds)
    results["targets"] = targets.judge(results)
    return results


def main():
    chosen = arguments()
    chosen.out = chosen.out.resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    os.environ.update(environment("default"))
    results = measure(chosen)
    (chosen.out / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    written = report.text(results)
    (chosen.out / "bench.txt").write_text(written)
    report.plot(results, chosen.out / "bench.png")
    print("\n" + written, end="")
    print(f"\nwritten: bench.json, bench.txt, bench.png in {chosen.out}")


if __name__ == "__main__":
    main()
