# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers with units, for people."""

from __future__ import annotations


def size(number: int) -> str:
    """Bytes with a unit of 1024, three digits."""
    value, units = float(number), ["B", "KiB", "MiB", "GiB", "TiB"]
    for unit in units:
        if value < 1000 or unit == units[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{number} B"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def seconds(value: float) -> str:
    """Of at least a microsecond."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    return ""
