# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs on random meshes, with random placements, beside the unsharded run.

STEPC_RANK_PROGRAMS=1000 runs more; ``tools/fuzz/run.py --ranks`` as long as it is told.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cases import make_case, make_setting
from engine import run_programs, write
from rank_engine import describe, run_ranked, share
from report import explain
from samples import number
from seeds import make_program
from shrink import smaller_settings
from spread import NAMES, make_sharded, spread_setting

ROOT = Path(__file__).resolve().parents[2]
NUMBER = int(os.environ.get("STEPC_RANK_PROGRAMS", number(40, 120)))
LAYOUTS = max(NUMBER, 60)  # that are made and not run


def test_random_programs_on_ranks(tmp_path, capsys):
    tally = Counter()
    failures = run_programs(range(NUMBER), tmp_path, part=10, run=run_ranked, tally=tally)
    texts = [explain(failure.seed, tmp_path / "kept", ranks=True) for failure in failures[:3]]
    texts += [f"seed {failure.seed}: {failure.text}" for failure in failures[3:]]
    assert not failures, f"{len(failures)} of {NUMBER} programs\n" + "\n".join(texts)
    with capsys.disabled():
        print(f"\n{describe(tally)}")
    # None is left out, and the bound is not what makes them pass.
    assert tally["bits"] + tally["bound"] + tally["both"] == NUMBER
    assert tally["both"] > 0.1 * NUMBER and tally["again"] > 0
    assert share(tally, "1") > 0.999 and share(tally, "n") > 0.99
    assert tally["wide"] < 0.25 * tally["bounded"]
    assert tally["refused"] <= 0.1 * NUMBER


def settings(number):
    for seed in range(number):
        program = make_program(seed)
        yield program, spread_setting(program, make_setting(program))


def test_layouts_have_everything(tmp_path):
    """What the generator is for is in the layouts of the check."""
    found = set()
    for program, setting in settings(LAYOUTS):
        sharded = make_sharded(make_case(program, setting, write(program, tmp_path)), setting)
        found.add(("ranks", sharded.world))
        found.add(("axes", len(setting.mesh)))
        kinds = set()
        for tensor, placement in zip(setting.tensors, sharded.placements, strict=True):
            cut = "flat" if tensor.spread.flat else "dims" if tensor.spread.dims else "whole"
            kinds.add(cut)
            found.add((cut, tensor.spread.cuts))
            found.add(("distinct", bool(placement.at)))
            axes = [len(axes) for axes in tensor.spread.dims.values()]
            found.add(("dims", len(axes), max(axes, default=0)))
            found.add((cut, tensor.spread.flat))
        found.add(("mixed", len(kinds)))
    wanted = {*(("ranks", n) for n in range(1, 9)), ("axes", 1), ("axes", 2), ("axes", 3),
              ("mixed", 3), ("flat", "even"), ("flat", "random"), ("flat", "owner"),
              ("dims", "even"),
              ("dims", "random"), ("distinct", True), ("dims", 2, 1), ("dims", 1, 2),
              ("flat", NAMES), ("flat", NAMES[::-1]), ("flat", NAMES[:1])}  # fmt: skip
    assert wanted - found == set()


def test_shrinking_reaches_one_whole_tensor():
    """Every mesh and layout can be made less, down to none."""
    for _, setting in settings(number(4, 10)):
        while smaller := list(smaller_settings(setting)):
            setting = smaller[-1]
        [tensor] = setting.tensors
        assert setting.mesh == (1,)
        assert (tensor.spread.flat, tensor.spread.dims, tensor.spread.at) == ((), {}, {})


def test_a_part_that_is_counted_twice_is_found(tmp_path):
    """With the runtime that takes a part over some dims for one over all of them."""
    library = Path(os.environ.get("STEPC_BUILD", ROOT / "build")) / "lib/libstepc_runtime_faulty.so"
    fault = "shard-part-over-one-dim-counted-over-all"
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "fuzz" / "run.py", "--ranks", "--seed=8",
         "--programs=8", "--shrink=0", "--keep", tmp_path],
        env={**os.environ, "STEPC_RUNTIME_LIBRARY": str(library), "STEPC_FAULT": fault},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    assert ", unsharded " in run.stdout
