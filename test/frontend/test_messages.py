# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages of the runtime say what they say in Python's words (stepc/_words.py)."""

import re
from pathlib import Path

import pytest
from stepc import _library, errors
from stepc._words import NAMES, STRUCTURES, in_python

ROOT = Path(__file__).resolve().parents[2]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
OF_C = re.compile(r"\b[sS]tepc[A-Z]\w*|--[a-z]+(?:-[a-z]+)*")


def literals(path):
    """Those of a file of C++, put together where the lines break."""
    text = re.sub(r"//.*", "", path.read_text())
    return LITERAL.findall(re.sub(r'"\s*\n\s*"', "", text))


def spoken():
    """Names of the C interface, and flags, in what the library says."""
    files = [p for p in (ROOT / "runtime").rglob("*") if p.suffix in (".cpp", ".h")]
    assert len(files) > 100
    return {name for path in files for text in literals(path) for name in OF_C.findall(text)}


def test_each_name_of_c_has_a_word_of_python():
    found = spoken()
    assert len(found) >= 20
    assert found - {*NAMES, *STRUCTURES} == set()


def test_no_word_of_python_is_of_c():
    for name in (*NAMES, *STRUCTURES):
        assert not OF_C.search(in_python(f"{name} while the stream captures a graph"))


def test_no_word_is_left_over():
    headers = sorted((ROOT / "runtime" / "include" / "stepc").glob("*.h"))
    declared = "\n".join(path.read_text() for path in headers)
    for name in (*NAMES, *STRUCTURES):
        assert name.startswith("--") or re.search(rf"\b{name}\b", declared), name


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("call stepcPlanUpload before", "call upload() before"),
        ("stepcPlanBind between stepcStepBegin and stepcStepEnd",
         "binding tensors between the begin of a step in parts and the end of a step in parts"),
        ("tensor 'stepcStep': it is small", "tensor 'stepcStep': it is small"),
        ("package 'a/stepcStep.stepc' is empty", "package 'a/stepcStep.stepc' is empty"),
        ("which --exclusive-writes promises", "which exclusive_writes=True promises"),
    ],
)  # fmt: skip
def test_words(said, expected):
    assert in_python(said) == expected


def test_an_exception_has_them():
    library = _library.load_library()
    status = library.stepcPlanUpload(None)
    with pytest.raises(errors.StepcError) as refused:
        _library.check(library, status)
    assert not OF_C.search(str(refused.value))


def test_statuses_are_those_of_the_header():
    header = (ROOT / "runtime" / "include" / "stepc" / "stepc.h").read_text()
    statuses = set(re.findall(r"^  (STEPC_\w+) = \d+", header, re.M))
    assert len(statuses) > 15
    for path in (ROOT / "frontend" / "stepc").rglob("*.py"):
        for name in re.findall(r'"(STEPC_[A-Z_]+)"\s*(?:,\s*)?\)', path.read_text()):
            if "environ" not in path.read_text().split(f'"{name}"')[0][-40:]:
                assert name in statuses, f"{path.name}: {name}"
