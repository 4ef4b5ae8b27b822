#!/usr/bin/env python3
"""The step benchmark: ours and its peers beside the machine's limit.

Every case (a family of optimizers, a shape, a storage type, a mode of the allocator)
is a process of its own in which all contestants take turns. Writes bench.json,
bench.txt and bench.png to the output folder, and says for each target whether it is
reached.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import compile_time
import machine
import report
import shapes
import targets
from optimizers import FAMILIES, PEERS, ZOO
from summary import summarize

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


def _choices(parser):
    """Adds the options that choose among names."""

    def names(text):
        return [name for name in text.split(",") if name]

    for option, default, what in (
        ("--optimizers", list(FAMILIES), f"families: {', '.join(FAMILIES)}; or zoo"),
        ("--shapes", None, f"{', '.join(shapes.SHAPES)}; by default a few for each family"),
        ("--dtypes", ["f32", "bf16"], "f32, bf16"),
        ("--modes", None, f"of the allocator: {', '.join(MODES)}; by default by family"),
        ("--peers", list(PEERS), ", ".join(PEERS)),
    ):
        parser.add_argument(option, type=names, default=default, metavar="NAME,...", help=what)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    _choices(parser)
    parser.add_argument("--targets", action="store_true", help="only cases that targets are about")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--budget",
        type=float,
        default=8.0,
        help="seconds for each contestant of a case; slower ones have fewer rounds, at least 3",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--no-compile-time", action="store_true")
    parser.add_argument("--no-host-time", action="store_true")
    chosen = parser.parse_args()
    if chosen.optimizers == ["zoo"]:  # those that zoo_table.py makes its table of
        chosen.optimizers = list(dict.fromkeys(ZOO.values()))
    for given, known, what in (
        (chosen.optimizers, FAMILIES, "optimizer"),
        (chosen.shapes, shapes.SHAPES, "shape"),
        (chosen.dtypes, ("f32", "bf16"), "dtype"),
        (chosen.modes, MODES, "mode"),
        (chosen.peers, PEERS, "peer"),
    ):
        for name in given or ():
            if name not in known:
                parser.error(f"unknown {what} '{name}'; known: {', '.join(known)}")
    if chosen.rounds < 1:
        parser.error("at least one round")
    return chosen


def cases(chosen):
    """The key and the contestants of each process to start."""
    needed = {target.key for target in targets.TARGETS}
    for family in chosen.optimizers:
        about = FAMILIES[family]
        product = itertools.product(
            chosen.shapes or about.shapes, chosen.dtypes, chosen.modes or about.modes
        )
        for key in (targets.Key(family, *rest) for rest in product):
            if key in needed or not chosen.targets:
                yield key, about.contestants(key.shape, key.dtype, chosen.peers)
    if "adamw" in chosen.optimizers and not chosen.no_host_time:
        yield targets.Key("adamw", "host"), ["stream", "kernel", "stepc", "stepc-static", "fused"]


def run_case(key, names, chosen):
    """The case with its figures, or None where its process failed."""
    command = [sys.executable, str(HERE / "case.py"), key.shape, key.dtype, ",".join(names)]
    done = subprocess.run(
        [*command, str(chosen.rounds), str(chosen.budget), str(chosen.out)],
        env=environment(key.mode),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return None
    return summarize(key._asdict() | json.loads(done.stdout.splitlines()[-1]))


def measure(chosen):
    results = {
        "format": 2,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "settings": {
            name: value for name, value in vars(chosen).items() if not isinstance(value, Path)
        },
        "modes": MODES,
        "cases": [],
        "failed": [],
        "compile": {"absent": "not asked for"},
    }
    for key, names in cases(chosen):
        begin = time.perf_counter()
        label = f"{FAMILIES[key.family].label}: {key.shape} {key.dtype}"
        print(f"{label} ({report.MODES[key.mode]}) ...", end=" ", flush=True)
        case = run_case(key, names, chosen)
        if case is None:
            results["failed"].append(key)
        else:
            results["cases"].append(case)
        seconds = time.perf_counter() - begin
        print(f"{'FAILED, ' if case is None else ''}{seconds:.0f} s", flush=True)
    if not chosen.no_compile_time:
        print("compile time ...", flush=True)
        # A trial of the harness compiles few of the zoo.
        one_of = 10 if chosen.shapes == ["smoke"] else 1
        results["compile"] = compile_time.measure(chosen.rounds, one_of)
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
    return 1 if results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
