# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A warning for those who come from an engine that keeps float32 masters: here the optimizer does,
where it is asked to."""

from __future__ import annotations

import warnings

import torch

from ..tensors.callers import level_of_caller
from ..tensors.members import parameter_name

_ADVICE = {
    torch.bfloat16: "master='remainder', which takes 2 bytes a parameter, or master='f32'",
    torch.float16: "master='f32'",
}


class OfMasters:
    """Mix-in before :class:`CompiledStep`: says once, when a step is first prepared, that
    parameters of 16 bits have no masters, which ``_keeper`` keeps. Not of frozen ones, and not
    where that was asked for: with ``master=None`` or ``rounding``, or by a plugin that has called
    ``setup_distributed``."""

    _keeper = ""
    _told_of_masters = False  # or nobody is to be told
    _attributes = ("_told_of_masters",)

    def _begin(self, kind: type, arguments: dict, **more) -> None:
        if "master" in arguments["features"]:  # as configure() says master_weights=False
            self._told_of_masters = True
        super()._begin(kind, arguments, **more)

    def _check_precision(self) -> None:
        super()._check_precision()
        if self._told_of_masters:
            return
        self._told_of_masters = True
        if self._master is None and self._rounding is None and self._shards is None:
            self._tell_of_masters()

    def _tell_of_masters(self) -> None:
        narrow = [
            (parameter_name(group, number, position), param.dtype)
            for number, group in enumerate(self.param_groups)
            for position, param in enumerate(group["params"])
            if param.dtype in _ADVICE and param.requires_grad
        ]
        if not narrow:
            return
        (name, dtype), others = narrow[0], len(narrow) - 1
        more = f"and {others} other{'s' if others > 1 else ''} are" if others else "is"
        whole = torch.float16 in [kind for _, kind in narrow]
        warnings.warn(
            f"stepc: {name} ({dtype}) {more} stepped by {type(self).__name__} without the float32 "
            f"masters that {self._keeper} keeps beside parameters of 16 bits; give "
            f"{_ADVICE[torch.float16 if whole else dtype]}",
            RuntimeWarning,
            stacklevel=level_of_caller(),
        )
