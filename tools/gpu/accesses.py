#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accesses of 128 bits in the machine code of the zoo's device kernels.

    tools/gpu/accesses.py [NAME...]

Assembles each definition of tools/gpu/registers.json for each device of that table, reads
the code back with `nvdisasm`, and looks at the kernels of contiguous rows: each has to load
every tensor of the parameter's dims that it reads, and store every one that it writes, by
accesses of 128 bits at least once. No GPU is needed; `nvdisasm` is the one of STEPC_NVDISASM, of
PATH, or of the package nvidia-cuda-nvdisasm, and `ptxas` as for registers.py.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import registers

_SECTION = re.compile(r"^\.text\.([\w$]+):$", re.MULTILINE)
_WIDE = re.compile(r"\b(LDG|STG)\.[\w.]*\b128\b")


def count_wide(text):
    """What nvdisasm printed: {kernel: (loads, stores) of 128 bits}."""
    parts = _SECTION.split(text)
    found = {}
    for name, code in zip(parts[1::2], parts[2::2], strict=True):
        counts = Counter(_WIDE.findall(code))
        found[name] = (counts["LDG"], counts["STG"])
    return found


def needed(manifest):
    """{kernel: (loads, stores)}: how many tensors of the parameter's dims it reads and writes."""
    wanted = {}
    for variant in manifest["variants"]:
        operands = variant["operands"]
        dims = next(one["dims"] for one in operands if one["role"] == "param")
        for entry in variant["schedule"]:
            if "kernel" in entry:
                wanted[entry["kernel"]] = tuple(
                    sum(operands[index]["dims"] == dims for index in entry[key])
                    for key in ("reads", "writes")
                )
    return wanted


def check(name, device, found, wanted):
    """Messages on kernels that have fewer wide accesses than tensors."""
    return [
        f"{name}: {kernel} on sm_{device} has {found.get(kernel, (0, 0))[which]} {what} of 128 "
        f"bits for {least[which]} tensors"
        for kernel, least in wanted.items()
        for which, what in enumerate(("loads", "stores"))
        if found.get(kernel, (0, 0))[which] < least[which]
    ]


def disassemble(tools, definition, storages, device):
    """The manifest of a definition's package, and what nvdisasm prints of its cubin."""
    nvdisasm, ptxas = tools
    param, grad, state = storages.split(",")
    with tempfile.TemporaryDirectory() as folder:
        package, cubin = Path(folder) / "x.stepc", Path(folder) / "x.cubin"
        source = registers.ROOT / "frontend" / "optimizers" / f"{definition}.mlir"
        subprocess.run(
            [registers.BIN / "stepc", source, f"--target=sm_{device}", f"--ptxas={ptxas}",
             f"--param={param}", f"--grad={grad}", f"--state={state}", "-o", package],
            check=True,
        )  # fmt: skip
        with zipfile.ZipFile(package) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            cubin.write_bytes(archive.read(f"code/sm_{device}.cubin"))
        run = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True)
    return manifest, run.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help='as in the table: "adamw f32,f32,f32"'
    )
    options = parser.parse_args()
    tools = registers.find_tool("nvdisasm"), registers.find_tool("ptxas")
    if not all(tools):
        sys.exit("no nvdisasm or no ptxas: install nvidia-cuda-nvdisasm and nvidia-cuda-nvcc")
    table = json.loads(registers.TABLE.read_text())
    unknown = [name for name in options.names if name not in table]
    if unknown:
        sys.exit(f"the table has no {unknown[0]!r}")
    faults = []
    for name in options.names or table:
        definition, storages = name.split()
        for device in registers.DEVICES:
            manifest, text = disassemble(tools, definition, storages, device)
            wanted = needed(manifest)
            faults += check(name, device, count_wide(text), wanted)
            print(f"{name} sm_{device}: {len(wanted)} kernels", flush=True)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
