# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What DeepSpeed estimates for a model, to stand beside a plan.

Its formulas are ``estimate_zero2_model_states_mem_needs`` (``deepspeed/runtime/zero/
stage_1_and_2.py`` at 7dee2e06) and ``estimate_zero3_model_states_mem_needs`` (``stage3.py`` at
ea78ab68). The functions ``..._all_live`` count P and L of a module, ``..._all_cold`` are told
them; both print the same. Of P parameters, of which the largest layer has L, on N nodes of G
devices, with f = 1.5 for buffers, in bytes:

| stage | offload | of a device | of a node's processor memory |
|---|---|---|---|
| 2 | optimizer | 2 P | P max(4 G N, 16) f |
| 2 | | 2 P + 18 P / (G N) | 4 P G f |
| 3 | optimizer, parameters | 4 L | 18 P / N f |
| 3 | optimizer | 4 L + 2 P / (G N) | 16 P / N f |
| 3 | | 4 L + 18 P / (G N) | 4 L G f |

Of stage 3 that is with ``zero_init``. Without, each device's process first has the whole model:
at least 4 P G f, and 4 P G f in the last row.

18 bytes are a parameter and a gradient of 16 bits, and in 32 bits a gradient, a master and the two
moments of Adam. No other optimizer, and no other storage, is known to them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .machines import Machine
from .models import Model

BUFFERS = 1.5  # additional_buffer_factor


class Estimate(NamedTuple):
    """Bytes of a device and of a node's processor memory. ``offload``: what lies there, "",
    "optimizer" or "optimizer, parameters"; ``zero_init``: None where it makes no difference."""

    stage: int
    offload: str
    zero_init: bool | None
    device: int
    host: int


def layer_of(model: Model) -> int:
    """Parameters of the largest layer: a module's own, which have all of the name but its last
    word alike."""
    found: Counter[str] = Counter()
    for tensor in model.tensors:
        found[tensor.name.rpartition(".")[0]] += tensor.elements
    return max(found.values(), default=0)


def estimates(total: int, layer: int, devices: int, nodes: int) -> list[Estimate]:
    """In the order in which DeepSpeed prints them. ``devices``: of a node."""
    ranks, all_whole = devices * nodes, 4 * total * devices * BUFFERS
    found = [
        Estimate(2, "optimizer", None, 2 * total, int(total * max(4 * ranks, 16) * BUFFERS)),
        Estimate(2, "", None, 2 * total + int(18 * total / ranks), int(all_whole)),
    ]
    for offload, own, kept in (
        ("optimizer, parameters", 0, 18 * total / nodes * BUFFERS),
        ("optimizer", int(2 * total / ranks), 16 * total / nodes * BUFFERS),
        ("", int(18 * total / ranks), 4 * layer * devices * BUFFERS),
    ):
        for zero_init in (True, False):
            host = kept if zero_init else max(all_whole, kept) if offload else all_whole
            found.append(Estimate(3, offload, zero_init, 4 * layer + own, int(host)))
    return found


def of_model(model: Model, machine: Machine) -> list[Estimate]:
    devices = min(machine.ranks, machine.ranks_per_node)
    return estimates(model.elements, layer_of(model), devices, -(-machine.ranks // devices))
