# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Statistics of parameters that are kept from step to step: ``exclusive_writes``."""

from __future__ import annotations

import torch


class WatchedParameters:
    """Parameters, and masters of them, of which a plan carries statistics from step to
    step.

    Every write through torch moves a version counter: where one has moved between two
    steps the plan forgets what it carries. What moves none, as a write through
    ``.data``, is what ``exclusive_writes=True`` promises not to happen; the runtime looks
    at one parameter a step for it.
    """

    def __init__(self, plan, manifest: dict):
        self._plan = plan
        self._carries = any(variant.get("carried") for variant in manifest["variants"])
        self._params: list[torch.Tensor] = []
        self._versions: list[int] = []

    def add(self, param: torch.Tensor) -> None:
        if self._carries:
            self._params.append(param)

    def refresh(self) -> None:
        """Before a step."""
        if self._carries and self._read() != self._versions:
            self._plan.parameters_written()

    def note(self) -> None:
        """After a step."""
        if self._carries:
            self._versions = self._read()

    def _read(self) -> list[int]:
        return [param._version for param in self._params]
