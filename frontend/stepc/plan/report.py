# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans in words, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable

from .._units import seconds, size
from . import colossal, usage
from .planning import Plan


def _memory(plan: Plan) -> list[str]:
    # What crosses to owners and from them has memory that is not counted to the byte, nor is the
    # f32 that pieces of codes are made.
    exact = ":" if plan.owners.list or plan.package.kept.keeps_codes else ", exact:"
    lines = [f"memory of the rank that has the most{exact}"]
    for name, value in plan.memory.items():
        if isinstance(value, dict):
            lines += [f"  {size(v):>10}  state {n}" for n, v in value.items()]
        elif value or name in ("parameters", "gradients"):
            lines.append(f"  {size(value):>10}  {name}")
    if plan.largest_unit:
        lines.append(
            "  and torch gathers the root and a block at a time, "
            f"{size(plan.largest_unit)} of parameters"
        )
    return lines


def _work(plan: Plan) -> list[str]:
    """Of definitions with products of matrices."""
    if not any(plan.flops):
        return []
    most, mean = max(plan.flops), sum(plan.flops) / len(plan.flops)
    owners = (
        f"{len(plan.owners.list)} tensors have owners, which step all of each"
        if plan.owners.list
        else "every rank steps all tensors"
    )
    return [
        "products and decompositions of a step, FLOPs:",
        f"  {most:10.3g}  of the rank that has the most",
        f"  {mean:10.3g}  of a rank in the mean: balance {plan.balance:.3f}",
        f"  {owners}",
    ]


def _exchanges(plan: Plan) -> list[str]:
    account = plan.account
    lines = ["exchanges of a step, exact:",
             f"  {account.rounds} rounds, {len(account.calls)} calls, {size(account.exchanged)} "
             "of a rank, whatever the number of tensors"]  # fmt: skip
    for call in account.calls:
        lines.append(
            f"  round {call.round}: all_reduce by {call.operation} over {', '.join(call.axes)}, "
            f"{size(call.bytes)}"
        )
    return lines


def _beside(plan: Plan) -> list[str]:
    if not plan.traffic:
        return []
    lines = ["beside the step, bytes exact; sent: an all_reduce as a ring:"]
    for row in plan.traffic:
        calls = "torch's buckets" if row.calls is None else f"{row.calls} calls"
        lines.append(
            f"  {row.what}: {row.operation} over {', '.join(row.axes)}, {calls}, "
            f"{size(row.bytes)}, sent {size(row.sent)}"
        )
    return lines


def _times(plan: Plan) -> list[str]:
    times = plan.times()
    if not times:
        return []
    lines = ["times, an ESTIMATE from the machine's figures, nothing overlapped:"]
    lines += [f"  {seconds(value):>10}  {name}" for name, value in times.items()]
    return lines


def head(plan: Plan) -> str:
    model = plan.model
    axes = ", ".join(f"{name} = {n}" for name, n in plan.layout.axes.items())
    return (
        f"{plan.package.name} on {model.name}: {len(model.tensors)} tensors, "
        f"{model.elements:,} elements; {plan.layout.name} on {plan.machine.ranks} ranks ({axes})"
    )


def text(plan: Plan) -> str:
    sections = (_memory(plan), _work(plan), _exchanges(plan), _beside(plan), _times(plan))
    return "\n".join([head(plan), *("\n".join(lines) for lines in sections if lines)]) + "\n"


def as_json(plan: Plan) -> dict:
    """Bytes and seconds. ``estimates`` is all that is not exact."""
    account = plan.account
    return {
        "optimizer": plan.package.name,
        "model": plan.model.name,
        "tensors": len(plan.model.tensors),
        "elements": plan.model.elements,
        "layout": plan.layout.name,
        "ranks": plan.machine.ranks,
        "axes": plan.layout.axes,
        "memory": plan.memory,
        "largest_unit": plan.largest_unit,
        "work": {
            "flops": plan.flops,
            "most": max(plan.flops),
            "balance": plan.balance,
            "owned": len(plan.owners.list),
        },
        "exchanges": {
            "rounds": account.rounds,
            "calls": len(account.calls),
            "bytes": account.exchanged,
            "list": [vars(call) for call in account.calls],
        },
        "beside": [vars(row) for row in plan.traffic],
        "estimates": {"seconds": plan.times()},
    }


RULES = ["rule", "dims", "states", "tensors", "elements"]
KERNELS = ["kernel", "rule", "tensors", "reads", "writes"]
SHORT = ["optimizer", "layout", "ranks", "parameters", "gradients", "states", "all memory",
         "rounds", "calls", "exchanged", "sent beside"]  # fmt: skip
TIMES = ["optimizer", "layout", "ranks", "step (estimate)", "exchanges (estimate)",
         "gradients and parameters (estimate)"]  # fmt: skip
PEERS = ["optimizer", "model", "layout", "ranks", "rounds", "calls", "bytes of a rank",
         "ColossalAI: rounds and calls", "bytes of a rank"]  # fmt: skip


def listed(values: Iterable) -> str:
    return ", ".join(map(str, values))


def rules(plan: Plan) -> list[list[str]]:
    """A row of :data:`RULES` for each rule that takes tensors; the same on every layout."""
    rows = []
    for name, tensors in usage.by_rule(plan.package, plan.model).items():
        found = plan.package.tensor(tensors[0].shape)
        states = listed(f"{s.name} [{listed(s.dims)}]" for s in found.states if s.exists)
        elements = sum(tensor.elements for tensor in tensors)
        rows.append(
            [name, f"[{listed(found.rule.dims)}]", states, str(len(tensors)), f"{elements:,}"]
        )
    return rows


def kernels(plan: Plan) -> list[list[str]]:
    """A row of :data:`KERNELS` for each kernel of the rank that has the most."""

    def amount(use: usage.Use, operands: dict[str, int]) -> str:
        moved = size(use.elements * sum(operands.values()))
        return f"{listed(operands)}: {moved}" if operands else "nothing"

    return [
        [kernel.kernel, use.rule.name, str(use.tensors), amount(use, kernel.reads),
         amount(use, kernel.writes)]
        for use in plan.uses()
        for kernel in use.kernels
    ]  # fmt: skip


def short(plan: Plan) -> list[str]:
    """A row of :data:`SHORT`."""
    account, memory = plan.account, plan.memory
    sent = sum(row.sent for row in plan.traffic)
    return [
        plan.package.name, plan.layout.name, str(plan.machine.ranks),
        size(memory["parameters"]), size(memory["gradients"]),
        size(sum(memory["states"].values())), size(memory["total"]),
        str(account.rounds), str(len(account.calls)), size(account.exchanged), size(sent),
    ]  # fmt: skip


def timed(plan: Plan) -> list[str]:
    """A row of :data:`TIMES`."""
    step, exchanges, *beside = plan.times().values()
    return [plan.package.name, plan.layout.name, str(plan.machine.ranks),
            *map(seconds, (step, exchanges, sum(beside)))]  # fmt: skip


def beside_colossal(plan: Plan) -> list[str]:
    """A row of :data:`PEERS`."""
    account = plan.account
    theirs = colossal.count_on(plan.model, plan.package.name, plan.layout)
    return [
        plan.package.name, plan.model.name, plan.layout.name, str(plan.machine.ranks),
        str(account.rounds), str(len(account.calls)), size(account.exchanged),
        f"{theirs.calls:,}", size(theirs.bytes),
    ]  # fmt: skip


def table(rows: list[list[str]], header: list[str]) -> str:
    """Markdown."""
    out = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def tables(plans: list[Plan]) -> str:
    """A row for each plan, and times where the machine's figures are known."""
    text = table([short(plan) for plan in plans], SHORT)
    if all(plan.machine.is_timed for plan in plans):
        text += "\n" + table([timed(plan) for plan in plans], TIMES)
    return text
