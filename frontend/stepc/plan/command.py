# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command ``stepc-plan``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from .. import errors
from . import kept, machines, models, package, planning, report
from .failure import PlanError

EXAMPLES = """\
  stepc-plan adafactor --model llama-7b --ranks 64 --layout fsdp2
  stepc-plan my.mlir --model shapes.txt --ranks 8,64 --layout zero1,fsdp2
  stepc-plan came --model llama-70b --ranks 512 --layout 'tp*fsdp2' --axis tp=8 --json

A file of a model has a line for each tensor, 'name shape [dtype] [count]' as in
'layers.{}.attn.weight 4096x4096 bf16 32', or a JSON list of objects of these."""


def _pair(text: str, convert) -> tuple:
    name, equals, value = text.rpartition("=")
    try:
        return name, convert(value) if equals and name else int("")
    except ValueError:
        raise PlanError(f"'{text}' is not NAME=VALUE") from None


def _value(text: str):
    return {"true": True, "false": False}[text] if text in ("true", "false") else float(text)


def _dim(text: str) -> int | None:
    return None if text == "none" else int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stepc-plan", epilog=EXAMPLES, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.description = "memory of a rank, rounds, calls and bytes of a step, before it is run"
    add = parser.add_argument
    add("definition", help="a .mlir file, a .stepc package, or a name of the zoo; a,b: each")
    add("--model", required=True, help=f"{', '.join(models.NAMES)}, or a file; a,b: each")
    add_request(parser, layout="zero1")
    add("--compare", choices=["colossalai"], help="rounds and calls beside those of its "
        "distributed optimizers, on zero1 and tp")  # fmt: skip
    add("--json", action="store_true")
    return parser


def add_request(parser: argparse.ArgumentParser, layout: str | None) -> None:
    """The arguments of :func:`request`, :func:`machines_of` and of the model's dtype;
    ``layout`` is the default."""
    add = parser.add_argument
    add("--fragment", action="append", default=[], help="before the definition; again for more")
    add("--dtype", choices=models.BYTES, help="of all parameters, in place of the model's")
    add("--grad", choices=models.BYTES, help="of gradients (default: the parameter's)")
    add(
        "--state",
        metavar="T|NAME:T,...",
        help=f"of states: {', '.join(kept.STORAGES)}, which is codes of 8 bits (default: f32)",
    )
    add("--master", choices=kept.MASTERS, help="the f32 of 16-bit parameters, kept as a state, or "
        "as the bits that bf16 lacks (default: not)")  # fmt: skip
    add("--layout", default=layout, help="presets of docs/sharding.md, products with *; a,b: each")
    add("--ranks", help="how many; a,b: each")
    add("--axis", action="append", default=[], metavar="NAME=N", help="size of tp or shard")
    add("--rule", action="append", default=[], metavar="REGEX=DIM|none",
        help="the dim that tp cuts of tensors of these names; the first match counts")  # fmt: skip
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="an option or hyper-parameter")  # fmt: skip
    add("--gradients", choices=planning.GRADIENTS, default="local", help="of zero1")
    add("--workers", type=int, default=1, help="threads of a rank (default: 1)")
    add("--groups", type=int, default=1, help="of parameters (default: 1)")
    add("--machine", metavar="FILE", help="JSON: ranks, ranks_per_node, inside, between, "
        "latency_inside, latency_between, memory (bytes a second, seconds); for times")  # fmt: skip


def machines_of(given) -> list[machines.Machine]:
    try:
        ranks = [int(text) for text in (given.ranks or "").split(",") if text]
    except ValueError:
        raise PlanError(f"ranks is '{given.ranks}', expected numbers") from None
    if given.machine:
        return [machines.load(given.machine, n) for n in ranks or [None]]
    if not ranks:
        raise PlanError("neither --ranks nor --machine says how many ranks there are")
    return [machines.Machine(n) for n in ranks]


def request(given) -> planning.Request:
    """Of one layout, which is still the default's."""
    return planning.Request(
        sizes=dict(_pair(text, int) for text in given.axis),
        rules=tuple(_pair(text, _dim) for text in given.rule),
        values=dict(_pair(text, _value) for text in given.set),
        grad=given.grad, state=given.state, master=given.master, gradients=given.gradients,
        workers=given.workers, groups=given.groups,
    )  # fmt: skip


def plans(given) -> list[planning.Plan]:
    loaded = [models.load(name, given.dtype) for name in given.model.split(",")]
    sources = [package.open_source(n, given.fragment) for n in given.definition.split(",")]
    return [
        planning.make(source, model, machine, replace(request(given), layout=layout))
        for model in loaded
        for layout in given.layout.split(",")
        for source in sources
        for machine in machines_of(given)
    ]


def run(arguments: list[str] | None = None) -> str:
    """What the command prints; PlanError or StepcError where there is no plan."""
    given = _parser().parse_args(arguments)
    made = plans(given)
    if given.json:
        found = [report.as_json(plan) for plan in made]
        return json.dumps(found if len(found) > 1 else found[0], indent=1) + "\n"
    if given.compare:
        return report.table([report.beside_colossal(plan) for plan in made], report.PEERS)
    return report.tables(made) if len(made) > 1 else report.text(made[0])


def main() -> int:
    try:
        print(run(), end="")
    except (PlanError, errors.StepcError) as error:
        print(f"stepc-plan: error: {error}", file=sys.stderr)
        return 1
    return 0
