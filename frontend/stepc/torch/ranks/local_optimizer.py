# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a plan of a rank's parts is bound to in place of the user's optimizer."""

from __future__ import annotations

import weakref

import torch

from ..binding.state_map import StateMap


class LocalOptimizer:
    """An optimizer of the parts: what the user's is, but for parameters and states."""

    _static_grads = False
    _captured: tuple = ()  # those with steps in CUDA graphs
    _exclusive_writes = False  # versions of parts say little of who writes the whole

    def __init__(self, optimizer, groups: list[list], mesh):
        self._optimizer = weakref.ref(optimizer)  # which has the binding that has this
        self._mesh = mesh
        self.param_groups = [
            {**group, "params": [part.local for part in parts]}
            for group, parts in zip(optimizer.param_groups, groups, strict=True)
        ]
        self._layouts = {id(part.local): part.layout for parts in groups for part in parts}
        self.state = StateMap()

    def __getattr__(self, name: str):
        return getattr(self._optimizer(), name)

    def _layout_of(self, param: torch.Tensor):
        return self._layouts[id(param)]

    def follow(self) -> None:
        """Takes over what the user has changed in the groups."""
        for own, group in zip(self.param_groups, self._optimizer().param_groups, strict=True):
            for key, value in group.items():
                if key != "params":
                    own[key] = value
