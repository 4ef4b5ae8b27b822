# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a page of docs/tutorials says to do is done, and prints what it says.

Blocks are taken in order. One below `<!-- file: NAME -->` is written to that file; `sh`
is run, and `text` below it is what it prints: `...` stands for any lines, and numbers
with four decimals and digests of 16 digits, which depend on the machine, are not compared. The
block marked `setup` of the first page makes the tools of the tree known; an installed Stepc
does without.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "tutorials").glob("*.md"))}
FIRST = "own-optimizer"
BLOCK = re.compile(r"(?:^<!-- file: (\S+) -->\n)?^```(\w*)( setup)?\n(.*?)^```", re.M | re.S)


def setup() -> str:
    """The commands after which a shell at the tree's top finds its tools."""
    (text,) = [text for _, _, is_setup, text in BLOCK.findall(PAGES[FIRST]) if is_setup]
    return f"cd '{ROOT}'\n{text}"


def as_pattern(text):
    """A regular expression for what a `text` block shows."""
    lines = []
    for line in text.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            escaped = re.sub(r"\d+\\\.\d{4}\b", r"[0-9.]+", re.escape(line))
            lines.append(re.sub(r"\b[0-9a-f]{16}\b", r"[0-9a-f]{16}", escaped) + r"\n")
    return "".join(lines)


def run(folder: Path, commands: str, environment: dict[str, str]) -> str:
    """What the commands print."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -eu\n{commands}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


def follow(page: str, folder: Path, before: str, environment: dict[str, str]) -> None:
    """Does what the page says in a folder, after some commands, and compares."""
    # A compilation that takes long, as on a busy machine, would say so.
    own = {"STEPC_CACHE_DIR": str(folder / "cache"), "STEPC_LOG": "error"}
    environment = environment | own
    printed, commands = None, ""
    compared = 0
    for name, kind, is_setup, text in BLOCK.findall(PAGES[page]):
        if name:
            (folder / name).write_text(text)
        elif kind == "sh" and not is_setup:
            commands = f"{before}\ncd '{folder}'\n{text}"
            printed = run(folder, commands, environment)
        elif kind == "text":
            assert printed is not None, f"nothing was run before:\n{text}"
            assert re.fullmatch(as_pattern(text), printed.rstrip() + "\n"), (
                f"{commands}\nprinted\n{printed}\ninstead of\n{text}"
            )
            printed = None
            compared += 1
    assert compared >= PAGES[page].count("\n```text\n") > 1
