# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the code says of itself: the names that it has, and numbers that documents quote.

check_facts.py holds the documents against it. Each fact is read where it is made (a header, a
parser of arguments, a definition of a pass), so that nothing is to be kept up to date here.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get("STEPC_FACTS_ROOT", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("STEPC_BUILD", ROOT / "build"))
FOLDERS = ("cmake", "dialect", "frontend", "passes", "runtime", "test", "tools")
# Of other programs that commands of the documents call, or of test/faults, which has its own.
FOREIGN_FLAGS = {
    "--test-dir", "--output-on-failure",  # ctest
    "--no-deps", "--no-index", "--find-links",  # pip
    "--nproc-per-node",  # torchrun
    "--fmad",  # ptxas
    "--build", "--prefix",  # cmake
}  # fmt: skip


PLAN = "frontend/stepc/plan/command.py"


def commands() -> list[str]:
    """The sources of ``python -m stepc``."""
    return [str(path) for path in files() if path.parent == Path("frontend/stepc/cli")]


def read(path: str) -> str:
    return (ROOT / path).read_text()


@functools.cache
def files() -> tuple[Path, ...]:
    """Those of the repository, relative to its top."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return tuple(p for p in map(Path, listed.stdout.splitlines()) if (ROOT / p).exists())


@functools.cache
def code(*, tests: bool = False) -> str:
    """All sources, one after the other; without tests, as they call for what is not there, too."""
    kinds = {".py", ".cpp", ".h", ".c", ".td", ".def", ".sh", ".cmake", ".txt", ".toml"}
    own = [p for p in files() if p.parts[0] in FOLDERS and p.suffix in kinds]
    if not tests:
        own = [p for p in own if not p.name.startswith("test_") and not p.stem.endswith("Test")]
    return "\n".join((ROOT / path).read_text(errors="replace") for path in own)


@functools.cache
def headers() -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "runtime/include").rglob("*.h")))


# --- Names ----------------------------------------------------------------------


@functools.cache
def names_of_c() -> frozenset[str]:
    """Functions, structures and types of the C interface."""
    return frozenset(re.findall(r"\b[sS]tepc[A-Z]\w*", headers()))


@functools.cache
def statuses() -> frozenset[str]:
    header = read("runtime/include/stepc/stepc.h").partition("} StepcStatus;")[0]
    return frozenset(re.findall(r"^  (STEPC_\w+) = \d+", header, re.M))


@functools.cache
def variables() -> frozenset[str]:
    """Of the environment: what some program asks it for."""
    asked = r"(?:getenv\(|environ\w*(?:\.\w+)?[\[(]|ENV\{)\s*\"?(STEPC_\w+)"
    everything = code(tests=True)
    found = set(re.findall(asked, everything))
    found |= set(re.findall(r"\"(STEPC_\w+)\" (?:not )?in os\.environ", everything))
    found |= set(re.findall(r"\$\{(STEPC_\w+)[:}-]", everything))
    # Asked for by a name: VARIABLE = "STEPC_CACHE_DIR", or as an argument of a function.
    return frozenset(found | (set(re.findall(r"\"(STEPC_\w+)\"", code())) - statuses()))


@functools.cache
def constants() -> frozenset[str]:
    """Of headers, macros of sources, and what CMake is told."""
    defined = r"#\s*define (STEPC_\w+)|\b(STEPC_\w+) = |option\((STEPC_\w+)|set\((STEPC_\w+)"
    return frozenset(
        name for row in re.findall(defined, headers() + code()) for name in row if name
    )


@functools.cache
def operations() -> frozenset[str]:
    """ "step.mul", and what is no operation but begins so: attributes, types and their words."""
    sources = "\n".join(path.read_text() for path in sorted((ROOT / "dialect").glob("*.td")))
    names = re.findall(r"Op<\"([\w.]+)\"", sources)
    for arguments in re.findall(r"(?:Type|Attr)<([^>{]*)", sources):
        names += re.findall(r"\"(\w+)\"", arguments)
    names += re.findall(r"\"step\.(\w+)\"", code())
    return frozenset(f"step.{name}" for name in names)


@functools.cache
def passes() -> frozenset[str]:
    """Passes, and pipelines of the stages."""
    named = re.findall(r"Pass<\"([\w-]+)\"", read("passes/Passes.td"))
    return frozenset(named + re.findall(r"\"(step-stage-\w+)\"", read("passes/Pipelines.cpp")))


@functools.cache
def flags_of(program: str) -> frozenset[str]:
    """Of a program of this repository: what it says of itself, or what its parser is told."""
    if program in ("stepc", "stepc-run", "stepc-opt"):
        path = BUILD / "bin" / program
        said = subprocess.run([path, "--help-hidden"], capture_output=True, text=True, check=True)
        return frozenset(re.findall(r"(?<![\w-])--?([a-zA-Z][\w-]*)", said.stdout))
    own = {"stepc-plan": [PLAN], "python -m stepc": [PLAN, *commands()]}
    text = "\n".join(map(read, own.get(program, [program])))
    return frozenset(re.findall(r"[\"' (]--([a-z][\w-]*)", text)) | {"help"}


@functools.cache
def options_of_stepc() -> frozenset[str]:
    """Its own, and none of LLVM's."""
    said = subprocess.run(
        [BUILD / "bin" / "stepc", "--help"], capture_output=True, text=True, check=True
    ).stdout.partition("options of stepc:")[2]
    return frozenset(re.findall(r"^  --([\w-]+)", said, re.M))


@functools.cache
def variables_of_frontend() -> frozenset[str]:
    own = [p for p in files() if p.parts[:2] == ("frontend", "stepc") and p.suffix == ".py"]
    text = "\n".join(read(str(path)) for path in own)
    return frozenset(re.findall(r"environ(?:\.get)?[\[(]\"(STEPC_\w+)", text))


@functools.cache
def flags() -> frozenset[str]:
    """Of any program of this repository."""
    found = set(re.findall(r"[\"' (\[]--([a-z][\w-]*)", code()))
    for program in ("stepc", "stepc-run", "stepc-opt"):
        found |= flags_of(program)
    return frozenset(f"--{name}" for name in found) | FOREIGN_FLAGS


def has_python(name: str) -> bool:
    """Whether "stepc.torch.hf.Adafactor" is there."""
    if str(ROOT / "frontend") not in sys.path:
        sys.path.insert(0, str(ROOT / "frontend"))
    parts = name.split(".")
    value = importlib.import_module(parts[0])
    for position, part in enumerate(parts[1:], start=2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:position]))
            except ModuleNotFoundError:
                return False
        value = getattr(value, part)
    return True


@functools.cache
def attributes_of_optimizers() -> frozenset[str]:
    """What an optimizer of stepc.torch has, some of them in the instance alone."""
    has_python("stepc.torch")
    import stepc.torch
    import torch

    made = [
        stepc.torch.AdamW([torch.nn.Parameter(torch.ones(2))]),
        stepc.torch.lomo.Lomo(torch.nn.Linear(2, 2), lr=1e-3),
    ]
    return frozenset(name for one in made for name in dir(one))


# --- Numbers --------------------------------------------------------------------


def number(path: str, pattern: str) -> str:
    """What the pattern's group is in a file; the pattern is to be found there."""
    found = re.search(pattern, read(path))
    if found is None:
        sys.exit(f"check_facts: {path} has no longer '{pattern}'")
    return found[1]


def macro(name: str) -> str:
    return number("runtime/include/stepc/kernel_abi.h", rf"#define {name} (\d+)")


@functools.cache
def rounds(definition: str, layout: str) -> str:
    """In which what crosses ranks does, as ``stepc --explain`` counts."""
    path = ROOT / "frontend" / "optimizers" / f"{definition}.mlir"
    flags = [f"--layout={layout}", "--explain=json", "--compile-to=schedule", "-o", os.devnull]
    command = [BUILD / "bin" / "stepc", path, *flags]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(json.loads(said.stdout)["ranks"]["rounds"])


_CONVERSION = re.compile(r"%(?:\.?\d+|\.\*)?(?:ll|z)?[a-z]")


@functools.cache
def messages() -> tuple[re.Pattern, ...]:
    """What the runtime says, where enough of the words are its own to tell."""
    own = [p for p in files() if p.parts[0] == "runtime" and p.suffix in (".cpp", ".h")]
    text = re.sub(r"//.*", "", "\n".join(read(str(path)) for path in own))
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*"', "", text))
    found = []
    for literal in {*literals}:
        words = _CONVERSION.split(literal)
        if len("".join(words)) >= 10 and " " in literal.strip():
            found.append(re.compile(".+".join(map(re.escape, words))))
    return tuple(found)
