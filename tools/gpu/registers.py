#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers of the device kernels of the zoo, against a table of budgets.

    tools/gpu/registers.py [--update] [NAME...]

Compiles each definition of tools/gpu/registers.json to PTX, assembles it with
`ptxas -v` for each device of the table, and compares: a kernel that needs more
registers than its budget is an error, and so is one that keeps more bytes in local
memory or on the stack than its kind has there as "spilled": none, where there is no
such entry. --update writes what was found as the new budgets. No GPU is needed;
`ptxas` is the one of STEPC_PTXAS, of PATH, or of the package nvidia-cuda-nvcc.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("STEPC_BIN", ROOT / "build" / "bin"))
TABLE = Path(__file__).with_name("registers.json")
DEVICES = ("80", "90", "100")

_FUNCTION = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


def find_tool(name):
    """The path of one of CUDA's tools, or None: what STEPC_<NAME> names, of PATH, or of a
    package of NVIDIA's."""
    asked = os.environ.get(f"STEPC_{name.upper()}")
    if asked is not None:
        return shutil.which(asked)
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    installed = sorted(packages.glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


def parse_report(text):
    """What ptxas -v says: {kernel: (registers, bytes of stack and spills)}."""
    found = {}
    for match in _FUNCTION.finditer(text):
        spilled = sum(int(match[key]) for key in ("stack", "stores", "loads"))
        found[match["name"]] = (int(match["registers"]), spilled)
    return found


def measure(ptxas, definition, storages, device):
    """{kernel: (registers, spilled bytes)} of one definition on one device.
    `storages` are those of parameter, gradient and states.
    """
    param, grad, state = storages.split(",")
    target = f"compute_{device}"
    with tempfile.TemporaryDirectory() as folder:
        package, text = Path(folder) / "x.stepc", Path(folder) / "x.ptx"
        source = ROOT / "frontend" / "optimizers" / f"{definition}.mlir"
        subprocess.run(
            [BIN / "stepc", source, f"--target={target}", f"--param={param}",
             f"--grad={grad}", f"--state={state}", "-o", package],
            check=True,
        )  # fmt: skip
        with zipfile.ZipFile(package) as archive:
            text.write_bytes(archive.read(f"code/{target}.ptx"))
        run = subprocess.run(
            [ptxas, "-v", f"-arch=sm_{device}", "--fmad=false", "-o", os.devnull, text],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    return parse_report(run.stdout + run.stderr)


def group(kernels):
    """The most that a kernel of each kind needs: of contiguous and strided rows,
    of finishes, of states that are codes, and of the prologues. Variants of a definition
    differ by little.
    """
    most = {}
    for name, (registers, spilled) in kernels.items():
        kind = "strided" if name.endswith("_strided") else "phase"
        if "_phase" not in name:
            kind = "finish" if "_finish" in name else "scalars"
        if name.startswith(("decode_", "encode_")):
            kind = "codes"
        old = most.get(kind, (0, 0))
        most[kind] = (max(old[0], registers), max(old[1], spilled))
    return most


def check(name, device, kernels, budgets):
    """Messages on the kernels of one definition that break their budget."""
    faults = []
    for kind, (registers, spilled) in group(kernels).items():
        where = f"{name}: {kind} kernels on sm_{device}"
        if spilled > budgets.get(f"{kind} spilled", 0):
            faults.append(f"{where} spill {spilled} bytes")
        budget = budgets.get(kind)
        if budget is None:
            faults.append(f"{where} have no budget")
        elif registers > budget:
            faults.append(f"{where} need {registers} registers, the budget is {budget}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write what was found as the budgets")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help='as in the table: "adamw f32,f32,f32"'
    )
    options = parser.parse_args()
    ptxas = find_tool("ptxas")
    if not ptxas:
        sys.exit("no ptxas: install nvidia-cuda-nvcc, or set STEPC_PTXAS")
    table = json.loads(TABLE.read_text())
    unknown = [name for name in options.names if name not in table]
    if unknown:
        sys.exit(f"the table has no {unknown[0]!r}")
    faults = []
    for name in options.names or table:
        definition, storages = name.split()
        for device in DEVICES:
            kernels = measure(ptxas, definition, storages, device)
            found = group(kernels)
            most = {kind: registers for kind, (registers, _) in found.items()}
            most |= {f"{kind} spilled": spilled for kind, (_, spilled) in found.items() if spilled}
            print(f"{name} sm_{device}: {most}", flush=True)
            if options.update:
                table[name][device] = most
                continue
            faults += check(name, device, kernels, table[name].get(device, {}))
    if options.update:
        rows = (f"{json.dumps(name)}: {json.dumps(table[name], sort_keys=True)}" for name in table)
        TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
