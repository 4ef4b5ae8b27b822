# The tables of docs/arguments.md: what test/frontend/original_arguments.py says of classes and
# arguments of other libraries, between `<!-- arguments -->` and `<!-- end -->`. It needs no torch.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "arguments.md"
BLOCK = re.compile(r"(<!-- arguments -->\n).*?(<!-- end -->)", re.S)
sys.path.append(str(ROOT / "test" / "frontend"))

import original_arguments  # noqa: E402


def quoted(text):
    return ", ".join(f"`{word}`" for word in text.split())


def tables():
    recorded = json.loads((ROOT / "test" / "frontend" / "original_signatures.json").read_text())
    for library in original_arguments.MODULES:
        read = recorded.get(library)
        heading = f"{library}, read in {read['version']}" if read else f"{library}, as installed"
        rows = [row for row in original_arguments.SAID if row.origin == library]
        others = original_arguments.OTHERS.get(library, {})
        others = {name: own for name, own in others.items() if name != own}
        yield f"\n### {heading}\n"
        if not rows and not others:
            yield "Nothing differs."
            continue
        yield "| theirs | arguments | here |\n|---|---|---|"
        for own in dict.fromkeys(others.values()):
            names = " ".join(name for name, of in others.items() if of == own)
            yield f"| {quoted(names)} | | `stepc.torch.{own}` |"
        for row in rows:
            names = quoted(row.names) if row.names != "*" else "others"
            what = quoted(row.arguments) if row.arguments != "*" else ""
            yield f"| {names} | {what} | {row.here.removeprefix('others: ')} |"


def page():
    """The page with the tables made anew."""
    text = PAGE.read_text()
    if not BLOCK.search(text):
        sys.exit("docs/arguments.md has no place for the tables of original_arguments.py")
    made = "\n".join(tables())
    return BLOCK.sub(lambda match: f"{match[1]}{made}\n\n{match[2]}", text)
