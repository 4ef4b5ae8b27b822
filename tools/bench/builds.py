#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of two builds in turn: is what was changed as fast as what was before?

    tools/bench/builds.py BEFORE AFTER          two checkouts, both built
    ... --optimizers stepc,stepc-came --shapes gpt2,tiny --dtypes f32 --rounds 9

Of each case both have a process of their own with the same tensors. They step in turn, who is
first changes from round to round, and the figure is the median over the rounds of the time
after divided by that before: above 1 is slower. Compile times are taken the same way.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import shapes

HERE = Path(__file__).resolve().parent
OPTIMIZERS = (
    "stepc", "stepc-sgd", "stepc-lion", "stepc-adamax", "stepc-remainder", "stepc-clip",
    "stepc-hf-adafactor", "stepc-torch-adafactor", "stepc-came", "stepc-lamb", "stepc-adalomo",
)  # fmt: skip
DEFINITIONS = "adamw,sgd,lion,adafactor,torch_adafactor,came,lamb,adalomo"
# With one of these both would run the same.
NAMED = ("STEPC_COMPILER", "STEPC_RUNTIME_LIBRARY", "STEPC_COMPILER_IDENTITY")
SMALL = 10_000_000  # elements; below it a turn has more steps


# --- In the process of a build -------------------------------------------------


def serve():
    """Makes what a line of standard input names, or steps it; answers in a line of JSON."""
    import torch
    from filling import fill
    from optimizers import ENTRIES

    optimizer, steps = None, 1
    for line in sys.stdin:
        words = line.split()
        if words[0] == "make":
            _, name, shape, dtype = words
            optimizer = None  # frees what the case before had
            kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
            draw = functools.partial(
                torch.Tensor.normal_, mean=0.0, std=1e-2, generator=torch.Generator().manual_seed(0)
            )
            params = []
            for size in shapes.SHAPES[shape]():
                param = torch.nn.Parameter(torch.ones(size, dtype=kind))
                param.grad = fill(torch.empty(size, dtype=kind), draw)
                params.append(param)
            optimizer = ENTRIES[name].make(params)
            optimizer.step()  # makes states, compiles
            steps = 5 if sum(param.numel() for param in params) < SMALL else 2
        seconds = []
        for _ in range(steps):
            begin = time.perf_counter()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(min(seconds)), flush=True)


class Build:
    """A checkout, and a process in which its optimizers step."""

    def __init__(self, root, cache):
        self.compiler = Path(root).resolve() / "build" / "bin" / "stepc"
        paths = [Path(root).resolve() / "frontend", HERE]
        environment = {name: value for name, value in os.environ.items() if name not in NAMED}
        environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "STEPC_CACHE_DIR": str(cache),
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the process of {self.compiler.parents[2]} has ended at '{line}'")
        return json.loads(answer)

    def compile(self, definition, output):
        begin = time.perf_counter()
        subprocess.run([self.compiler, definition, "-o", output], check=True)
        return time.perf_counter() - begin

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- In turn ---------------------------------------------------------------------


def in_turn(rounds, before, after):
    """Seconds of both for each round."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            second, first = after(), before()
        else:
            first, second = before(), after()
        pairs.append((first, second))
    return pairs


def row(what, pairs):
    """Prints the medians in ms and that of the ratios; returns the ratio."""
    ratio = statistics.median(after / before for before, after in pairs)
    medians = [1e3 * statistics.median(column) for column in zip(*pairs, strict=True)]
    print(f"{what:44s} {medians[0]:9.2f} {medians[1]:9.2f}   {ratio:.3f}", flush=True)
    return ratio


def compare_steps(builds, options):
    ratios = []
    for shape in options.shapes.split(","):
        for dtype in options.dtypes.split(","):
            for name in options.optimizers.split(","):
                for build in builds:
                    build.ask(f"make {name} {shape} {dtype}")
                turns = [lambda build=build: build.ask("step") for build in builds]
                ratios.append(row(f"{name} {shape} {dtype}", in_turn(options.rounds, *turns)))
    print(f"median of {len(ratios)} cases: {statistics.median(ratios):.3f}, most {max(ratios):.3f}")


def compare_compilers(builds, folder, options):
    """Each compiles the definition of its own checkout."""
    for name in options.definitions.split(","):
        turns = []
        for build in builds:
            source = build.compiler.parents[2] / "frontend" / "optimizers" / f"{name}.mlir"
            output = Path(folder) / "made.stepc"
            turns.append(lambda build=build, s=source, o=output: build.compile(s, o))
        row(f"compile {name}.mlir", in_turn(options.rounds, *turns))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS))
    parser.add_argument("--definitions", default=DEFINITIONS)
    parser.add_argument("--shapes", default="gpt2,vit,tiny")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        builds = [
            Build(root, Path(folder) / str(i))
            for i, root in enumerate((options.before, options.after))
        ]
        print(f"{'case':44s} {'before':>9} {'after':>9}   after / before, ms")
        compare_compilers(builds, folder, options)
        compare_steps(builds, options)
        for build in builds:
            build.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
