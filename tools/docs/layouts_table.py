# The tables of docs/distributed.md and docs/coming-from.md: what test/distributed/works.py says and
# its cases (works_cases.py, works_of_eight_cases.py) assert, between `<!-- works -->`, or
# `<!-- colossal -->`, and `<!-- end -->`.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "distributed.md"
COLOSSAL = ROOT / "docs" / "coming-from.md"


def _with(path, mark, table):
    """The page with the table made anew between its marks."""
    block = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.S)
    text = path.read_text()
    if not block.search(text):
        sys.exit(f"docs/{path.name} has no place for the table '{mark}' of works.py")
    return block.sub(lambda match: f"{match[1]}\n{table}\n{match[2]}", text)


def _works():
    sys.path.insert(0, str(ROOT / "test" / "distributed"))
    import works

    return works


def page():
    """docs/distributed.md: layouts and optimizers."""
    return _with(PAGE, "works", _works().table())


def colossal_page():
    """docs/coming-from.md: ColossalAI's optimizers and plugins."""
    return _with(COLOSSAL, "colossal", _works().colossal_table())
