# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hooks on parameters that keep nobody: their object has the parameters."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch


class GradientHooks:
    """Have a method called with each parameter once its gradient is whole, for as long as its
    object lives. They go with ``owner``."""

    def __init__(self, method: Callable[[torch.Tensor], None], owner):
        known, self._handles = weakref.WeakMethod(method), []

        def hook(param: torch.Tensor) -> None:
            now = known()
            if now is not None:
                now(param)

        self._hook = hook
        weakref.finalize(owner, _remove, self._handles)

    def add(self, param: torch.Tensor) -> None:
        self._handles.append(param.register_post_accumulate_grad_hook(self._hook))

    def remove(self) -> None:
        """Nothing is called any more."""
        _remove(self._handles)


def _remove(handles: list) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()
