# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are processes of MPI have the bits of simulated ones."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mpi_cases
import numpy as np
import pytest
from mpi_world import LIBRARY
from ranks import run_ranks
from stepc import _runtime
from steps import STEPC

HERE = Path(__file__).resolve().parent

WITHOUT = bool(os.environ.get("STEPC_WITHOUT_MPI"))
MISSING = not LIBRARY.is_file() or shutil.which("mpirun") is None
WORDS = (
    "no MPI was found when this was configured: libstepc_mpi.so is not built; tools/setup/setup.sh "
    "installs one, STEPC_WITHOUT_MPI=1 goes on without"
)

needs_mpi = pytest.mark.skipif(MISSING or WITHOUT, reason="STEPC_WITHOUT_MPI, or no MPI")


@pytest.mark.skipif(WITHOUT, reason="STEPC_WITHOUT_MPI")
def test_mpi_is_there():
    assert not MISSING, WORDS


def mpirun(command, processes=mpi_cases.WORLD, seconds=240):
    folders = [str(mpi_cases.ROOT / f) for f in ("frontend", "test/mpi", "test/sharding",
               "test/exact", "test/interpreter")]  # fmt: skip
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": "",  # all processes are here: no ssh is needed
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    # A folder of its own: of two that start at the same time one removes the folder that both
    # have, and the other does not start (Open MPI's issue 8510).
    with tempfile.TemporaryDirectory(prefix="mpi") as folder:
        return subprocess.run(
            ["mpirun", "-n", str(processes), *map(str, command)],
            env=environment | {"OMPI_MCA_orte_tmpdir_base": folder},
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip


def launch(what, folder, processes=mpi_cases.WORLD, seconds=240):
    command = [sys.executable, HERE / "mpi_rank.py", what, folder]
    return mpirun(command, processes, seconds)


@needs_mpi
def test_reductions(tmp_path):
    done = launch("reductions", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


@needs_mpi
def test_before_and_after_mpi(tmp_path):
    done = launch("early", tmp_path, processes=1)
    assert done.returncode == 0, done.stderr[-3000:]


def compile_case(number, folder):
    sharded = mpi_cases.make(number)
    output = folder / f"{number}.stepc"
    definition = sharded.case.definition
    command = [STEPC, definition.path, "-o", output, *definition.arguments(),
               *(f"--variant={variant}" for variant in sorted(sharded.variants()))]  # fmt: skip
    subprocess.run(command, check=True, timeout=300)
    return sharded, _runtime.Package.from_bytes(output.read_bytes())


@needs_mpi
def test_steps(tmp_path):
    cases = [compile_case(number, tmp_path) for number in range(len(mpi_cases.CASES))]
    done = launch("steps", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for number, (sharded, package) in enumerate(cases):
        simulated = run_ranks(sharded, package)
        for rank, (expected, _, _) in enumerate(simulated):
            found = pickle.loads((tmp_path / f"{number}-{rank}.pickle").read_bytes())
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                same = np.asarray(found[name]).tobytes() == np.asarray(value).tobytes()
                assert same, f"{mpi_cases.CASES[number]}: {name} of rank {rank}"


def said(folder, done, ranks=range(mpi_cases.WORLD)):
    """What these ranks wrote."""
    files = [folder / f"{rank}.txt" for rank in ranks]
    assert all(file.is_file() for file in files), (done.returncode, done.stderr[-3000:])
    return {rank: file.read_text() for rank, file in zip(ranks, files, strict=True)}


def within(line, milliseconds):
    """What is said in a line, which begins with the seconds that it took."""
    seconds, _, words = line.partition(" ")
    assert float(seconds) * 1000 < milliseconds + mpi_cases.SLACK_MS, line
    return words


@needs_mpi
def test_a_rank_that_does_not_come(tmp_path):
    done = launch("absent", tmp_path, seconds=60)
    for rank, text in said(tmp_path, done, (0, 1, 3)).items():
        first, second = text.splitlines()
        words = (
            f"rank {rank}: sum of f64 of 12 elements over axes [0] did not end within "
            f"{mpi_cases.DEADLINE_MS} ms"
        )
        assert within(first, mpi_cases.DEADLINE_MS) == words
        assert within(second, 0) == words


@needs_mpi
def test_transfers(tmp_path):
    done = launch("transfers", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


@needs_mpi
def test_a_rank_that_sends_less(tmp_path):
    done = launch("sizes", tmp_path, seconds=60)
    words = said(tmp_path, done)
    for rank in (0, 1, 3):
        assert words[rank] == (
            "all_to_all of 24 bytes over axes [0]: a message of 4 bytes came, expected 8"
        )


@needs_mpi
def test_a_rank_that_starts_no_transfer(tmp_path):
    done = launch("no transfer", tmp_path, seconds=60)
    for rank, text in said(tmp_path, done, (0, 1, 3)).items():
        first, second = text.splitlines()
        words = (
            f"rank {rank}: all_to_all of 30 bytes over axes [0] did not end within "
            f"{mpi_cases.DEADLINE_MS} ms"
        )
        assert within(first, mpi_cases.DEADLINE_MS) == words
        assert within(second, 0) == words


@needs_mpi
def test_a_rank_that_is_killed(tmp_path):
    """MPI ends the others, or they end by the deadline; nobody hangs."""
    done = launch("killed", tmp_path, seconds=60)
    assert done.returncode != 0
    words = f"did not end within {mpi_cases.DEADLINE_MS} ms"
    for line in done.stdout.splitlines():
        if words in line:
            within(line, mpi_cases.DEADLINE_MS)
    assert "signal 9" in done.stderr or words in done.stdout
