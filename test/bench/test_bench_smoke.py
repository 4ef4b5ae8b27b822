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


def test_every_optimizer_of_torch_takes_part_in_each_of_its_ways():
    """torch's for-loop, foreach and, where it has it, fused; and each can be stepped."""
    code = """
import torch
from optimizers import ENTRIES, FAMILIES
zoo = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax NAdam RAdam RMSprop Rprop SGD".split()
for name in zoo:
    family = FAMILIES[name.lower()]
    assert {"gpt2", "tiny"} <= set(family.shapes), name
    ways = [w for p in family.peers for w in ("for-loop", "foreach", "fused") if p.endswith(w)]
    fused = ["fused"] if name in ("Adagrad", "Adam", "AdamW", "SGD") else []
    ways += ["for-loop"] * ("torch-adafactor" in family.peers)
    assert sorted(ways) == sorted(["for-loop", "foreach", *fused]), name
    for peer in family.peers:
        if ENTRIES[peer].needs == "torch":
            param = torch.nn.Parameter(torch.ones(3, 4))
            param.grad = torch.ones(3, 4)
            ENTRIES[peer].make([param]).step()
            assert (param < 1.0).all(), peer
for name in ("lion", "peer-adams"):
    assert {"gpt2", "tiny"} <= set(FAMILIES[name].shapes), name
adams = {ENTRIES[name].label for name in FAMILIES["peer-adams"].ours}
assert {"stepc colossal.HybridAdam", "stepc colossal.CPUAdam", "stepc colossal.FusedAdam"} < adams
assert {"fused", "foreach", "for-loop"} <= set(FAMILIES["peer-adams"].peers)
"""
    env = {**os.environ, "PYTHONPATH": str(RUN.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench results")  # a path with a space
    command = [sys.executable, str(RUN), "--shapes", "smoke", "--optimizers", "adamw,came"]
    command += ["--dtypes", "bf16", "--modes", "default,heap-kept"]
    command += ["--peers", "fused,came-pytorch", "--rounds", "1", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout, json.loads((folder / "bench.json").read_text())


def test_every_case_is_there(outcome):
    _, _, results = outcome
    cases = [tuple(case[k] for k in ("family", "shape", "mode")) for case in results["cases"]]
    smoke = [(f, "smoke", m) for f in ("adamw", "came") for m in ("default", "heap-kept")]
    assert cases == [*smoke, ("adamw", "host", "default")]


def test_contestants_have_a_value_a_round(outcome):
    _, _, results = outcome
    for case in results["cases"]:
        assert "stream" in case["seconds"]
        assert ("fused" in case["seconds"]) == (case["family"] == "adamw")
        for name, seconds in case["seconds"].items():
            assert len(seconds) == len(case["stream_beside"][name]) == 1
            assert case["rounds"][name] == [0]
            assert case["summary"][name]["ratio"] > 0


@pytest.mark.skipif(
    not os.path.exists(os.environ.get("STEPC_COMPILER", ROOT / "build" / "bin" / "stepc")),
    reason="the compiler is not built",
)
def test_ours_take_part(outcome):
    _, printed, results = outcome
    for case in results["cases"]:
        assert "stepc" in case["seconds"], case["absent"]
        ours = {"came": "stepc-came", "adamw": "kernel"}[case["family"]]
        assert case["summary"][ours]["of_adamw"] > 0
    assert results["compile"]["warm_median"] > 0
    assert results["compile"]["cache_hit_median"] > 0
    assert results["compile"]["zoo_slowest"] == max(results["compile"]["zoo_medians"].values())
    assert "ours at a glance" in printed


EVERY_ENTRY = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import case, contestants, optimizers, run
os.environ.update(run.environment("default"))
sys.path.insert(0, str(run.ROOT / "frontend"))
shape, dtype, folder = sys.argv[2:]
smoke = case.Case(shape, dtype, pathlib.Path(folder))
names = [
    name
    for name, entry in optimizers.ENTRIES.items()
    if contestants.why_absent(name) is None
    and (entry.kind == "limit" or entry.matrices == (shape == "smoke-matrices"))
]
seats, plans, absent = case.make_all(smoke, names, 9, 0.0)
assert absent == {}, absent
assert set(plans["stream"]) == {0, 4, 8}, plans
case.LARGE = 0  # made anew for each turn
seat = case.Seat(names[-1], smoke)
assert seat.kept is None and seat.turn()[0] > 0
print(len(names))
"""


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape, least", [("smoke", 30), ("smoke-matrices", 7)])
def test_every_contestant_steps(tmp_path, shape, least, dtype):
    arguments = [str(RUN.parent), shape, dtype, str(tmp_path)]
    program = [sys.executable, "-c", EVERY_ENTRY, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least


CHOSEN = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import run, summary, targets
keys = [key for key, names in run.cases(run.arguments())]
assert len(set(keys)) == len(keys)
assert set(keys) == {target.key for target in targets.TARGETS} - {None}, keys
seconds = {"a": [2.0, 9.0, 4.0], "b": [3.0, 2.0], "c": []}
case = {"seconds": seconds, "rounds": {"a": [0, 1, 2], "b": [1, 2], "c": []}}
assert summary.paired(case, "a", "b") == (9.0 / 3.0 + 4.0 / 2.0) / 2
assert summary.paired(case, "a", "b", "a") == (9.0 / 12.0 + 4.0 / 6.0) / 2
assert summary.paired(case, "a", "c") is None and summary.paired(case, "d", "a") is None
"""


def test_a_run_for_the_targets_has_their_cases():
    program = [sys.executable, "-c", CHOSEN, str(RUN.parent), "--targets"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_target_is_judged(outcome):
    _, printed, results = outcome
    assert len(results["targets"]) > 30
    assert len({target["name"] for target in results["targets"]}) == len(results["targets"])
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
