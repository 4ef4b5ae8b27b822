"""How long the compiler takes as a process: warm and cold, and a hit in the cache.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "frontend" / "optimizers"
DEFINITION = ZOO / "adamw.mlir"
HERE = Path(__file__).resolve().parent


def _compile(compiler, folder, definition=DEFINITION):
    output = Path(folder) / "made.stepc"
    begin = time.perf_counter()
    subprocess.run([compiler, str(definition), "-o", str(output)], check=True)
    return time.perf_counter() - begin


def zoo(compiler, folder, rounds, one_of=1):
    """Median seconds by definition, in rounds over all of them, or over one of so many."""
    definitions = sorted(ZOO.glob("*.mlir"))[::one_of]
    seconds = {definition.stem: [] for definition in definitions}
    for _ in range(rounds):
        for definition in definitions:
            seconds[definition.stem].append(_compile(compiler, folder, definition))
    return {name: statistics.median(values) for name, values in seconds.items()}


def files_of(program):
    """The program and the shared libraries that it loads."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [program, *re.findall(r"(/\S+) \(0x", listing)]


def forget(files):
    """Asks the system to drop the files from memory, as far as nobody has them open."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident_share(files):
    """Which share of the files' bytes is still in memory, or None."""
    try:
        command = ["fincore", "--bytes", "--noheadings", "--output", "RES,SIZE", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    pairs = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    return sum(there for there, _ in pairs) / sum(size for _, size in pairs)


def first_steps(rounds):
    """Seconds of first steps: one that compiles, then `rounds` whose package is cached.

    Each is a new process; torch is imported before the clock starts.
    """
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(1 + rounds):
            done = subprocess.run(
                [sys.executable, str(HERE / "first_step.py")],
                env=os.environ | {"STEPC_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=True,
            )
            seconds.append(float(done.stdout.split()[-1]))
    return seconds[0], seconds[1:]


def measure(rounds, one_of=1):
    """All of it as a dictionary, or why not; of one of so many definitions of the zoo."""
    compiler = os.environ.get("STEPC_COMPILER", "")
    if not os.path.exists(compiler):
        return {"absent": "not built"}
    with tempfile.TemporaryDirectory() as folder:
        _compile(compiler, folder)
        warm = [_compile(compiler, folder) for _ in range(rounds)]
        all_of_zoo = zoo(compiler, folder, min(rounds, 5), one_of)
        files = files_of(compiler)
        cold, resident = [], []
        for _ in range(3):
            forget(files)
            resident.append(resident_share(files))
            cold.append(_compile(compiler, folder))
        result = {
            "warm_seconds": warm,
            "warm_median": statistics.median(warm),
            "zoo_medians": all_of_zoo,
            "zoo_slowest": max(all_of_zoo.values()),
            "cold_seconds": cold,
            "cold_median": statistics.median(cold),
            "cold_resident_share": resident,
        }
    try:
        compiled, hits = first_steps(rounds)
        result |= {
            "first_step_compiled": compiled,
            "cache_hit_seconds": hits,
            "cache_hit_median": statistics.median(hits),
        }
    except subprocess.CalledProcessError as error:
        result["cache_hit_absent"] = (error.stderr.splitlines() or ["failed"])[-1]
    return result
