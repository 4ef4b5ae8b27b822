# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs many cases in one process of ``stepc-run``, and compares arrays.

Arrays are numpy's; bf16 ones are uint16, the bits of their elements.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "frontend" / "optimizers"
STEPC_RUN = os.environ.get("STEPC_RUN", str(ROOT / "build" / "bin" / "stepc-run"))

DTYPES = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32, "f64": np.float64}


def stepc_run(*arguments, **keywords):
    """The finished process."""
    return subprocess.run(
        [STEPC_RUN, *map(str, arguments)], capture_output=True, text=True, check=False, **keywords
    )


class Refused(Exception):
    """stepc-run's message."""


class Batch:
    """Cases, run together.

    >>> batch = Batch()
    >>> batch.add(ZOO / "sgd.mlir", {"param": p, "grad": g}, hypers={"lr": 0.1})
    >>> [result] = batch.run()
    >>> result["param"]
    """

    def __init__(self):
        self.lines = []
        self.arrays = {}

    def add(self, definition, arrays, **settings):
        """Adds a case; ``settings`` are the keys of a line of stepc-run's batch."""
        prefix = f"{len(self.lines)}/"
        self.lines.append(json.dumps({"input": str(definition), "prefix": prefix, **settings}))
        self.arrays.update({prefix + name: array for name, array in arrays.items()})

    def run(self, how="--interpret"):
        """The arrays of each case's results, by name."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = f"{folder}/in.npz", f"{folder}/out.npz"
            np.savez(source, **self.arrays)
            run = stepc_run(
                "--batch=-", f"--tensors={source}", how, "-o", target, input="\n".join(self.lines)
            )
            if run.returncode != 0:
                raise Refused(run.stderr.strip() + run.stdout.strip())
            results = [{} for _ in self.lines]
            with np.load(target) as loaded:
                for key in loaded.files:
                    prefix, name = key.split("/", 1)
                    results[int(prefix)][name] = loaded[key]
        return results


def interpret(definition, arrays, **settings):
    """The results of one case."""
    batch = Batch()
    batch.add(definition, arrays, **settings)
    return batch.run()[0]


def write_definition(folder, body, arguments="%p: param[*], %g: grad[*]", globals_=""):
    """A file with an optimizer of one rule."""
    path = Path(folder) / "definition.mlir"
    path.write_text(
        f"step.optimizer @example {{\n{globals_}\n"
        f"  step.rule @any({arguments}) {{\n{body}\n  }}\n}}\n"
    )
    return path


# --- Numbers ------------------------------------------------------------------


def bf16_from(values):
    """The bits of the nearest bf16, ties to even, by torch."""
    import torch

    return torch.from_numpy(np.array(values)).to(torch.bfloat16).view(torch.uint16).numpy().copy()


def bf16_to_f32(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def widen(array):
    """As float64; uint16 are bf16."""
    return bf16_to_f32(array).astype(np.float64) if array.dtype == np.uint16 else array.astype("f8")


def store(values, storage):
    """float64 or float32 values in a storage type."""
    if storage == "bf16":
        return bf16_from(values)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(DTYPES[storage])


def special_values(dtype):
    """Zeros, denormals, edges, infinities, NaN, and random bit patterns."""
    info = np.finfo(dtype)
    tiny, small, one = info.smallest_subnormal, info.tiny, dtype(1)
    with np.errstate(over="ignore", under="ignore"):
        magnitudes = [
            dtype(0), tiny, tiny * 3, small - tiny, small, small * dtype(1.5), info.eps,
            np.nextafter(one, dtype(0)), one, np.nextafter(one, dtype(2)), dtype(np.pi),
            dtype(1e10), np.sqrt(info.max), info.max / 2, np.nextafter(info.max, one), info.max,
            dtype(np.inf), dtype(np.nan),
        ]  # fmt: skip
    bits = np.random.default_rng(7).integers(0, 2**64, 24, dtype=np.uint64)
    patterns = bits.view(dtype)
    values = np.array(magnitudes, dtype=dtype)
    return np.concatenate([values, -values, patterns.astype(dtype)])


def special_pairs(dtype):
    """Two arrays: each pair of special values, and random bit patterns."""
    values = special_values(dtype)
    x, y = (side.ravel() for side in np.meshgrid(values, values))
    unsigned = np.uint64 if dtype == np.float64 else np.uint32
    random = np.random.default_rng(8).integers(0, np.iinfo(unsigned).max, (2, 4000), dtype=unsigned)
    return np.concatenate([x, random[0].view(dtype)]), np.concatenate([y, random[1].view(dtype)])


def first_difference(actual, expected):
    """None where both have the same bits, any NaN being equal to any; else a message."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape} and {expected.dtype}{expected.shape}"
    wide_actual, wide_expected = widen(actual).ravel(), widen(expected).ravel()
    unequal = wide_actual.view(np.uint64) != wide_expected.view(np.uint64)
    unequal &= ~(np.isnan(wide_actual) & np.isnan(wide_expected))
    if not unequal.any():
        return None
    index = int(np.argmax(unequal))
    return (
        f"{int(unequal.sum())} of {unequal.size} differ, first element {index}: "
        f"{wide_actual[index]!r}, expected {wide_expected[index]!r}"
    )


def assert_same(actual, expected, what=""):
    difference = first_difference(np.asarray(actual), np.asarray(expected))
    assert difference is None, f"{what}: {difference}"
