# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tools/docs/check_facts.py finds each kind of fact that the code contradicts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "docs"))

import check_facts
from facts_of_code import ROOT

WRONG = {
    "a function of C": ("Call `stepcPlanReset`.", "'stepcPlanReset' is in no header"),
    "a structure of C": ("Fill a `StepcPlanOptions`.", "'StepcPlanOptions' is in no header"),
    "a status": ("It is `STEPC_BAD_ARGUMENT`.", "'STEPC_BAD_ARGUMENT' is no status, constant"),
    "a variable": ("Set `STEPC_CACHE_FOLDER=x`.", "'STEPC_CACHE_FOLDER' is no status, constant"),
    "a flag": ("Use `--exclusive`.", "no program has the flag '--exclusive'"),
    "a flag of a program": ("`stepc adamw.mlir --tensors=x`", "'stepc' has no flag '--tensors'"),
    "a flag of a block": ("    stepc-run x --explain", "'stepc-run' has no flag '--explain'"),
    "a flag of the compiler behind": (
        "`python -m stepc explain adamw --svg x -- --tensors=x`", "'stepc' has no flag '--tensors'",
    ),
    "a flag of a script": (
        "`tools/fuzz/run.py --hours 1`", "'tools/fuzz/run.py' has no flag '--hours'",
    ),
    "a script": ("`tools/fuzz/walk.py --seed 1`", "there is no 'tools/fuzz/walk.py'"),
    "a path": ("See `passes/lower/Nowhere.cpp`.", "there is no 'passes/lower/Nowhere.cpp'"),
    "a path of the runtime": ("See `core/Nowhere.h`.", "there is no 'core/Nowhere.h'"),
    "a file": ("See `Nowhere.cpp`.", "there is no file 'Nowhere.cpp'"),
    "a link": ("See [it](nowhere.md).", "the link 'nowhere.md' leads nowhere"),
    "a heading": ("# One\n[two](#two)", "has no heading '#two'"),
    "a pass": ("The pass `step-drop-states`.", "there is no pass or pipeline 'step-drop-states'"),
    "an operation": ("It is `step.clamp`.", "there is no operation 'step.clamp'"),
    "a class": ("`stepc.torch.AdaMax`", "there is no 'stepc.torch.AdaMax'"),
    "a module": ("`stepc.torch.fairscale.Adam`", "there is no 'stepc.torch.fairscale.Adam'"),
    "a method": ("Call `opt.flush()`.", "an optimizer has no 'flush'"),
    "the kernel ABI": ("Kernel ABI, version 3", "'Kernel ABI, version 3', but the code says"),
    "the ABI over a line's end": ("kernel ABI,\nversion 3", "'kernel ABI, version 3', but the"),
    "the manifest": ("The manifest, format 2", "but the code says 5"),
    "a block": ("A block has 128 threads", "but the code says 256"),
    "nesting": ("Sources nest 128 deep", "but the code says 256"),
    "a default": ("seconds that a compilation may take (60)", "but the code says 120"),
    "a size": ("`bucket_bytes` (16 MiB)", "but the code says 25"),
    "programs of a test": ("the zoo, and 400 random programs", "but the code says 120"),
    "a mesh": ("on a mesh of 1 to 9 ranks", "but the code says 8"),
    "fields": (
        "```c\ntypedef struct StepcAxis {\n  const char *name;\n  int64_t size;\n} StepcAxis;\n```",
        "'StepcAxis' has the fields name, size, coordinate",
    ),
    "values": (
        "```c\ntypedef enum StepcReduction { STEPC_SUM_F64 = 1 } StepcReduction;\n```",
        "'StepcReduction' has the fields STEPC_SUM_F64 = 0, STEPC_MAX_I64 = 1",
    ),
    "fields in a line": ("StepcCall { table, chunks, workspace }", "'StepcCall' has the fields"),
    "a message": (
        "| `STEPC_BUSY` | `somebody else has the plan` |", "the runtime does not say 'somebody",
    ),
    "rounds": ("clipping 1, Adafactor 3, CAME 3, an elementwise rule none", "the code says 2"),
    "Python": ("Python 3.8 or newer", "but the code says 3.10"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_found(kind, tmp_path):
    page = tmp_path / "page.md"
    text, words = WRONG[kind]
    page.write_text(f"Before.\n\n{text}\n\nBehind.\n")
    found = check_facts.check_page(page)
    assert any(words in one for one in found), found
    last = 3 + text.count("\n")
    assert all(3 <= int(one.removeprefix(f"{page}:").split(":")[0]) <= last for one in found)


def test_what_was_rejected_may_have_any_name(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("*Rejected.* `step.if`, and\n`step-hide`.\n\nAnd `step.unless`.\n")
    (found,) = check_facts.check_page(page)
    assert found.endswith(":4: there is no operation 'step.unless'")


def test_statuses_of_python():
    text = 'raise errors.PackageError(\n    "words",\n    "STEPC_BAD_ARGUMENT",\n)\n'
    assert [*check_facts.check_statuses(text)] == [(3, "'STEPC_BAD_ARGUMENT' is no status")]
    assert not [*check_facts.check_statuses(text.replace("BAD", "INVALID"))]
    assert not [*check_facts.check_statuses('os.environ.get("STEPC_CACHE_DIR", "")')]


def test_comments_of_sources(tmp_path):
    source = tmp_path / "x.h"
    source.write_text("int x = 3; // no comment line\n/// Of the kernel ABI,\n/// version 3.\n")
    ((line, words),) = check_facts.check_numbers(check_facts.comments(source))
    assert line == 2 and words.startswith("'kernel ABI, version 3', but the code says")


def test_lists_are_whole(monkeypatch):
    """A flag or a variable that the page does not have."""
    assert not [*check_facts.check_complete()]
    for known, name in (
        ("options_of_stepc", "fast"),
        ("variables_of_frontend", "STEPC_FAST"),
        ("statuses", "STEPC_TIRED"),
    ):
        with monkeypatch.context() as patch:
            real = getattr(check_facts.facts, known)()
            patch.setattr(check_facts.facts, known, lambda real=real, name=name: {*real, name})
            ((_, words),) = check_facts.check_complete()
            assert name in words and words.endswith("is not listed")
    assert len(check_facts.facts.options_of_stepc()) > 15


def test_each_number_is_quoted_somewhere(monkeypatch):
    assert not [*check_facts.check_quoted()]
    assert all(re.fullmatch(r"[\d.]+", get()) for _, get in check_facts.NUMBERS)
    monkeypatch.setattr(check_facts, "NUMBERS", [(r"at (\d+) parsecs", lambda: "3")])
    ((_, words),) = check_facts.check_quoted()
    assert "at (\\d+) parsecs" in words


def test_the_documents_are_right():
    command = [sys.executable, ROOT / "tools" / "docs" / "check_facts.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
