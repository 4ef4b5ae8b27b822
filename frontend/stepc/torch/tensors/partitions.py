# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Flat partitions: one tensor of one dim that a library has put into a group in place of
many, as DeepSpeed's ZeRO does with a rank's part of them, end to end and in f32.

An elementwise definition steps it as it would step the tensors. One that has rules for
dims, or adds anything up, would take the part for a vector.
"""

from __future__ import annotations

import torch
from torch.nn.parameter import is_lazy

from .members import ObstacleError, parameter_name


class GivenParameters:
    """Those that an optimizer was made with, by ``id()``: it keeps none of them alive, and has
    no weak reference, with which torch does not swap tensors. A model has them, so that none
    that is put in their place has an ``id()`` of theirs."""

    def __init__(self):
        self._ids: set[int] = set()
        self._has_dims = False
        self.groups = 0

    def add(self, params: list[torch.Tensor]) -> None:
        """Those of one more group."""
        self.groups += 1
        for param in params:
            self._ids.add(id(param))
            # A lazy module's has no shape yet.
            self._has_dims |= is_lazy(param) or param.dim() > 1

    def replaced_by(self, params: list[torch.Tensor]) -> bool:
        """Whether these are flat, and none of them, while some were not or were more."""
        if not params or not (self._has_dims or len(self._ids) > len(params)):
            return False
        return all(id(p) not in self._ids and p.dim() == 1 for p in params)


def check_partitions(optimizer, manifest: dict) -> None:
    """ObstacleError where a flat partition is to be stepped by what is not elementwise."""
    given = optimizer.__dict__.get("_given_params")
    if given is None or optimizer._mesh is not None:
        return
    for number, group in enumerate(optimizer.param_groups):
        if not given.replaced_by(group["params"]):
            continue
        why = _not_elementwise(manifest)
        if optimizer._rounding and not why:
            why = "rounds by random bits of an element's place in its tensor"
        of_groups = bool(manifest["scalars"]) and not optimizer._keeps_step
        if not why and of_groups and len(optimizer.param_groups) < given.groups:
            why = "keeps counts of groups, of which the library steps one at a time"
        if why:
            raise ObstacleError(
                f"{parameter_name({}, number, 0)} is a flat partition in place of the tensors that "
                f"the optimizer was made with, and '{manifest['optimizer']}' {why}; use "
                "zero=Zero(1, ...) or Zero(2) of this optimizer in place of the library's ZeRO, or "
                "with ColossalAI's setup_distributed",
                False,
            )


def _not_elementwise(manifest: dict) -> str:
    """Why a step of a part is no part of the step, in words; "" where it is."""
    if any(rule["dims"] != ["*"] for rule in manifest["rules"]):
        return "has rules for tensors of some dims"
    if manifest["statistics"]:
        names = ", ".join(f"'{s['name']}'" for s in manifest["statistics"])
        return f"needs {names} of all tensors of all ranks"
    # What a reduction of the tensor leaves has an entry for each block of it.
    sizes = (buffer["size"] for v in manifest["variants"] for buffer in v["workspace"])
    return "reduces over the elements of a tensor" if any(sizes) else ""
