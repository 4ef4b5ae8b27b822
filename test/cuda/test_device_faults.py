# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Deliberate faults of the engine, each of which some test of this folder must see."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from device_entries import DevicePackages
from double import FAULTY_RUNTIME, ROOT, make_zip
from test_device_entries import make_whole

NAMES = sorted(
    name
    for suffix in ("cpp", "h")
    for path in (ROOT / "runtime").rglob(f"*.{suffix}")
    for name in re.findall(r'STEPC_FAULT\(\s*"(device-[^"]+)"\)', path.read_text())
)


def run(packages, name):
    environment = {
        **os.environ, "STEPC_RUNTIME_LIBRARY": str(FAULTY_RUNTIME), "STEPC_FAULT": name,
        "PYTHONPATH": str(ROOT / "frontend"),
    }  # fmt: skip
    script = Path(__file__).with_name("device_faults.py")
    return subprocess.run(
        [sys.executable, script, *packages], env=environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def packages(request, tmp_path_factory):
    paths = []
    names = "", "scaled_", "dadapt_", "lamb_", "partly_", "maxima_", "carried_", "soap_"
    for k, own in enumerate(request.getfixturevalue(f"{name}members") for name in names):
        paths.append(tmp_path_factory.mktemp("faults") / f"{k}.stepc")
        paths[-1].write_bytes(make_zip(own))
    model = make_whole()
    compiled = DevicePackages(tmp_path_factory.mktemp("entries")).compile(
        model.definition, set(model.variants()), "whole"
    )
    paths.append(paths[0].with_name("entries.stepc"))
    paths[-1].write_bytes(compiled)
    return paths


def test_there_are_enough_faults():
    assert len(NAMES) == len(set(NAMES)) >= 24


@pytest.mark.sample(one_of=4)
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_seen(name, packages):
    seen = run(packages, name)
    assert seen.returncode == 1 and seen.stdout, f"{name}: {seen.stderr[-400:]}"


def test_without_a_fault_nothing_is_seen(packages):
    assert run(packages, "none").returncode == 0
