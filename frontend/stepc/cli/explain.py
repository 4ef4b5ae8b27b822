# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler makes of a definition: kernels, what they read and write, what crosses ranks.

A definition is one of those that come with Stepc, by name, or a file. A model is one of
stepc-plan's (gpt2, llama-7b, ...) or a file of tensors: then its tensors by rule, the kernels
that update them, and memory and exchanges on several layouts are shown for an optimizer.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

from .. import _compiler
from ..definition import Definition
from ..plan import command, models, package, page, picture, planning, report
from ..plan.failure import PlanError

_LAYOUTS = ("ddp", "zero1", "zero2", "fsdp2", "hsdp")
_TENSOR_PARALLEL = "tp*fsdp2"  # where the model says how
_RANKS = "8,64"
_MACHINE = Path(planning.__file__).with_name("example-machine.json")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="DEFINITION_OR_MODEL",
        help=f"adamw, say, or my.mlir; or {', '.join(models.NAMES)}, or a file of tensors",
    )  # fmt: skip
    parser.epilog = "Behind -- stand arguments of the compiler, of a definition: -- --layout=-1=tp"
    parser.add_argument("--html", type=Path, metavar="FILE", help="writes a page of its own")
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="writes a picture of a definition's kernels"
    )
    group = parser.add_argument_group("for a model")
    group.add_argument("--optimizer", default="adamw", help="a definition (default: adamw)")
    command.add_request(group, layouts="several")


def run(given: argparse.Namespace) -> int:
    if _is_model(given.what):
        return _explain_model(given)
    return _explain_definition(given)


def _is_model(what: str) -> bool:
    path = Path(what)
    if path.suffix in (".mlir", ".stepc"):
        return False
    return what in models.NAMES or bool(path.suffix) or path.is_file()


# --- A definition -------------------------------------------------------------


def _explain_definition(given: argparse.Namespace) -> int:
    path = given.what
    if Path(path).suffix != ".mlir":
        path = Definition.from_zoo(path).path
    making = [_compiler.find_compiler(), path, *given.behind]
    if given.html is None and given.svg is None:
        return subprocess.run([*making, "--explain"], check=False).returncode
    made = []
    for form in ("json", "text"):
        done = subprocess.run([*making, f"--explain={form}"], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            return done.returncode
        made.append(done.stdout.decode())
    document, words = made
    drawn = picture.draw(json.loads(document))
    if given.svg:
        _write(given.svg, drawn)
    if given.html:
        text = Path(path).read_text(encoding="utf-8")
        _write(given.html, page.of_definition(Path(path).stem, text, words, drawn))
    return 0


# --- A model ------------------------------------------------------------------


def _explain_model(given: argparse.Namespace) -> int:
    if given.behind:
        raise PlanError(f"'{given.behind[0]}' is the compiler's, of a definition")
    if given.svg:
        raise PlanError(f"--svg draws a definition, and '{given.what}' is a model")
    model = models.load(given.what, given.dtype)
    source = package.open_source(given.optimizer, given.fragment)
    given.ranks = given.ranks or (None if given.machine else _RANKS)
    given.machine = given.machine or str(_MACHINE)
    found = {machine.ranks: machine for machine in command.machines_of(given)}
    wanted = command.request(given)

    def make(layout: str, ranks: int) -> planning.Plan:
        sizes = {"tp": math.gcd(8, ranks), **wanted.sizes}
        return planning.make(
            source, model, found[ranks], replace(wanted, layout=layout, sizes=sizes)
        )

    layouts = _layouts(given, model)
    if given.html is None:
        print(_in_words([make(layout, ranks) for layout in layouts for ranks in found]), end="")
    else:
        _write(given.html, page.of_model(layouts, list(found), make))
    return 0


def _layouts(given: argparse.Namespace, model: models.Model) -> list[str]:
    if given.layout:
        return given.layout.split(",")
    return [*_LAYOUTS, *([_TENSOR_PARALLEL] if model.splits or given.rule else [])]


def _in_words(plans: list[planning.Plan]) -> str:
    first = plans[0]
    tables = (
        report.table(report.rules(first), report.RULES),
        report.table(report.kernels(first), report.KERNELS),
        report.tables(plans),
    )
    return "\n".join([report.head(first) + "\n", *tables])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(f"wrote '{path}'")
