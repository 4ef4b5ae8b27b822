"""What docs/tutorial.md says to do is done, and prints what it says.

Blocks are taken in order. One below `<!-- file: NAME -->` is written to that file; `sh`
is run, and `text` below it is what it prints: `...` stands for any lines, and numbers
with four decimals, which depend on the machine, are not compared.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w+)( setup)?\n(.*?)^```", re.M | re.S)


def as_pattern(text):
    """A regular expression for what a `text` block shows."""
    lines = []
    for line in text.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            escaped = re.sub(r"\d+\\\.\d{4}\b", r"[0-9.]+", re.escape(line))
            lines.append(escaped + r"\n")
    return "".join(lines)


def run(folder, commands):
    """What the commands print. The first block set up the shell at the tree's top."""
    (setup,) = [text for _, kind, is_setup, text in BLOCK.findall(TUTORIAL) if is_setup]
    script = f"set -eu\ncd '{ROOT}'\n{setup}\ncd '{folder}'\n{commands}"
    environment = os.environ | {"STEPC_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


def test_tutorial(tmp_path):
    printed, commands = None, ""
    compared = 0
    for name, kind, is_setup, text in BLOCK.findall(TUTORIAL):
        if name:
            (tmp_path / name).write_text(text)
        elif kind == "sh" and not is_setup:
            printed, commands = run(tmp_path, text), text
        elif kind == "text":
            assert printed is not None, f"nothing was run before:\n{text}"
            assert re.fullmatch(as_pattern(text), printed.rstrip() + "\n"), (
                f"{commands}\nprinted\n{printed}\ninstead of\n{text}"
            )
            printed = None
            compared += 1
    assert compared == TUTORIAL.count("\n```sh\n")


def test_every_example_is_a_file():
    """A definition that is shown and not written to a file would not be tried."""
    blocks = BLOCK.findall(TUTORIAL)
    assert all(name for name, kind, _, _ in blocks if kind in ("mlir", "python"))


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", TUTORIAL)
    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
