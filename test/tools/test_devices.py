# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages with code for CUDA devices: every definition of the zoo has it, the
processor's runtime steps with such a package, and kernels keep to their registers.
"""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("STEPC_BIN", ROOT / "build" / "bin"))
ZOO = ROOT / "frontend" / "optimizers"
REGISTERS = ROOT / "tools" / "gpu" / "registers.py"
VARIANTS = [
    f"--variant=param={param},grad={grad},state={state}"
    for param, grad, state in (
        ("f32", "f32", "f32"),
        ("bf16", "bf16", "f32"),
        ("bf16", "f32", "bf16"),
        ("f64", "f64", "f64"),
    )
]

# Many variants of large kernels; test/ptx compiles them in other storages.
SLOW = {
    "adafactor", "adalomo", "came", "dadapt_sgd", "fused_lamb", "galore_adafactor", "lars",
    "torch_adafactor",
}  # fmt: skip


def compile_zoo(name, target, package, *more):
    return subprocess.run(
        [BIN / "stepc", ZOO / f"{name}.mlir", f"--target={target}", "-o", package, *more],
        capture_output=True,
        text=True,
        timeout=300,
    )


def read(package, member):
    with zipfile.ZipFile(package) as archive:
        return archive.read(member).decode()


# Entry points of every package, for the engine itself.
OWN = (
    "store", "set", "advance", "copy", "fill", "order", "unorder", "begin", "decide", "check",
    "compare", "forget",
)  # fmt: skip
# What decodes and encodes states.
OF_CODES = tuple(f"{way}_{f}" for f in ("q8", "f8_e4m3", "q4") for way in ("decode", "encode"))


@pytest.mark.sample(one_of=5)
@pytest.mark.parametrize("name", sorted(path.stem for path in ZOO.glob("*.mlir")))
def test_zoo(name, tmp_path):
    """Each name in the manifest is an entry point, and there are no others."""
    package = tmp_path / "x.stepc"
    variants = VARIANTS[1:2] if name in SLOW else VARIANTS
    run = compile_zoo(name, "compute_80", package, *variants)
    assert run.returncode == 0, run.stderr
    manifest = json.loads(read(package, "manifest.json"))
    text = read(package, "code/compute_80.ptx")
    names = [
        entry[key]
        for variant in manifest["variants"]
        for entry in variant["schedule"]
        for key in ("kernel", "strided_kernel", "finish")
        if key in entry
    ]
    # What the host does has no kernel.
    names += [
        f"{entry['finish']}_stage{k}"
        for variant in manifest["variants"]
        for entry in variant["schedule"]
        for k, stage in enumerate(entry.get("stages", ()))
        if k and stage != "call"
    ]
    names += [
        function
        for variant in manifest["variants"]
        for function in variant["scalars"]["functions"]
        if function
    ]
    names += [call["function"] for r in manifest["rounds"] for call in r["calls"]]
    names += [f"statistics_{s['kind']}" for s in manifest["statistics"]]
    assert len(names) >= 3 * len(variants)
    names += [f"step_{name}" for name in OWN]
    states = [o for v in manifest["variants"] for o in v["operands"] if o["role"] == "state"]
    if any(state["storage"] == "f32" for state in states):
        names += OF_CODES
    for entry in names:
        assert f".visible .entry {entry}(" in text
    assert text.count(".visible") == len(set(names))


def test_kernels_say_how_they_are_launched(tmp_path):
    package = tmp_path / "x.stepc"
    assert compile_zoo("sgd", "compute_80", package).returncode == 0
    text = read(package, "code/compute_80.ptx")
    assert text.count(".reqntid 256") == text.count(".visible .entry")


def test_processor_steps_with_code_of_devices(tmp_path):
    """Its result is that of a package for the processor alone."""
    packages = {"cpu": tmp_path / "cpu.stepc", "cpu,cuda": tmp_path / "both.stepc"}
    for target, package in packages.items():
        run = compile_zoo("adamw", target, package, "--ptxas=")
        assert run.returncode == 0, run.stderr
    code = json.loads(read(packages["cpu,cuda"], "manifest.json"))["code"]
    targets = [entry["target"] for entry in code]
    assert targets == ["x86-64-v3", "compute_80"]
    with zipfile.ZipFile(packages["cpu"]) as one, zipfile.ZipFile(packages["cpu,cuda"]) as both:
        member = "code/x86-64-v3.so"
        assert one.read(member) == both.read(member)
    run = step(packages["cpu,cuda"], tmp_path)
    assert run.returncode == 0, run.stderr + run.stdout
    assert "1 case: no difference" in run.stdout


def step(package, folder):
    """Two steps of a package in the runtime, compared with the interpreter."""
    values = np.random.default_rng(1).standard_normal((3, 13)).astype(np.float32)
    np.savez(folder / "in.npz", **{"0/param": values, "0/grad": values[::-1].copy()})
    case = {"input": str(package), "prefix": "0/", "options": {}, "hypers": {}, "steps": 2}
    return subprocess.run(
        [BIN / "stepc-run", "--batch=-", f"--tensors={folder / 'in.npz'}", "--compare"],
        input=json.dumps(case), capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_package_for_devices_alone_is_refused(tmp_path):
    package = tmp_path / "x.stepc"
    assert compile_zoo("adamw", "compute_90", package).returncode == 0
    run = step(package, tmp_path)
    assert run.returncode != 0
    message = "has no code for this processor: compute_90 needs a device, cuda"
    assert message in run.stderr + run.stdout


def load_registers():
    spec = importlib.util.spec_from_file_location("registers", REGISTERS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = REGISTERS.with_suffix(".json")
needs_ptxas = pytest.mark.skipif(
    not load_registers().find_tool("ptxas"), reason="ptxas is not installed"
)


REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a_phase0_strided' for 'sm_80'
ptxas info    : Function properties for a_phase0_strided
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'a_phase0' for 'sm_80'
ptxas info    : Function properties for a_phase0
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'a$20b_finish0' for 'sm_80'
ptxas info    : Function properties for a$20b_finish0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 50 registers, used 0 barriers, 400 bytes cmem[0]
"""


def test_register_report():
    """What ptxas prints is read whole, and each way to break a budget is told."""
    registers = load_registers()
    kernels = registers.parse_report(REPORT)
    assert kernels == {
        "a_phase0_strided": (40, 0),
        "a_phase0": (32, 28),
        "a$20b_finish0": (50, 0),  # a letter that no assembler takes, in hexadecimal
    }
    budgets = {"strided": 39, "phase": 32, "finish": 50}
    assert registers.check("a", "80", kernels, budgets) == [
        "a: strided kernels on sm_80 need 40 registers, the budget is 39",
        "a: phase kernels on sm_80 spill 28 bytes",
    ]
    fine = {"a_phase0": (32, 0)}
    assert registers.check("a", "80", fine, {}) == ["a: phase kernels on sm_80 have no budget"]
    assert registers.check("a", "80", fine, {"phase": 32}) == []


@needs_ptxas
@pytest.mark.sample(one_of=4)
@pytest.mark.parametrize("name", json.loads(TABLE.read_text()))
def test_registers(name):
    """No kernel of the table is over its budget: a second or two for each definition."""
    run = subprocess.run(
        [sys.executable, REGISTERS, name], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr


@needs_ptxas
def test_registers_over_budget(tmp_path, monkeypatch, capsys):
    """A kernel over its budget, or one that the table does not know, is an error of main."""
    registers = load_registers()
    budgets = {"phase": 8, "strided": 255, "codes": 255}
    table = {"sgd f32,f32,f32": dict.fromkeys(("80", "90"), budgets)}
    table["sgd f32,f32,f32"]["100"] = {**budgets, "phase": 255, "scalars": 255}
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setattr(registers, "TABLE", tmp_path / "table.json")
    monkeypatch.setattr(sys, "argv", [str(REGISTERS)])
    assert registers.main() == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    for device in ("80", "90"):
        where = f"kernels on sm_{device}"
        assert f"sgd f32,f32,f32: scalars {where} have no budget" in lines
        told = [line for line in lines if f"phase {where} need" in line]
        assert [line.endswith("registers, the budget is 8") for line in told] == [True]


@needs_ptxas
def test_cubins(tmp_path):
    """With an assembler: its code for each device, and PTX for all others."""
    ptxas = load_registers().find_tool("ptxas")
    package = tmp_path / "x.stepc"
    run = compile_zoo("sgd", "cpu,cuda", package, f"--ptxas={ptxas}")
    assert run.returncode == 0, run.stderr
    code = json.loads(read(package, "manifest.json"))["code"]
    files = [entry["file"] for entry in code]
    assert files == ["code/x86-64-v3.so", "code/sm_80.cubin", "code/sm_90.cubin",
                     "code/sm_100.cubin", "code/compute_80.ptx"]  # fmt: skip
    with zipfile.ZipFile(package) as archive:
        assert all(archive.read(file).startswith(b"\x7fELF") for file in files[:4])
    assert "no difference" in step(package, tmp_path).stdout


def test_assembler_that_fails_is_told(tmp_path):
    package = tmp_path / "x.stepc"
    run = compile_zoo("sgd", "sm_90", package, "--ptxas=false")
    assert run.returncode == 1
    assert "false' assembles no code for sm_90" in run.stderr
    assert not package.exists()
