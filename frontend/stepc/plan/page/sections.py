# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the page says of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from string import Template

from ..._units import seconds, size
from .. import report, usage
from ..failure import PlanError
from ..planning import Plan
from ..timeline import STEP, Event
from . import charts

_TEMPLATE = Path(__file__).with_name("page.html")
_SHOWN = 64  # ranks whose memory is drawn, at most

Make = Callable[[str, int], Plan]


def of_definition(name: str, source: str, words: str, picture: str) -> str:
    """A definition's text beside what the compiler makes of it: in words, and drawn."""
    svg = picture[picture.index("<svg") :]
    body = (
        f'<div class="wide">{svg}</div>'
        + f"<h2>Kernels, in words</h2><pre>{escape(words)}</pre>"
        + f"<h2>The definition</h2><pre>{escape(source)}</pre>"
    )
    return _filled(name, "kernels and what they read and write", "", body)


def of_model(layouts: list[str], ranks: list[int], make: Make) -> str:
    """A section for each layout and number of ranks, of which the page shows one. ``make``
    gives the plan of a layout on so many ranks; PlanError where there is none."""
    sections, first = [], None
    for layout in layouts:
        for number in ranks:
            try:
                plan = make(layout, number)
                first, inside = first or plan, _section(plan)
            except PlanError as error:
                inside = f"<p>There is no such plan: {escape(str(error))}.</p>"
            hidden = " hidden" if sections else ""
            where = f'data-layout="{escape(layout)}" data-ranks="{number}"'
            sections.append(f"<section {where}{hidden}>{inside}</section>")
    if first is None:
        known = report.listed(layouts)
        raise PlanError(f"none of {known} is possible on {report.listed(ranks)} ranks")
    model, name = first.model, first.package.name
    said = f"{len(model.tensors)} tensors, {model.elements:,} elements"
    choice = _select("layout", layouts) + _select("ranks", ranks)
    return _filled(f"{name} on {model.name}", said, choice, _rules(first) + "".join(sections))


def _filled(title: str, subtitle: str, choice: str, body: str) -> str:
    text = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return text.substitute(title=escape(title), subtitle=escape(subtitle), choice=choice, body=body)


def _select(name: str, values: Iterable) -> str:
    options = "".join(f"<option>{escape(str(value))}</option>" for value in values)
    return f'<label>{name} <select id="{name}">{options}</select></label>'


def _table(head: list[str], rows: Iterable[Iterable]) -> str:
    def line(cells: Iterable, tag: str) -> str:
        inside = "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{inside}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


# --- Tensors ------------------------------------------------------------------


def _rules(plan: Plan) -> str:
    """The same on every layout."""
    lists = []
    for name, tensors in usage.by_rule(plan.package, plan.model).items():
        lines = (f"{t.name}  {'x'.join(map(str, t.shape)) or 'scalar'}  {t.dtype}" for t in tensors)
        lists.append(
            f"<details><summary>{len(tensors)} tensors of rule {escape(name)}</summary>"
            f"<pre>{escape(chr(10).join(lines))}</pre></details>"
        )
    table = _table(report.RULES, report.rules(plan))
    return f"<h2>Tensors by rule</h2>{table}{''.join(lists)}"


# --- One plan -----------------------------------------------------------------


def _section(plan: Plan) -> str:
    parts = (_summary(plan), _kernels(plan), _memory(plan), _exchanges(plan))
    return "".join(parts)


def _summary(plan: Plan) -> str:
    uses, account = plan.uses(), plan.account
    moved = size(sum(account.moved.values()))
    if not plan.package.kept.keeps_codes:  # which kernels see as float32
        moved += f", least {size(sum(use.elements * use.least for use in uses))}"
    tiles = [
        ("memory of a rank", size(plan.memory["total"])),
        ("a step moves", moved),
        ("statistics cross in", f"{account.rounds} rounds, {size(account.exchanged)}"),
        ("sent beside the step", size(sum(row.sent for row in plan.traffic))),
    ]
    inside = "".join(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in tiles)
    return f'<p>{escape(report.head(plan))}</p><div class="tiles">{inside}</div>'


def _kernels(plan: Plan) -> str:
    said = (
        f"On rank {plan.fullest}, which has the most. What a kernel finds in the processor's cache "
        "is not counted."
    )
    table = _table(report.KERNELS, report.kernels(plan))
    return f"<h2>Kernels of a step</h2>{table}<p>{said}</p>"


def _flat(memory: dict) -> dict[str, int]:
    """By kind, without the sum; states are one kind."""
    found = {}
    for kind, value in memory.items():
        amount = sum(value.values()) if isinstance(value, dict) else value
        if kind != "total" and amount:
            found[kind] = amount
    return found


def _memory(plan: Plan) -> str:
    shown = list(range(0, plan.layout.ranks, -(-plan.layout.ranks // _SHOWN)))
    if plan.fullest not in shown:
        shown = sorted([*shown[:-1], plan.fullest])
    by_rank = {rank: _flat(plan.memory_of(plan.rank(rank))) for rank in shown}
    kinds = list(dict.fromkeys(kind for parts in by_rank.values() for kind in parts))
    rows = []
    for name, value in plan.memory.items():
        pairs = value.items() if isinstance(value, dict) else [(name, value)]
        rows += [(f"state {n}" if isinstance(value, dict) else n, size(v)) for n, v in pairs if v]
    said = f"{len(shown)} of {plan.layout.ranks} ranks are shown. "
    said = said if len(shown) < plan.layout.ranks else ""
    if plan.largest_unit:
        of = size(plan.largest_unit)
        said += f"Beside it torch gathers the root and a block at a time, {of}."
    return (
        f"<h2>Memory by rank</h2>{charts.legend(kinds)}{charts.memory(by_rank, kinds)}"
        f"<p>{said}</p><details><summary>Rank {plan.fullest}, which has the most</summary>"
        f"{_table(['kind', 'bytes'], rows)}</details>"
    )


def _exchanges(plan: Plan) -> str:
    events = plan.events() if plan.machine.is_timed else []
    crossing = [event for event in events if event.when != STEP]
    step = [event for event in events if event.when == STEP]
    found = "<h2>Exchanges on a time line</h2>"
    if not plan.account.calls and not plan.traffic:
        found += "<p>Nothing crosses ranks.</p>"
    if crossing:
        found += charts.timeline(events, "a training step")
        found += "<h3>The optimizer's step alone</h3>"
    if step:
        found += charts.timeline(step, "the optimizer's step")
    head = ["when", "what", "over", "bytes", "time"]
    said = (
        "Times are estimates: bytes over bandwidth and messages times latency, nothing overlapped. "
        "Forward and backward pass are drawn as long as what is exchanged in them. "
        f"{_machine(plan)}"
    )
    return f"{found}{_table(head, map(_row, events))}<p>{escape(said)}</p>"


def _row(event: Event) -> tuple:
    return event.when, event.what, event.lane, size(event.bytes), seconds(event.seconds)


def _machine(plan: Plan) -> str:
    machine = plan.machine
    inside, between, memory = (
        f"{value / 1e9:.4g} GB/s" for value in (machine.inside, machine.between, machine.memory)
    )
    return (
        f"The machine: nodes of {machine.ranks_per_node} ranks, {inside} inside and {between} "
        f"between nodes, {memory} of memory."
    )
