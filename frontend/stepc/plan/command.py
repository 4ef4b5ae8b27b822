# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command ``stepc-plan``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from .. import errors
from . import advice, advice_report, kept, machines, models, package, planning, report
from .failure import PlanError

EXAMPLES = """\
  stepc-plan adafactor --model llama-7b --ranks 64 --layout fsdp2
  stepc-plan my.mlir --model shapes.txt --ranks 8,64 --layout zero1,fsdp2
  stepc-plan came --model llama-70b --ranks 512 --layout 'tp*fsdp2' --axis tp=8 --json
  stepc-plan adamw --model llama-7b --ranks 8 --advise --memory-per-rank 24GiB

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


SAID = "memory of a rank, rounds, calls and bytes of a step, before it is run"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stepc-plan",
        epilog=EXAMPLES,
        description=SAID,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of :func:`text_of`."""
    add = parser.add_argument
    add("definition", help="a .mlir file, a .stepc package, or a name of the zoo; a,b: each")
    add("--model", required=True, help=f"{', '.join(models.NAMES)}, or a file; a,b: each")
    add_request(parser, layouts="zero1, of --advise ddp, zero1, zero2 and fsdp2")
    add("--compare", choices=["colossalai"], help="rounds and calls beside those of its "
        "distributed optimizers, on zero1 and tp")  # fmt: skip
    add("--json", action="store_true")
    _add_advice(parser)


# Of a budget, by the argument.
_FIGURES = {
    "--memory-per-rank": ("memory", "that parameters, gradients and states may take"),
    "--memory-bandwidth": ("memory_bandwidth", "a second of a rank's memory, read and written"),
    "--link-bandwidth": ("link_bandwidth", "a second that a rank sends"),
    "--disk-bandwidth": ("disk_bandwidth", "a second of a rank's disk, read or written"),
    "--bus-bandwidth": ("bus_bandwidth", "a second between a device and its host, each way"),
}


def _add_advice(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--advise", action="store_true", help="which stage, storage of states, master and place "
        "fit: a ladder, and the first that does")  # fmt: skip
    add("--device", choices=advice.DEFAULTS, default="cpu", help="where parameters are; what is "
        "there on CUDA devices, and the defaults of figures, differ (default: cpu)")  # fmt: skip
    for flag, (name, words) in _FIGURES.items():
        own = {device: getattr(one, name) for device, one in advice.DEFAULTS.items()}
        said = ", ".join(f"{device} {number:.3g}" for device, number in own.items())
        add(flag, metavar="BYTES", help=f"of --advise: bytes {words}, as "
            f"80e9, 80GB or 64GiB (default: {said})")  # fmt: skip


def add_request(parser: argparse.ArgumentParser, layouts: str) -> None:
    """The arguments of :func:`request`, :func:`machines_of` and of the model's dtype;
    ``layouts``: what is said of those that are taken where none is given."""
    add = parser.add_argument
    add("--fragment", action="append", default=[], help="before the definition; again for more")
    add("--dtype", choices=models.BYTES, help="of all parameters, in place of the model's")
    add("--grad", choices=models.BYTES, help="of gradients (default: the parameter's)")
    add(
        "--state",
        metavar="T|NAME:T,...",
        help=f"of states: {', '.join(kept.STORAGES)}; {', '.join(kept.FORMATS)} are codes, q8:N "
        "those of N elements and more (default: f32)",
    )
    add("--master", choices=kept.MASTERS, help="the f32 of 16-bit parameters, kept as a state, or "
        "as the bits that bf16 lacks (default: not)")  # fmt: skip
    add("--layout", help="presets of docs/sharding.md, products with *; a,b: each (default: "
        f"{layouts})")  # fmt: skip
    add("--ranks", help="how many; a,b: each")
    add("--axis", action="append", default=[], metavar="NAME=N", help="size of tp or shard")
    add("--rule", action="append", default=[], metavar="REGEX=DIM|none",
        help="the dim that tp cuts of tensors of these names; the first match counts")  # fmt: skip
    add("--view", action="append", default=[], metavar="REGEX=VIEW",
        help="how tensors of these names are seen, as a group's view has it, '(3 n) m -> 3 n m'; "
        "the first match counts")  # fmt: skip
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
        views=tuple(_pair(text, str) for text in given.view),
    )  # fmt: skip


def plans(given) -> list[planning.Plan]:
    loaded = [models.load(name, given.dtype) for name in given.model.split(",")]
    sources = [package.open_source(n, given.fragment) for n in given.definition.split(",")]
    return [
        planning.make(source, model, machine, replace(request(given), layout=layout))
        for model in loaded
        for layout in (given.layout or "zero1").split(",")
        for source in sources
        for machine in machines_of(given)
    ]


def _figures(given) -> dict[str, str]:
    """What is said of the machine, by the argument."""
    said = {flag: vars(given)[flag[2:].replace("-", "_")] for flag in _FIGURES}
    return {flag: text for flag, text in said.items() if text is not None}


def advices(given) -> list[advice.Advice]:
    """Of one layout, or each."""
    figures = {_FIGURES[f][0]: machines.amount(text) for f, text in _figures(given).items()}
    budget = replace(advice.DEFAULTS[given.device], **figures)
    layouts = tuple(given.layout.split(",")) if given.layout else ()
    return [
        advice.advise(
            package.open_source(name, given.fragment),
            models.load(model, given.dtype),
            _without(machine, figures),
            request(given),
            budget,
            given.device,
            layouts,
        )
        for model in given.model.split(",")
        for name in given.definition.split(",")
        for machine in machines_of(given)
    ]


def _without(machine: machines.Machine, figures: dict[str, float]) -> machines.Machine:
    """What is given by name counts before a file's figure."""
    if "link_bandwidth" in figures:
        machine = replace(machine, inside=0.0, between=0.0)
    return replace(machine, memory=0.0) if "memory_bandwidth" in figures else machine


def _listed(found: list) -> str:
    return json.dumps(found if len(found) > 1 else found[0], indent=1) + "\n"


def run(arguments: list[str] | None = None) -> str:
    """What the command prints; PlanError or StepcError where there is no plan."""
    return text_of(_parser().parse_args(arguments))


def text_of(given: argparse.Namespace) -> str:
    """The same of arguments that were read."""
    if given.advise:
        if given.compare:
            raise PlanError("--advise and --compare are given, expected one of both")
        found = advices(given)
        if given.json:
            return _listed([advice_report.as_json(one) for one in found])
        return "\n".join(map(advice_report.text, found))
    if figures := _figures(given):
        raise PlanError(f"{next(iter(figures))} is given, which is of --advise")
    made = plans(given)
    if given.json:
        return _listed([report.as_json(plan) for plan in made])
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
