# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Advice in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from .._units import seconds, size
from . import deepspeed
from .advice import LAYOUTS, MEMORY, Advice, Rung
from .kept import Kept
from .report import table

RUNGS = ["", "stage", "states", "master", "place", "parameters", "gradients", "states' bytes",
         "windows", "other", "all memory", "elsewhere", "step (estimate)", "bound by"]  # fmt: skip
DEEPSPEED = ["stage", "offload", "zero_init", "of a device", "of a node's processor memory"]


def _rate(number: float) -> str:
    return f"{number / 1e9:.4g} GB/s"


def _head(advice: Advice) -> str:
    model, machine, budget = advice.model, advice.machine, advice.budget
    link = _rate(machine.between)
    if machine.inside != machine.between:
        link = f"{_rate(machine.inside)} inside a node, {link} between"
    bus = (
        f", a bus of {_rate(budget.bus_bandwidth)} each way; the host's memory is not counted"
        if advice.device == "cuda"
        else ""
    )
    return (
        f"{advice.definition} on {model.name}: {len(model.tensors)} tensors, {model.elements:,} "
        f"elements; {machine.ranks} ranks of {advice.device}\n"
        f"of a rank: {size(int(budget.memory))} of memory at {_rate(machine.memory)}, a link of "
        f"{link}, a disk of {_rate(budget.disk_bandwidth)}{bus}; activations are not counted\n"
    )


def _row(rung: Rung, first: Rung | None) -> list[str]:
    stage = "fully_shard" if LAYOUTS[rung.layout] == 3 else str(LAYOUTS[rung.layout])
    mark = "first" if rung is first else "fits" if rung.fits else "refused" if rung.refused else "-"
    words = [mark, stage, rung.state or "f32", rung.master or "", rung.place]
    if not rung.total:
        return [*words, *[""] * (len(RUNGS) - len(words))]
    sizes = (rung.parameters, rung.gradients, rung.states, rung.windows, rung.other, rung.total)
    elsewhere = "" if rung.place == MEMORY else size(rung.elsewhere)
    return [*words, *map(size, sizes), elsewhere, seconds(rung.seconds["step"]), rung.bound]


def text(advice: Advice) -> str:
    """A row for each rung, the line of the first that fits, and DeepSpeed's estimates."""
    first = advice.first
    parts = [_head(advice), table([_row(rung, first) for rung in advice.rungs], RUNGS)]
    refused = dict.fromkeys(rung.refused for rung in advice.rungs if rung.refused)
    if refused:
        parts.append("".join(f"refused: {words}\n" for words in refused))
    if advice.device == "cpu" and any(Kept.parse(r.state, None).keeps_codes for r in advice.rungs):
        parts.append(
            "with codes a processor's step is bound by their arithmetic, not by these bytes\n"
        )
    if first is None:
        least = min((r for r in advice.rungs if not r.refused), key=lambda r: r.total, default=None)
        words = f", the least is {size(least.total)}" if least else ""
        parts.append(f"none fits{words}\n")
    else:
        parts.append(f"the first that fits:\n  {first.constructor}\n")
    parts.append("DeepSpeed's estimates, of parameters of 16 bits and Adam:\n\n" + _theirs(advice))
    return "\n".join(parts)


def _theirs(advice: Advice) -> str:
    rows = [
        [str(one.stage), one.offload, "" if one.zero_init is None else str(one.zero_init),
         size(one.device), size(one.host)]
        for one in deepspeed.of_model(advice.model, advice.machine)
    ]  # fmt: skip
    return table(rows, DEEPSPEED)


def as_json(advice: Advice) -> dict:
    """Bytes, bytes a second and seconds. ``first``: the index in ``rungs``, or None."""
    first, machine = advice.first, advice.machine
    return {
        "optimizer": advice.definition,
        "model": advice.model.name,
        "tensors": len(advice.model.tensors),
        "elements": advice.model.elements,
        "ranks": machine.ranks,
        "device": advice.device,
        "memory_per_rank": advice.budget.memory,
        "memory_bandwidth": machine.memory,
        "link_bandwidth": {"inside": machine.inside, "between": machine.between},
        "disk_bandwidth": advice.budget.disk_bandwidth,
        "bus_bandwidth": advice.budget.bus_bandwidth,
        "rungs": [asdict(rung) | {"stage": LAYOUTS[rung.layout]} for rung in advice.rungs],
        "first": None if first is None else next(
            i for i, rung in enumerate(advice.rungs) if rung is first
        ),
        "deepspeed": [one._asdict() for one in deepspeed.of_model(advice.model, machine)],
    }  # fmt: skip
