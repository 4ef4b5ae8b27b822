# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all ranks must have alike of an optimizer, whatever parts of its parameters they have."""

from __future__ import annotations

from ... import __version__
from ...interface import describe_options
from .agreement import Item


def items_of_optimizer(optimizer, interface, groups, views) -> list[Item]:
    """``groups``: as they are bound; ``views``: of each of them, or None."""
    names = ", ".join(optimizer._fragments)
    fragments = f" with {names}" if names else ""
    items = [
        Item(f"stepc {__version__}"),
        Item(f"definition '{interface.name}'{fragments} {optimizer._get_definition().digest()}"),
        Item(f"{len(groups)} parameter groups"),
    ]
    if optimizer._reproducible:
        items.append(Item("reproducible=True"))
    if optimizer._rounding:
        items.append(Item(f"rounding={optimizer._rounding!r}, seed={optimizer.seed}"))
    if precision := optimizer._kept_precision():
        items.append(Item(precision))
    items += [
        Item(f"{describe_options(group.options) or 'no options'} of group {number}")
        for number, group in enumerate(groups)
    ]
    items += [
        Item(f"{optimizer._words_of_shape(group)} of group {number}")
        for number, group in enumerate(optimizer.param_groups)
        if optimizer._options_of_shape(group) is not None
    ]
    said = [(number, view) for number, view in enumerate(views) if view]
    items += [Item(f"view {view!r} of group {number}") for number, view in said]
    return items
