# The tables of docs/scaling.md: what stands between `<!-- stepc-plan ARGUMENTS -->` and
# `<!-- end -->` is what the command prints. The text around them is written by hand.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scaling.md"
BLOCK = re.compile(r"(<!-- stepc-plan (.*?) -->\n).*?(\n?<!-- end -->)", re.S)


def page():
    """The page with tables made anew."""
    sys.path.insert(0, str(ROOT / "frontend"))
    from stepc.plan.command import run

    def fill(match):
        # Places in the tree, which may lie where a path has spaces.
        arguments = [
            str(ROOT / word) if word.startswith("frontend/") else word
            for word in shlex.split(match[2])
        ]
        shown = f"`stepc-plan {match[2]}`"
        return f"{match[1]}\n{shown}\n\n{run(arguments)}\n<!-- end -->"

    return BLOCK.sub(fill, PAGE.read_text())
