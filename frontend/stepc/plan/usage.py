# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which rule takes which tensors, and what its kernels read and write on one rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .._describe import Rule
from ..schedule import Widths, least, widths
from .layouts import Part
from .models import Model, Tensor
from .package import Package


@dataclass
class Use:
    """A variant on one rank: the tensors that have elements there, and these elements."""

    rule: Rule
    variant: dict
    tensors: int = 0
    elements: int = 0
    kernels: list[Widths] = field(default_factory=list)
    least: int = 0  # bytes of an element


def by_variant(package: Package, parts: Counter[Part]) -> list[Use]:
    """The variants that update a rank's parts, in the order of the package."""
    found: dict[str, Use] = {}
    for part, count in parts.items():
        described, variant = package.part(part), package.variant(part)
        name, rule = variant["name"], described.rule
        if name not in found:
            found[name] = Use(rule, variant, kernels=widths(variant), least=least(variant))
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
