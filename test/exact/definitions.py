# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a definition asks of shapes, groups and options, written out beside the compiler."""

import json
import subprocess

import numpy as np
from driver import STEPC

PREDICATES = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


class Definition:
    """A definition with fragments before it, and what its interface says.

    Without ``interface`` the compiler is asked. ``flags``: other options of it. ``rounding``:
    how what is stored as bf16 is rounded, "stochastic"; None: to nearest.
    """

    def __init__(self, path, fragments=(), interface=None, flags=(), rounding=None):
        self.path, self.fragments = str(path), [str(f) for f in fragments]
        self.flags, self.rounding = list(flags), rounding
        if interface is None:
            run = subprocess.run(
                [STEPC, self.path, *self.arguments(), "--interface"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            interface = json.loads(run.stdout)
        self.interface = interface

    def arguments(self):
        return [*self.flags, *(f"--fragment={fragment}" for fragment in self.fragments)]

    def key(self):
        return (self.path, self.rounding, *self.flags, *self.fragments)

    def option_values(self, group):
        """Those of a group, with defaults and derived ones."""
        hypers = {h["name"]: h["default"] for h in self.interface["hypers"]} | group.hypers
        values = {}
        for option in self.interface["options"]:
            name, derived = option["name"], option.get("derived")
            if derived:
                compare = PREDICATES[derived["predicate"]]
                values[name] = bool(compare(hypers[derived["hyper"]], derived["value"]))
            else:
                values[name] = group.options.get(name, option["default"])
        return values

    def rule(self, shape, group):
        """The first that fits and whose guard holds, and its dims' extents."""
        options = self.option_values(group)
        for rule in self.interface["rules"]:
            dims = rule.get("dims")
            extents = match(dims, shape) if dims else {"*": shape}
            guards = rule.get("guard") or []
            if extents is not None and all(holds(g, shape, options) for g in guards):
                for dim in rule.get("bound_dims", []):
                    extents[dim["name"]] = bound_extent(dim, extents, options)
                return rule, extents
        return None, None

    def states(self, shape, group):
        """The states that exist, with their shapes, in order."""
        rule, extents = self.rule(shape, group)
        options = self.option_values(group)
        return {
            s["name"]: shape_of(s["dims"], extents)
            for s in rule["states"]
            if not s["guard"] or options[s["guard"]]
        }

    def dense_states(self, shape, group):
        """Those of fewer dims than the parameter: they must be row-major."""
        rule, _ = self.rule(shape, group)
        return {s["name"] for s in rule["states"] if s["dims"] != rule.get("dims", s["dims"])}

    def variant(self, tensor, group):
        """What ``--variant`` says of a tensor."""
        param, grad, _ = tensor.storages
        items = [f"param={param}", f"grad={grad}"]
        names = sorted({s["name"] for rule in self.interface["rules"] for s in rule["states"]})
        items += [f"state.{name}={tensor.storage(name)}" for name in names]
        for name, value in self.option_values(group).items():
            if isinstance(value, bool):
                items.append(f"option.{name}={str(value).lower()}")
        if self.rounding:
            items.append(f"rounding={self.rounding}")
        return ",".join(items)


def match(dims, shape):
    """The extents of the dims' names; None where the shape does not fit."""
    if dims == ["*"]:
        return {"*": tuple(shape)}
    extents, rest = {}, list(dims)
    if rest and rest[0].startswith("..."):
        batch = len(shape) - (len(rest) - 1)
        if batch < 0:
            return None
        extents[rest.pop(0)] = tuple(shape[:batch])
        shape = shape[batch:]
    if len(rest) != len(shape):
        return None
    for name, extent in zip(rest, shape, strict=True):
        if extents.setdefault(name, 1 if name == "1" else extent) != extent:
            return None
    return extents


def bound_extent(dim, extents, options):
    """Of a dim that the rule makes of others."""
    least = [extents[name] for name in dim["least_of"]]
    least += [dim["most"]] if "most" in dim else []
    least += [options[dim["option"]]] if "option" in dim else []
    return -(-min(least) // dim["per"])


def shape_of(dims, extents):
    shape = []
    for dim in dims:
        if dim == "*" or dim.startswith("..."):
            shape.extend(extents[dim])
        else:
            shape.append(1 if dim == "1" else extents[dim])
    return tuple(shape)


def holds(guard, shape, options):
    if "rank" in guard:
        left = len(shape)
    elif "extent" in guard:
        dim = guard["extent"]
        if not -len(shape) <= dim < len(shape):
            return False
        left = shape[dim]
    elif "predicate" in guard:
        return bool(PREDICATES[guard["predicate"]](int(options[guard["option"]]), guard["value"]))
    else:
        return bool(options[guard["option"]]) == guard.get("holds", True)
    if "other_extent" in guard:
        dim = guard["other_extent"]
        if not -len(shape) <= dim < len(shape):
            return False
        right = shape[dim]
    else:
        right = guard["value"] if "value" in guard else options[guard["option"]]
    return bool(PREDICATES[guard["predicate"]](left, right))
