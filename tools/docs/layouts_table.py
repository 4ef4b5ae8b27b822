# The table of docs/distributed.md: what test/distributed/works.py says and its cases
# (works_cases.py, works_of_eight_cases.py) assert, between `<!-- works -->` and `<!-- end -->`.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "distributed.md"
BLOCK = re.compile(r"(<!-- works -->\n).*?(<!-- end -->)", re.S)


def page():
    """The page with the table made anew."""
    sys.path.insert(0, str(ROOT / "test" / "distributed"))
    from works import table

    text = PAGE.read_text()
    if not BLOCK.search(text):
        sys.exit("docs/distributed.md has no place for the table of works.py")
    return BLOCK.sub(lambda match: f"{match[1]}\n{table()}\n{match[2]}", text)
