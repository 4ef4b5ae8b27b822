# The tables of docs/deepspeed.md: what frontend/stepc/torch/deepspeed/keys.py says of every key,
# between `<!-- keys -->` and `<!-- end -->`. It needs no torch.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import importlib
import itertools
import json
import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "deepspeed.md"
BLOCK = re.compile(r"(<!-- keys -->\n).*?(<!-- end -->)", re.S)
HEADINGS = {
    "acted on": ("Acted on", "becomes"),
    "the engine's": ("The engine's: named, and yours to do", "what"),
    "without meaning here": ("Without meaning here: named", "what"),
    "refused": ("Refused with another value than the default", "why, or what instead"),
}


def read():
    """The module with the table of keys, without the package that it is in."""
    package = types.ModuleType("ds_config_keys")
    package.__path__ = [str(ROOT / "frontend" / "stepc" / "torch" / "deepspeed")]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.keys")


def default(value):
    """As it stands in a file."""
    if value == 2**63 - 1:
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000_000:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return json.dumps(value)


def block(row):
    return row[0].rpartition(".")[0]


def tables(keys):
    for done, (heading, column) in HEADINGS.items():
        yield f"\n### {heading}\n\n| block | key (default) | {column} |\n|---|---|---|"
        rows = [(name, key) for name, key in keys.KEYS.items() if key.done == done]
        for (owner, words), some in itertools.groupby(rows, lambda row: (block(row), row[1].words)):
            names = [f"`{n.rpartition('.')[2]}` ({default(key.default)})" for n, key in some]
            yield f"| {f'`{owner}`' if owner else ''} | {', '.join(names)} | {words} |"


def page():
    """The page with the tables made anew."""
    text = PAGE.read_text()
    if not BLOCK.search(text):
        sys.exit("docs/deepspeed.md has no place for the tables of keys.py")
    made = "\n".join(tables(read()))
    return BLOCK.sub(lambda match: f"{match[1]}{made}\n\n{match[2]}", text)
