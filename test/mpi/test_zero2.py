# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/examples/zero2.cpp: ranks of MPI train as one process does that takes their batches in
order, to the last bit."""

import subprocess

import pytest
from mpi_cases import ROOT
from mpi_world import BUILD
from steps import STEPC
from test_mpi import mpirun, needs_mpi

ZOO = ROOT / "frontend" / "optimizers"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    program = tmp_path_factory.mktemp("zero2") / "zero2"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'runtime/include'}"]
    libraries = [f"-L{BUILD / 'lib'}", "-lstepc_mpi", "-lstepc_runtime"]
    source = ROOT / "tools" / "examples" / "zero2.cpp"
    command = ["mpicxx", *flags, source, *libraries, f"-Wl,-rpath,{BUILD / 'lib'}", "-o", program]
    subprocess.run(command, check=True)
    return program


def compile_package(folder, *flags):
    package = folder / "zero2.stepc"
    subprocess.run([STEPC, ZOO / "adamw.mlir", *flags, "-o", package], check=True)
    return package


CLIP = f"--fragment={ZOO / 'fragments' / 'clip_by_norm.mlir'}"
CASES = {
    "adamw": [],
    # With a round, so that no bucket is stepped before the last has come.
    "clipped": [CLIP, "--reproducible"],
}


@needs_mpi
@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_one_process(program, tmp_path, case):
    package = compile_package(tmp_path, *CASES[case], "--layout=zero2")
    for ranks, batches in [(4, 4), (3, 3)]:
        runs = [mpirun([program, package, batches], processes) for processes in (ranks, 1)]
        for run in runs:
            assert run.returncode == 0, run.stderr[-3000:]
        assert runs[0].stdout == runs[1].stdout
        first, *_, last, _ = runs[0].stdout.splitlines()
        assert float(last.split()[-1]) < float(first.split()[-1]) / 20


@needs_mpi
def test_a_package_without_exchanges(program, tmp_path):
    package = compile_package(tmp_path)
    run = mpirun([program, package], 2, seconds=60)
    assert run.returncode != 0
    words = "tensor 'shift': the package has no variant for param f32, grad f32, reduce_scatter of "
    assert words + "f32 by f32, all_gather" in run.stderr
