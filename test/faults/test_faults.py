# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The suite sees every deliberate fault, and no difference where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest
import seeded
from samples import sample


@pytest.mark.parametrize("script, sharded", [("seeded.py", False), ("sharded.py", True)])
def test_every_fault_is_caught(script, sharded, capfd):
    """The check tries a quarter of them, or a fifth where ranks are simulated."""
    one_of = 5 if sharded else 4
    names = sample([*seeded.pass_faults(sharded), *seeded.engine_faults(sharded)], script, one_of)
    # In a process of its own: threads that other tests have started do not survive a
    # fork, and the engine would wait for them.
    path = Path(seeded.__file__).with_name(script)
    with capfd.disabled():
        print(flush=True)
        run = subprocess.run([sys.executable, "-u", path, *names], check=False)
    assert run.returncode == 0


def test_products_have_no_faults():
    names = seeded.engine_faults() + seeded.engine_faults(sharded=True)
    assert len(names) >= 30
    strings = seeded.LIBRARY.read_bytes()
    assert [name for name in names if name.encode() in strings] == []
    assert names[0].encode() in seeded.FAULTY_LIBRARY.read_bytes()


@pytest.mark.parametrize("sharded, faults, controls", [(False, 30, 5), (True, 45, 2)])
def test_there_are_enough_faults(sharded, faults, controls):
    names = [*seeded.pass_faults(sharded), *seeded.engine_faults(sharded)]
    assert len(names) == len(set(names))
    assert sum(not seeded.is_control(name) for name in names) >= faults
    assert sum(seeded.is_control(name) for name in names) >= controls


def test_a_fault_needs_a_name_and_a_place(tmp_path):
    adamw = seeded.ZOO / "adamw.mlir"
    command = [seeded.FAULTY, adamw, "-o", tmp_path / "x.stepc"]
    run = subprocess.run([*command, "--fault=none"], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "no fault 'none'" in run.stderr
    run = subprocess.run([*command, "--fault=define-skip-lost"], check=False, capture_output=True)
    assert run.returncode == seeded.NOWHERE
