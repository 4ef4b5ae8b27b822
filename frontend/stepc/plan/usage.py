# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule takes which tensors, and what its kernels read and write on one rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import schedule
from .._describe import Rule
from .layouts import Part
from .models import Model, Tensor
from .package import Package, is_full, operand_bytes


class Widths(NamedTuple):
    """Of one kernel: the operands that it reads and writes, with the bytes of one element;
    those that have the parameter's dims. Segments: :class:`stepc.schedule.Access`."""

    kernel: str
    segment: int
    reads: dict[str, int]
    writes: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes that it moves for an element of the parameter."""
        return sum(self.reads.values()) + sum(self.writes.values())


def widths(variant: dict, rule: Rule) -> list[Widths]:
    """Of each kernel in turn."""
    operands = variant["operands"]

    def full(indices) -> dict[str, int]:
        found = (operands[i] for i in indices)
        return {o["name"]: operand_bytes(o) for o in found if is_full(o, rule)}

    return [
        Widths(access.kernel, access.segment, full(access.reads), full(access.writes))
        for access in schedule.accesses(variant)
    ]


def least(variant: dict, rule: Rule) -> int:
    """Bytes for an element of the parameter where each operand is moved once."""
    operands = variant["operands"]
    return sum(
        operand_bytes(operands[i])
        for indices in schedule.least(variant)
        for i in indices
        if is_full(operands[i], rule)
    )


@dataclass
class Use:
    """A variant on one rank: the tensors that have elements there, and these elements."""

    rule: Rule
    variant: dict
    tensors: int = 0
    elements: int = 0
    kernels: list[Widths] = field(default_factory=list)
    least: int = 0  # bytes of an element

    @property
    def moved(self) -> int:
        """Bytes of a step."""
        return self.elements * sum(kernel.total for kernel in self.kernels)


def by_variant(package: Package, parts: Counter[Part]) -> list[Use]:
    """The variants that update a rank's parts, in the order of the package."""
    found: dict[str, Use] = {}
    for part, count in parts.items():
        described, variant = package.part(part), package.variant(part)
        name, rule = variant["name"], described.rule
        if name not in found:
            found[name] = Use(rule, variant, kernels=widths(variant, rule),
                              least=least(variant, rule))  # fmt: skip
        elements = described.elements * count
        found[name].tensors += count if elements else 0
        found[name].elements += elements
    order = [variant["name"] for variant in package.manifest["variants"]]
    return [found[name] for name in order if name in found and found[name].elements]


def by_rule(package: Package, model: Model) -> dict[str, list[Tensor]]:
    """The tensors that each rule takes, on any layout."""
    found: dict[str, list[Tensor]] = {}
    for tensor in model.tensors:
        found.setdefault(package.tensor(tensor.shape).rule.name, []).append(tensor)
    return found
