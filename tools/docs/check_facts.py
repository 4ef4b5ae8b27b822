#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares facts that the documents state with the code.

    .venv/bin/python tools/docs/check_facts.py [FILE.md...]

Names need no mark: whatever looks like a function of C, a status, a variable of the environment,
a flag, a path, a pass, an operation or something of ``stepc`` is looked up where that is made
(facts_of_code.py). Of numbers those are compared that NUMBERS lists, with the words around them.
Structures of C that a page shows have the header's fields, examples of messages are what the
runtime says. Documents are docs/*.md and README.md; of sources in C++ the numbers in comments are
compared, of Python what is given as a status.
"""

from __future__ import annotations

import fnmatch
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import facts_of_code as facts
from facts_of_code import ROOT, macro, number

# The words around a number, and what it is. Spaces stand for any space or line end.
NUMBERS: list[tuple[str, Callable[[], str]]] = [
    (r"[Kk]ernel ABI,? version (\d+)", lambda: macro("STEPC_KERNEL_ABI_VERSION")),
    (r"\"kernel_abi\": (\d+)", lambda: macro("STEPC_KERNEL_ABI_VERSION")),
    (r"[Mm]anifest, format (\d+)", lambda: manifest_format()),
    (r"this runtime reads format (\d+)", lambda: manifest_format()),
    (r"\"format\": (\d+)", lambda: manifest_format()),
    (r"[Ss]ources nest (\d+)", lambda: most_nested()),
    (r"block has (\d+) threads", lambda: macro("STEPC_BLOCK_THREADS")),
    (r"what differs, (\d+) words", lambda: macro("STEPC_STORE_WORDS")),
    (r"seconds that a compilation may take \((\d+)\)", lambda: compile_timeout()),
    (r"`bucket_bytes` \((\d+) MiB\)", lambda: constant("_mesh", "BUCKET_BYTES")),
    (r"States of up to (\d+) elements", lambda: constant("_store", "SMALL")),
    (r"What was not read for (\d+) days", lambda: constant("_cache_files", "_KEEP_DAYS")),
    (r"is waited for (\d+) s\b", lambda: constant("_cache_lock", "_SILENCE")),
    (r"less than about (\d+) KiB", lambda: number("runtime/cpu/Workers.cpp", r"Weight = (\d+)")),
    (r"and (\d+) random programs", lambda: programs("test_fuzz")),
    (r"(\d+) are run in each check", lambda: programs("test_fuzz")),
    (r"(\d+) programs are run in each check", lambda: programs("test_ranks")),
    (r"on a mesh of 1 to (\d) ranks", lambda: largest_mesh()),
    (r"Adafactor (\d+), CAME \d+, an elementwise", lambda: facts.rounds("adafactor", "zero1")),
    (r"Adafactor \d+, CAME (\d+), an elementwise", lambda: facts.rounds("came", "zero1")),
    (r"trails them: Adafactor (\d+), CAME", lambda: facts.rounds("adafactor", "fsdp2")),
    (r"trails them: Adafactor \d+, CAME (\d+)", lambda: facts.rounds("came", "fsdp2")),
    (r"along m: (\d+) rounds, and", lambda: facts.rounds("adafactor", "-2=dp,-1=tp")),
    (r"rounds, and (\d+) for CAME", lambda: facts.rounds("came", "-2=dp,-1=tp")),
    (r"in both dims Adafactor needs (\d+)", lambda: facts.rounds("adafactor", "-2=dp,-1=tp")),
    (r"Adafactor needs \d+ rounds and CAME (\d+)", lambda: facts.rounds("came", "-2=dp,-1=tp")),
    (r"Python (3\.\d+) or newer", lambda: least_python()),
]
BACKTICKS = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(
    r"(?:^|[ \"(/`])(python -m stepc|stepc(?:-run|-opt|-plan)?|tools/[\w./-]+\.(?:py|sh)) "
    r"([^|;&#]*)"
)
SOURCE = re.compile(r"^[\w*-]+\.(?:cpp|h|td|def|py|sh|test)$")
EXAMPLES = {"train.py", "cuda.h", "nccl.h"}  # of the reader, and of others
PLACEHOLDERS = {"X", "LIBRARY"}  # in names of Python
# What was not made may have a name that nothing has.
REJECTED = re.compile(r"^\*Rejected\.\*.*?(?=^$|\Z)", re.M | re.S)
Found = Iterator[tuple[int, str]]


def manifest_format() -> str:
    return number("runtime/core/ManifestReader.cpp", r"kFormat = (\d+)")


def most_nested() -> str:
    return number("dialect/Nesting.h", r"kMostNested = (\d+)")


def compile_timeout() -> str:
    return number("frontend/stepc/_compiler.py", r"DEFAULT_TIMEOUT = (\d+)")


def least_python() -> str:
    return number("pyproject.toml", r"requires-python = \">=([\d.]+)\"")


def constant(module: str, name: str) -> str:
    return number(f"frontend/stepc/{module}.py", rf"(?m)^{name} = (\d+)")


def programs(module: str) -> str:
    return number(f"test/fuzz/{module}.py", r"NUMBER = .*?(\d+)")


def largest_mesh() -> str:
    meshes = number("test/fuzz/spread.py", r"(?s)MESHES = \[(.*?)\]")
    found = (map(int, re.findall(r"\d+", mesh)) for mesh in re.findall(r"\(([\d, ]+)\)", meshes))
    return str(max(math.prod(mesh) for mesh in found))


def without_space(text: str) -> str:
    """Line ends as spaces, of which a number may have one in its words."""
    return re.sub(r"\n(?:[ ]*(?://+|\*|#)?[ ]*)", lambda m: " " * len(m[0]), text)


def lines_of(text: str, pattern: re.Pattern | str) -> Iterator[tuple[int, re.Match]]:
    for match in re.finditer(pattern, text):
        yield text.count("\n", 0, match.start()) + 1, match


# --- What looks like a name -------------------------------------------------------


def check_names_of_c(text: str) -> Found:
    for line, match in lines_of(text, r"(?<![\w/-])[sS]tepc[A-Z]\w*"):
        if match[0] not in facts.names_of_c():
            yield line, f"'{match[0]}' is in no header of runtime/include"


def check_constants(text: str) -> Found:
    known = facts.statuses() | facts.constants() | facts.variables()
    for line, match in lines_of(text, r"(?<![\w-])STEPC_\w+\b(?!\*)"):
        if match[0] not in known:
            yield line, f"'{match[0]}' is no status, constant or variable of the environment"


def check_flags(text: str) -> Found:
    for line, match in lines_of(text, r"(?<![\w`-])`?(--[a-z][\w-]*)(?=[\s=`,.;:)\]]|$)"):
        name = match[1]
        if name not in facts.flags() and name[2:] not in facts.passes():
            yield line, f"no program has the flag '{name}'"


def check_commands(text: str) -> Found:
    """Flags of a program that is named before them, in backticks or as a line of its own."""
    spans = [(line, m[1]) for line, m in lines_of(text, BACKTICKS)]
    spans += [(n, own) for n, own in enumerate(text.splitlines(), 1) if own.startswith("    ")]
    spans += [(n, own) for n, own in enumerate(text.splitlines(), 1) if COMMAND.match(own)]
    for line, span in spans:
        for match in COMMAND.finditer(span):
            program, arguments = match[1], match[2]
            if program.startswith("tools/") and not (ROOT / program).is_file():
                yield line, f"there is no '{program}'"
                continue
            # Behind `--` stand arguments of the compiler.
            own, _, behind = arguments.partition(" -- ")
            for named, text_of in ((program, own), ("stepc", behind)):
                for flag in re.findall(r"(?<![\w-])--([a-z][\w-]*)", text_of):
                    known = flag in facts.flags_of(named) or f"--{flag}" in facts.FOREIGN_FLAGS
                    if not known:
                        yield line, f"'{named}' has no flag '--{flag}'"


def check_passes(text: str) -> Found:
    for line, match in lines_of(text, r"(?<![\w./-])step-[a-z]+(?:-[a-z0-9]+)+(?![\w-])"):
        if match[0] not in facts.passes():
            yield line, f"there is no pass or pipeline '{match[0]}'"


def check_operations(text: str) -> Found:
    for line, match in lines_of(text, r"(?<![\w.\"'/-])step\.[a-z]\w*(?![\w(.=-])"):
        if match[0] not in facts.operations():
            yield line, f"there is no operation '{match[0]}'"


def check_python(text: str) -> Found:
    for line, match in lines_of(text, r"(?<![\w/.-])stepc(?:\.[A-Za-z]\w*)+"):
        if PLACEHOLDERS & {*match[0].split(".")}:
            continue
        if not facts.has_python(match[0]) and not match[0].endswith((".h", ".stepc")):
            yield line, f"there is no '{match[0]}'"
    own = r"`(?:opt|optimizer)\.([a-z]\w*)"
    for line, match in lines_of(text, own):
        if match[1] not in facts.attributes_of_optimizers():
            yield line, f"an optimizer has no '{match[1]}'"


STRUCTURE = r"typedef (?:struct|enum) (\w+) \{(.*?)\} \1;"


def fields_of(body: str) -> list[str]:
    """Of a structure or an enumeration, in order; with the values of the latter."""
    body = re.sub(r"/\*.*?\*/|//[^\n]*", "", body, flags=re.S)
    if ";" not in body:
        return [" ".join(own.split()) for own in body.split(",") if own.strip()]
    found = re.findall(r"\(\*(\w+)\)\(|(\w+)(?:\[\w*\])?;", body)
    return [pointer or name for pointer, name in found]


def check_structures(text: str) -> Found:
    """Those of C that a page shows have the fields of the header's."""
    known = {name: fields_of(body) for name, body in re.findall(STRUCTURE, facts.headers(), re.S)}
    for line, match in lines_of(text, re.compile(STRUCTURE, re.S)):
        if match[1] in known and fields_of(match[2]) != known[match[1]]:
            yield line, f"'{match[1]}' has the fields {', '.join(known[match[1]])}"
    for line, match in lines_of(text, r"(?m)^(Stepc\w+) \{ (.*?) \}$"):
        if match[1] in known and match[2].split(", ") != known[match[1]]:
            yield line, f"'{match[1]}' has the fields {', '.join(known[match[1]])}"


def check_messages(text: str) -> Found:
    """Examples of what the runtime says beside a status, in a table."""
    for line, match in lines_of(text, r"(?m)^\| `(STEPC_\w+)` \| `(.*)` \|$"):
        for said in match[2].split("`; `"):
            if not any(own.search(said) for own in facts.messages()):
                yield line, f"the runtime does not say '{said}'"


# --- Files ------------------------------------------------------------------------


# From where documents name a path: "core/Exchange.h" of the runtime.
TOPS = ("", "runtime/", "passes/", "dialect/", "frontend/", "frontend/stepc/", "runtime/include/",
        "test/", "tools/")  # fmt: skip


def is_there(name: str) -> bool:
    """A file or folder, which may have stars."""
    names = {str(path) for path in facts.files()}
    names |= {str(parent) for path in facts.files() for parent in path.parents}
    wanted = name.rstrip("/")
    if "*" in wanted:
        return any(fnmatch.filter(names, top + wanted) for top in TOPS)
    return any(top + wanted in names for top in TOPS)


def check_paths(text: str) -> Found:
    tops = {path.parts[0] for path in facts.files()} | {"core", "cuda", "cpu", "nccl", "lower"}
    bare = {path.name for path in facts.files()}
    for line, match in lines_of(text, BACKTICKS):
        name = (match[1].split() or [""])[0].rstrip(",.;:")
        if "NAME" in name or name in EXAMPLES:
            continue
        if "/" in name:
            known = name.split("/")[0] not in tops or not re.fullmatch(r"[\w./*-]+", name)
            if not known and not is_there(name):
                yield line, f"there is no '{name}'"
        elif SOURCE.match(name) and not fnmatch.filter(bare, name):
            yield line, f"there is no file '{name}'"


def anchors(page: Path) -> set[str]:
    """Of the headings, as a renderer makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {name.strip().replace(" ", "-") for name in plain}


def check_links(text: str, page: Path) -> Found:
    for line, match in lines_of(text, r"\]\(([^)\s]+)\)"):
        target, _, anchor = match[1].partition("#")
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield line, f"the link '{match[1]}' leads nowhere"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            yield line, f"'{path.name}' has no heading '#{anchor}'"


# --- Numbers ----------------------------------------------------------------------


def check_numbers(text: str) -> Found:
    joined = without_space(text)
    for pattern, get in NUMBERS:
        for match in re.finditer(pattern.replace(" ", r"\s+"), joined):
            if match[1] != (expected := get()):
                line = text.count("\n", 0, match.start()) + 1
                yield line, f"'{' '.join(match[0].split())}', but the code says {expected}"


OF_DOCUMENTS = (
    check_names_of_c,
    check_structures,
    check_messages,
    check_constants,
    check_flags,
    check_commands,
    check_passes,
    check_operations,
    check_python,
    check_paths,
    check_numbers,
)


def comments(path: Path) -> str:
    """A source of C++ with nothing but its comments, line by line."""
    return "\n".join(
        line if re.match(r"\s*(//|/?\*)", line) else "" for line in path.read_text().splitlines()
    )


def check_page(page: Path) -> list[str]:
    text = REJECTED.sub(lambda own: "\n" * own[0].count("\n"), page.read_text())
    found = [one for check in OF_DOCUMENTS for one in check(text)] + [*check_links(text, page)]
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    return [f"{name}:{line}: {words}" for line, words in sorted(set(found))]


def check_statuses(text: str) -> Found:
    """What Python gives as a status is one."""
    for line, match in lines_of(text, r"\"(STEPC_\w+)\""):
        if match[1] not in facts.statuses() and is_status(text, match):
            yield line, f"'{match[1]}' is no status"


def is_status(text: str, match: re.Match) -> bool:
    """An argument of an error, behind its words: no name that the environment is asked for."""
    raised = text.rfind("raise ", 0, match.start())
    return (
        raised >= 0
        and "\n\n" not in text[raised : match.start()]
        and (text[: match.start()].rstrip().endswith(","))
    )


def check_complete() -> Found:
    """What docs/architecture.md lists whole: flags of the compiler, variables of the frontend; and
    statuses of docs/abi.md."""
    statuses = (ROOT / "docs" / "abi.md").read_text()
    for name in sorted(facts.statuses() - {"STEPC_OK"}):
        if f"| `{name}` |" not in statuses:
            yield 1, f"the status '{name}' is not listed"
    page = (ROOT / "docs" / "architecture.md").read_text()
    for flag in sorted(facts.options_of_stepc()):
        if f"--{flag}" not in page:
            yield 1, f"the compiler's flag '--{flag}' is not listed"
    for name in sorted(facts.variables_of_frontend()):
        if f"`{name}" not in page:
            yield 1, f"the variable '{name}' is not listed"


def check_quoted() -> Found:
    """A number that no document quotes any more checks nothing: its words have changed."""
    text = "\n".join(without_space(page.read_text()) for page in documents())
    for pattern, _ in NUMBERS:
        if not re.search(pattern.replace(" ", r"\s+"), text):
            yield 1, f"no document has the words '{pattern}', which NUMBERS looks for"


def documents() -> list[Path]:
    return [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def main() -> int:
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    wrong = []
    if not pages:
        pages = documents()
        for path in facts.files():
            if path.suffix in (".h", ".cpp", ".td", ".def") and path.parts[0] != "test":
                found = check_numbers(comments(ROOT / path))
            elif path.suffix == ".py" and path.parts[0] == "frontend":
                found = check_statuses((ROOT / path).read_text())
            else:
                continue
            wrong += [f"{path}:{line}: {words}" for line, words in found]
        wrong += [f"docs: {words}" for _, words in [*check_complete(), *check_quoted()]]
    for page in pages:
        wrong += check_page(page)
    print(
        "\n".join([*wrong, f"{len(pages)} documents, {len(wrong)} facts that the code contradicts"])
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
