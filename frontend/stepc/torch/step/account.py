# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an optimizer's steps take on this rank: memory, kernels, bytes moved, exchanges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ... import schedule
from ..._units import size
from ..tensors.host_memory import is_on_host
from ..tensors.stored import StoredState


@dataclass(frozen=True)
class Kernel:
    """A kernel of the last plan, over all tensors that it takes. ``reads`` and ``writes``:
    bytes in a step, of operands that have the parameter's shape."""

    name: str
    rule: str
    tensors: int
    elements: int
    reads: int
    writes: int


@dataclass(frozen=True)
class Account:
    """Of one optimizer, on this rank; bytes.

    ``parameters``: of those bound so far, by dtype. ``states``: by name, as this rank keeps
    them. ``runtime``: what the library allocated beside them, workspace included.
    ``moved``: what the kernels read and write in a step, of operands with the parameter's
    shape; ``least``: each of these once. ``exchanges``: rounds, calls and bytes of statistics
    in a step, on average so far. ``eager``: why torch's own step runs, or None; ``apart``: the
    names of parameters that it has taken beside the compiled step of the others.
    """

    optimizer: str
    parameters: dict[str, int]
    states: dict[str, int]
    runtime: int
    workspace: int
    kernels: tuple[Kernel, ...]
    moved: int
    least: int
    rounds: float
    calls: float
    exchanged: float
    eager: str | None
    apart: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def account(optimizer) -> Account:
    """What is known after the steps so far; before the first one nothing but the name."""
    binding = optimizer._binding
    inner = getattr(binding, "_inner", binding)
    kernels, moved, least, plan = (), 0, 0, None
    if inner is not None:
        kernels, moved, least = _kernels(inner.used())
        plan = inner.plan.info()
    steps = max(plan.steps, 1) if plan else 1
    return Account(
        optimizer=type(optimizer).__name__,
        parameters=_parameters(optimizer),
        states=_states(optimizer),
        runtime=plan.bytesAllocated if plan else 0,
        workspace=plan.workspaceBytes if plan else 0,
        kernels=kernels,
        moved=moved,
        least=least,
        rounds=plan.exchangeRounds / steps if plan else 0.0,
        calls=plan.exchangeCalls / steps if plan else 0.0,
        exchanged=plan.exchangeBytes / steps if plan else 0.0,
        eager=optimizer._eager_reason if inner is None else None,
        apart=optimizer._apart.names() if optimizer._apart is not None else (),
    )


def _bytes(tensors: Iterable[torch.Tensor], seen: set[int]) -> int:
    """Of this rank's memory; a tensor that several have counts once."""
    total = 0
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if id(tensor) not in seen:
            seen.add(id(tensor))
            total += local.numel() * local.element_size()
    return total


def _parameters(optimizer) -> dict[str, int]:
    found: Counter = Counter()
    seen: set[int] = set()
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.requires_grad:
                found[str(param.dtype).removeprefix("torch.")] += _bytes([param], seen)
    return dict(found)


def _states(optimizer) -> dict[str, int]:
    found: Counter = Counter()
    seen: set[int] = set()
    for state in optimizer.state.values():
        for name, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                if isinstance(value, StoredState):
                    found[f"{name}, on disk"] += value.size_in_bytes
                elif optimizer._is_on_host and is_on_host(value):
                    found[f"{name}, in host memory"] += _bytes([value], seen)
                else:
                    found[name] += _bytes([value], seen)
    return dict(found)


# --- Kernels ------------------------------------------------------------------


def _kernels(used: list[tuple[dict, int, int]]) -> tuple[tuple[Kernel, ...], int, int]:
    """The kernels of variants, with the number of tensors and elements that each updates;
    what they move, and the least."""
    found, moved, once = [], 0, 0
    for variant, tensors, elements in used:
        for own in schedule.widths(variant):
            amounts = elements * own.read, elements * own.written
            found.append(Kernel(own.kernel, variant["rule"], tensors, elements, *amounts))
            moved += sum(amounts)
        once += elements * schedule.least(variant)
    return tuple(found), moved, once


# --- In words -----------------------------------------------------------------


def _lines(account: Account) -> list[str]:
    lines = [f"{account.optimizer}, on this rank:"]
    if account.eager is not None:
        lines.append(f"  torch's own step runs: {account.eager}")
    if account.apart:
        lines.append(f"  torch's own step takes {', '.join(account.apart)}")
    rows = [(amount, f"parameters, {dtype}") for dtype, amount in account.parameters.items()]
    rows += [(amount, f"state {name}") for name, amount in account.states.items()]
    rows += [(account.runtime, f"the library's own ({size(account.workspace)} workspace)")]
    if not account.kernels:
        rows.pop()
    lines += [f"  {size(amount):>10}  {what}" for amount, what in rows]
    if not account.kernels and account.eager is None:
        lines.append("  no step has been compiled yet")
    if account.kernels:
        lines.append(
            f"  a step moves {size(account.moved)}; each operand once is {size(account.least)}"
        )
    for kernel in account.kernels:
        lines.append(
            f"  kernel {kernel.name}: rule '{kernel.rule}', {kernel.tensors} tensors, reads "
            f"{size(kernel.reads)}, writes {size(kernel.writes)}"
        )
    if account.calls:
        lines.append(
            f"  statistics cross in {account.rounds:.3g} rounds and {account.calls:.3g} calls a "
            f"step, {size(round(account.exchanged))}"
        )
    return lines
