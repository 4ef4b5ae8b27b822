"""The benchmark's harness runs and writes what it says. No time is judged here.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tools" / "bench" / "run.py"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench results")  # a path with a space
    command = [sys.executable, str(RUN), "--shapes", "smoke", "--modes", "default,heap-kept"]
    command += ["--peers", "fused,foreach", "--rounds", "1", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, json.loads((folder / "bench.json").read_text())


def test_every_case_is_there(outcome):
    _, _, results = outcome
    cases = [(case["shape"], case["dtype"], case["mode"]) for case in results["cases"]]
    smoke = [("smoke", d, m) for d in ("f32", "bf16") for m in ("default", "heap-kept")]
    assert cases == [*smoke, ("host", "f32", "default")]


def test_contestants_have_a_value_a_round(outcome):
    _, _, results = outcome
    for case in results["cases"]:
        assert {"stream", "fused"} <= set(case["seconds"])
        for name, seconds in case["seconds"].items():
            assert len(seconds) == len(case["stream_beside"][name]) == 1
            assert case["summary"][name]["ratio"] > 0


@pytest.mark.skipif(
    not os.path.exists(os.environ.get("STEPC_COMPILER", ROOT / "build" / "bin" / "stepc")),
    reason="the compiler is not built",
)
def test_ours_take_part(outcome):
    _, _, results = outcome
    for case in results["cases"]:
        assert not set(case["absent"]) & {"kernel", "stepc", "stepc-static"}, case["absent"]
    assert results["compile"]["warm_median"] > 0
    assert results["compile"]["cache_hit_median"] > 0


def test_every_target_is_judged(outcome):
    _, printed, results = outcome
    assert len(results["targets"]) == 8
    for target in results["targets"]:
        assert target["name"] in printed


def test_files_are_written(outcome):
    folder, printed, _ = outcome
    assert (folder / "bench.txt").read_text() in printed
    assert (folder / "bench.png").read_bytes()[:4] == b"\x89PNG"


def test_unknown_names_are_refused():
    done = subprocess.run(
        [sys.executable, str(RUN), "--shapes", "nosuch"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown shape 'nosuch'" in done.stderr
