# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/digests: what packages compute has the digests that were recorded, of one definition of
the zoo; a digest that differs, a case that is gone and one that is new are told.
"""

import runpy
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "digests" / "run.py"


def test_one_definition():
    run = subprocess.run(
        [sys.executable, TOOL, "compare", "lomo"], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    last = run.stdout.splitlines()[-1].split()
    assert last[0] == last[2] and int(last[0]) > 50, last


def test_what_is_told(capsys):
    report = runpy.run_path(str(TOOL))["report"]
    expected = {"whole came 0": "1", "whole came 1": "2", "whole lion+ema 0": "3"}
    assert report(expected, expected, ()) == 0
    capsys.readouterr()
    found = {"whole came 0": "1", "whole came 1": "4", "whole came 2": "5"}
    assert report(found, expected, ()) == 3
    assert capsys.readouterr().out.splitlines() == [
        "whole came 1: differs",
        "whole came 2: not recorded",
        "whole lion+ema 0: gone",
        "1 of 3 cases have the digest of before, 3 wrong",
    ]
    assert report(found, expected, ("came",)) == 1
    assert "whole came 1: differs, as its definition does" in capsys.readouterr().out
