# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages with code of both kinds, for tests; and how bits are compared."""

import ctypes
import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("STEPC_BIN", ROOT / "build" / "bin"))
ZOO = ROOT / "frontend" / "optimizers"
STORAGES = {
    "f32": "param=f32",
    "bf16 and f32": "param=bf16,grad=bf16,state=f32",
    "bf16": "param=bf16,grad=f32,state=bf16",
    "all bf16": "param=bf16,grad=bf16,state=bf16",
    "f16 and f32": "param=f16,grad=f16,state=f32",
    "f16": "param=f16,grad=f32,state=f16",
    "f64": "param=f64",
}


# The last argument of launches: the step is not skipped.
GO_ON = np.zeros(1, np.int64)


class Package:
    """Code of both kinds, and the last variant: the one with most states."""

    def __init__(self, definition, storage, folder, *more):
        path = folder / "x.stepc"
        subprocess.run(
            [BIN / "stepc", definition, "--target=cpu,compute_80",
             f"--variant={STORAGES[storage]}", *more, "-o", path],
            check=True, timeout=300,
        )  # fmt: skip
        with zipfile.ZipFile(path) as archive:
            self.manifest = json.loads(archive.read("manifest.json"))
            self.ptx = archive.read("code/compute_80.ptx").decode()
            archive.extract("code/x86-64-v3.so", folder)
        self.object = ctypes.CDLL(str(folder / "code" / "x86-64-v3.so"))
        self.choose(self.manifest["variants"])

    def choose(self, variants):
        """Steps are of the one with most operands."""
        self.variant = max(variants, key=lambda variant: len(variant["operands"]))
        self.operands = self.variant["operands"]

    def choose_rule(self, rule):
        self.choose([v for v in self.manifest["variants"] if v["rule"] == rule])


def bits(array):
    """The array's bits, with one NaN for all."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    array = array.copy()
    array[np.isnan(array)] = np.nan
    return array.view(f"u{array.itemsize}")
