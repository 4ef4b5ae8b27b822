# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The document of ``--explain=json`` is as docs/explain.md says, and says what the package does."""

import functools
import json
import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
ZOO = ROOT / "frontend" / "optimizers"
INPUTS = ROOT / "test" / "tools" / "Inputs"
PAGE = (ROOT / "docs" / "explain.md").read_text()
SCALED = [f"--fragment={ZOO}/fragments/{name}.mlir" for name in ("torch_scaler", "clip_by_norm")]
CASES = {
    "adamw": ["adamw.mlir"],
    "adafactor": ["adafactor.mlir", "--layout=-2=dp,-1=tp", "--param=bf16", "--grad=bf16"],
    "carried": ["adafactor.mlir", "--exclusive-writes"],
    "lamb": ["lamb.mlir", *SCALED, "--layout=zero1"],
    "sgd": ["sgd.mlir", *SCALED, "--layout=zero1"],
    "files": ["adafactor.mlir", f"--layout={INPUTS}/layouts/hybrid.json"],
    "matrices": ["soap.mlir"],
    "owners": [f"{ROOT}/test/distributed/definitions/square.mlir", "--layout=fsdp2"],
}


@functools.cache
def explain(definition, *arguments):
    command = [STEPC, ZOO / definition, *arguments, "--explain=json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def members(value, outer=""):
    """Names of members at any depth; options have names of the definition."""
    if isinstance(value, dict) and outer != "options":
        yield from value
        for name, inner in value.items():
            yield from members(inner, name)
    elif isinstance(value, list):
        for item in value:
            yield from members(item, outer)


def test_the_example_is_real():
    (command,) = re.findall(r"^    stepc (sgd\.mlir .*) --explain=json$", PAGE, re.M)
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.S | re.M)
    assert json.loads(example) == explain(*shlex.split(command))


def test_every_member_is_described_and_every_description_is_of_one():
    rows = "".join(re.findall(r"^\| `.*$", PAGE, re.M))
    described = {*re.findall(r"`(\w+)`", rows)}
    found = {name for case in CASES.values() for name in members(explain(*case))}
    assert found - described == set()
    values = {"model", "group", "kernel", "finish", "round", "full", "vector", "partial",
              "exchange", "parameter", "sum", "mean", "amax"}  # fmt: skip
    assert described - found - values == set()


@pytest.mark.parametrize("case", CASES)
def test_it_has_the_entries_of_the_packages_schedule(case, tmp_path):
    path = tmp_path / "made.stepc"
    definition, *arguments = CASES[case]
    subprocess.run([STEPC, ZOO / definition, *arguments, "-o", path], check=True)
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    programs = explain(definition, *arguments)["programs"]
    assert [one["name"] for one in programs] == [one["name"] for one in manifest["variants"]]
    for program, variant in zip(programs, manifest["variants"], strict=True):
        entries = [one for one in program["entries"] if one["kind"] != "round"]
        called = [one for one in variant["schedule"] if "exchange" not in one or "operand" in one]
        for entry, scheduled in zip(entries, called, strict=True):
            assert entry["name"] == scheduled[entry["kind"]]
            assert entry["segment"] == scheduled["segment"]
            assert entry.get("trails", False) == scheduled.get("trailing", False)
        sent = {one["exchange"] for one in variant["schedule"] if "buffer" in one}
        crossing = [group for one in program["entries"] for group in one.get("exchanges", ())]
        assert {one["name"] for group in crossing for one in group["of"]} == sent
        functions = {call["function"] for one in manifest["rounds"] for call in one["calls"]}
        calls = [call for one in program["entries"] for call in one.get("calls", ())]
        assert {call["function"] for call in calls} == functions


def test_bytes_are_those_of_what_kernels_read_and_write():
    for case in CASES.values():
        for program in explain(*case)["programs"]:
            memory, moved = program["memory"], 0
            for entry in program["entries"]:
                if entry["kind"] != "kernel":
                    continue
                read = set(entry["reads"]) - set(entry["cached"])
                for index in [*read, *entry["writes"]]:
                    moved += memory[index]["bytes"] if memory[index]["kind"] == "full" else 0
            assert moved == program["bytes"]["moved"] >= program["bytes"]["least"]
